"""`make run` is for this machine, unless HOST says otherwise; its keys end by themselves."""

import json
import socket
import subprocess
import sys
from datetime import datetime, timedelta

import psutil
import pytest

from databases import on_sqlite
from running import SECRET_KEY, free_port
from test_run import curl_line, project, run, send  # noqa: F401

LINE = "PUBLIC_URL is not set"


def listening(process):
    """The addresses at which a process or its children listen."""
    children = process.children(recursive=True)
    found = [each for child in children for each in child.net_connections("inet")]
    return {each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN}


@pytest.mark.parametrize(
    ("environ", "address", "words"),
    [
        ({}, "127.0.0.1", "on this machine only: HOST=0.0.0.0 make run"),
        ({"HOST": "0.0.0.0"}, "0.0.0.0", "everybody in this network reaches it"),
        ({"HOST": "some-shells-machine"}, "127.0.0.1", "on this machine only"),
    ],
)
def test_it_listens_on_this_machine_unless_host_says_otherwise(run, environ, address, words):  # noqa: F811
    process = run(PORT=str(free_port()), **environ)
    assert send(curl_line(process)) == 201
    assert listening(psutil.Process(process.popen.pid)) == {address}
    assert words in process.output
    assert (LINE in process.output) is (address == "0.0.0.0")


def test_its_keys_end_after_thirty_days_and_are_told_in_the_list(run, project):  # noqa: F811
    process = run(PORT=str(free_port()))
    curl_line(process)
    words = ("-m", "flask", "keys", "list", "--json")
    environ = {"PATH": "", "DATABASE_URL": f"sqlite:///{project}/wrong.db", "FLASK_APP": "app"}
    told = subprocess.run(
        [sys.executable, *words], cwd=project, env=environ, capture_output=True, text=True
    )
    keys = json.loads(told.stdout)
    assert sorted(key["name"].partition("-20")[0] for key in keys) == [
        "make-run-first",
        "make-run-operator",
    ]
    for key in keys:
        created, ends = (datetime.fromisoformat(key[name]) for name in ("created_at", "expires_at"))
        assert ends - created == timedelta(days=30)


@pytest.mark.parametrize(
    ("environ", "is_told"),
    [
        ({"SECRET_KEY": SECRET_KEY}, True),
        ({"SECRET_KEY": SECRET_KEY, "PUBLIC_URL": "https://texts.example.com"}, False),
        ({"SECRET_KEY": SECRET_KEY, "PUBLIC_URL": "http://texts.example.com"}, False),
        ({}, False),
    ],
)
@on_sqlite
def test_where_https_cannot_be_told_the_start_says_what_to_set(
    database_url, serve, environ, is_told
):
    web = serve(database_url, **environ)
    assert web.output.count(LINE) == int(is_told)


def test_a_port_of_that_address_in_use_is_reported(run):  # noqa: F811
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = run(PORT=str(taken.getsockname()[1]))
        assert process.wait() == 1
    (line,) = process.output.splitlines()
    assert "cannot be used" in line
