"""What `make run` does once everything is installed: a curl line that works, again and again."""

import os
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import urllib.request
from contextlib import closing

import pytest

from running import PYTHON, ROOT, Process, free_port, wait_until

NOT_COPIED = shutil.ignore_patterns(".*", "*.db*", "tests", "benchmarks", "__pycache__")


@pytest.fixture
def project(tmp_path):
    """A fresh copy of the project, but for a .env that the environment has to win over."""
    folder = shutil.copytree(ROOT, tmp_path / "project", ignore=NOT_COPIED)
    (folder / ".env").write_text("CARRIER_URL=console:\nPORT=1\nDATABASE_URL=sqlite:///wrong.db\n")
    return folder


@pytest.fixture
def run(project, tmp_path):
    """Start bin/run.py in the copy."""
    processes = []

    def start(**environ):
        own = {"PYTHONPATH": "", "FLASK_APP": "app"}
        words = (PYTHON, project / "bin" / "run.py")
        processes.append(Process(words, tmp_path / "cwd", **own | environ))
        return processes[-1]

    yield start
    for process in processes:
        interrupt(process)


def interrupt(process):
    """Press Ctrl-C: what it has started is in sessions of its own, and would outlive a SIGKILL."""
    if process.popen.poll() is None:
        os.killpg(process.popen.pid, signal.SIGINT)
        process.wait()


def curl_line(process):
    """The words of the curl line, as soon as it is printed."""
    pattern = re.compile(r"^curl (?:.*\\\n)*.*", re.MULTILINE)
    wait_until(lambda: "Ctrl-C" in process.output or process.popen.poll() is not None)
    assert pattern.search(process.output), process.output
    return shlex.split(pattern.search(process.output)[0].replace("\\\n", ""))


def send(words):
    """Do what a curl line says; the answer's status."""
    _, url, *options = words
    given = [*zip(options[::2], options[1::2], strict=True)]
    headers = dict(text.split(": ", 1) for option, text in given if option == "-H")
    (body,) = (text for option, text in given if option == "-d")
    request = urllib.request.Request(url, body.encode(), headers)
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.status


def test_the_curl_line_works_and_again_after_a_restart(run, project):
    port = str(free_port())
    printed = []
    for _ in range(2):
        process = run(PORT=port, DATABASE_URL="sqlite:///right.db")
        printed.append(curl_line(process))
        assert send(printed[-1]) == 201
        interrupt(process)
        assert "Traceback" not in process.output
    assert printed[0][1] == f"http://localhost:{port}/v1/text-messages"
    assert [words[3] for words in printed] == [printed[0][3]] * 2  # the key is kept
    assert (project / ".first-key").stat().st_mode & 0o077 == 0
    assert not (project / "wrong.db").exists()
    with closing(sqlite3.connect(project / "right.db")) as database:
        assert database.execute("SELECT count(*) FROM message").fetchone() == (2,)


def test_a_port_in_use_is_said_in_one_line(run):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        process = run(PORT=str(taken.getsockname()[1]))
        assert process.wait() == 1
    (line,) = process.output.splitlines()
    assert "cannot be used" in line


@pytest.mark.parametrize("port", ["", "0", "-1", "http", "65536", "８０"])
def test_what_is_no_port_is_said_in_one_line(port, run):
    process = run(PORT=port)
    assert process.wait() == 1
    (line,) = process.output.splitlines()
    assert line.startswith(f"port {port} cannot be used")


def test_settings_that_cannot_be_used_are_said_before_anything_starts(run):
    process = run(MAX_RETRIES="many", LOG_LEVEL="loud")
    assert process.wait() == 1
    assert [line.partition(":")[0] for line in process.output.splitlines()] == [
        *("MAX_RETRIES", "LOG_LEVEL")
    ]


def test_a_file_named_env_that_cannot_be_read_is_said_in_one_line(run, project):
    (project / ".env").write_bytes(b"\xff\xfe")
    process = run()
    assert process.wait() == 1
    assert len(process.output.splitlines()) == 1
    assert process.output.startswith(".env: cannot be read")
