"""The service as a PaaS runs it."""

import json
import os
import re
import shlex
import shutil
import subprocess
import urllib.request

import pytest
import yaml

import database
import keys
import models
from databases import on_postgres, on_sqlite
from running import ROOT, TOOLS, answers, free_port, wait_until

PROCFILE = dict(line.split(": ", 1) for line in (ROOT / "Procfile").read_text().splitlines())


def test_the_procfile_names_the_three_processes():
    assert PROCFILE == {
        "release": "flask db upgrade",
        "web": "gunicorn 'app:create_app()'",
        "scheduler": "python scheduler.py --every 5",
    }


@on_postgres  # on SQLite, test_run.py runs its processes
def test_a_paas_can_run_the_procfile(empty_database_url, start, key_of, tmp_path):
    deployed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    for name in filter(None, deployed):
        (tmp_path / "cwd" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "cwd" / name)
    port = free_port()
    environ = {
        "DATABASE_URL": empty_database_url.replace("postgresql://", "postgres://"),
        "PORT": str(port),
        "WEB_CONCURRENCY": "2",
        "DYNO": "web.1",
        "CARRIER_URL": "console:",
        "BUSINESS_HOURS": "00:00-24:00",
        "PATH": f"{TOOLS}:{os.environ['PATH']}",
        "PYTHONPATH": "",
        "FLASK_APP": "",
    }
    for _ in range(2):  # a release phase may run twice
        release = start("honcho", "run", *shlex.split(PROCFILE["release"]), **environ)
        assert release.wait() == 0, release.output
    service = start("honcho", "start", "-p", str(port), "web", "scheduler", **environ)
    base = f"http://127.0.0.1:{port}"
    wait_until(lambda: answers(f"{base}/healthz") or service.popen.poll() is not None)
    assert service.popen.poll() is None, service.output
    request = urllib.request.Request(
        f"{base}/v1/text-messages",
        json.dumps({"to": "+12125550123", "message": "Hello from a PaaS"}).encode(),
        {"X-Api-Key": key_of(empty_database_url), "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        assert json.load(response)["status"] == "queued"
    wait_until(lambda: "'Hello from a PaaS'" in service.output)
    assert service.terminate() in (0, 143, -15)


@on_sqlite
def test_port_and_workers_may_stand_in_a_file_named_env(start, database_url, tmp_path):
    port = free_port()
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / ".env").write_text(f"PORT={port}\nWEB_CONCURRENCY=2\n")
    web = start(
        *("gunicorn", "-c", ROOT / "gunicorn.conf.py", "app:create_app()"),
        DATABASE_URL=database_url,
    )
    wait_until(lambda: answers(f"http://127.0.0.1:{port}/healthz") or web.popen.poll() is not None)
    wait_until(lambda: web.output.count("Booting worker") == 2)
    assert web.terminate() == 0


@pytest.fixture
def key_of():
    """A new key in a database that others use."""

    def issue(url):
        database.connect(url)
        secret = keys.ApiKey.issue("paas", None, models.clock())
        database.disconnect()
        return secret

    return issue


@pytest.mark.parametrize(
    "words",
    [
        ("gunicorn", "-c", ROOT / "gunicorn.conf.py", "app:create_app()"),
        ("flask", "db", "upgrade"),
        ("scheduler.py",),
    ],
    ids=lambda words: words[0],
)
def test_where_the_disk_does_not_last_the_start_stops_without_a_database(start, words):
    process = start(*words, DYNO="x")
    assert process.wait() not in (0, None)
    assert process.output.startswith("DATABASE_URL: ")
    assert len(process.output.splitlines()) == 1


def test_render_runs_the_same_commands():
    web, scheduler = yaml.safe_load((ROOT / "render.yaml").read_text())["services"]
    assert web["preDeployCommand"] == PROCFILE["release"]
    assert web["startCommand"] == PROCFILE["web"]
    assert scheduler["startCommand"] == PROCFILE["scheduler"]


def test_app_json_starts_the_processes_of_the_procfile():
    formation = json.loads((ROOT / "app.json").read_text())["formation"]
    assert set(formation) == set(PROCFILE) - {"release"}


def test_no_host_is_set_up_to_pretend_that_it_sends():
    web, scheduler = yaml.safe_load((ROOT / "render.yaml").read_text())["services"]
    asked, same = (each["envVars"][-1] for each in (web, scheduler))
    assert asked == {"key": "CARRIER_URL", "sync": False}
    assert same["fromService"] == {
        **{"type": web["type"], "name": web["name"]},
        "envVarKey": "CARRIER_URL",
    }
    described = json.loads((ROOT / "app.json").read_text())["env"]["CARRIER_URL"]
    assert described.keys() == {"description"}  # required, as without a value


@on_sqlite
def test_the_cron_line_makes_one_pass(start, database_url):
    page = (ROOT / "docs" / "deploying.md").read_text()
    (line,) = re.findall(r"^\* \* \* \* \* cd (\S+) && (.*)$", page, re.M)
    assert line[1] == ".venv/bin/python scheduler.py"
    process = start("scheduler.py", DATABASE_URL=database_url)
    assert process.wait() == 0
    assert "0 promoted" in process.output
