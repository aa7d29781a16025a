"""What `make run` does once everything is installed: a curl line that works, again and again."""

import os
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.request
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from bin.run import check
from running import ALWAYS, PYTHON, ROOT, Process, answers, free_port, wait_until
from settings import DAYS

NOT_COPIED = shutil.ignore_patterns(".*", "*.db*", "tests", "benchmarks", "__pycache__")


@pytest.fixture
def project(tmp_path):
    """A fresh copy of the project, but for a .env that the environment has to win over."""
    folder = shutil.copytree(ROOT, tmp_path / "project", ignore=NOT_COPIED)
    (folder / ".env").write_text("CARRIER_URL=console:\nPORT=1\nDATABASE_URL=sqlite:///wrong.db\n")
    return folder


@pytest.fixture
def installed(project):
    """The copy, with packages: what `make run` does first is not tried here."""
    (project / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (project / ".venv" / name).symlink_to(Path(sys.prefix) / name)
    (project / ".venv" / "python").write_text(str(project.resolve()))
    return project


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
    """Stop what may have started others in groups of their own, which would outlive a SIGKILL."""
    if process.popen.poll() is None:
        process.popen.send_signal(signal.SIGINT)
        process.wait()


def processes_of(pid):
    """What a process has started, and what that has started: the commands by their ids."""
    return {child.pid: " ".join(child.cmdline()) for child in psutil.Process(pid).children(True)}


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
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.status


def secret_keys(project):
    return re.findall("^SECRET_KEY=([0-9a-f]{64})$", (project / ".env").read_text(), re.M)


def test_the_curl_line_works_and_again_after_a_restart(run, project):
    port = str(free_port())
    printed = []
    for _ in range(2):
        process = run(PORT=port, DATABASE_URL="sqlite:///right.db", **ALWAYS)
        printed.append(curl_line(process))
        assert send(printed[-1]) == 201
        assert f"http://localhost:{port}/docs" in process.output
        wait_until(lambda shown=process: "'Hello from the service'" in shown.output)
        interrupt(process)
        assert "Traceback" not in process.output
    assert printed[0][1] == f"http://localhost:{port}/v1/text-messages"
    assert [words[3] for words in printed] == [printed[0][3]] * 2  # the key is kept
    assert (project / ".first-key").stat().st_mode & 0o077 == 0
    assert len(secret_keys(project)) == 1  # made once
    assert not (project / "wrong.db").exists()
    with closing(sqlite3.connect(project / "right.db")) as database:
        assert database.execute("SELECT count(*) FROM message").fetchone() == (2,)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_leaves_no_process_behind(number, run):
    process = run(PORT=str(free_port()))
    curl_line(process)
    children = processes_of(process.popen.pid)
    assert len(children) == 3  # gunicorn's master, its worker, the scheduler
    process.popen.send_signal(number)
    assert process.wait() == 0
    assert not any(map(psutil.pid_exists, children))
    assert "Traceback" not in process.output


def read_until(words, popen):
    """What a process prints until these words, and not much more."""
    output = b""
    while words not in output:
        output += (read := os.read(popen.stdout.fileno(), 65_536))
        assert read, output
    return output


def test_it_ends_when_its_output_is_closed(project, tmp_path):
    with (tmp_path / "stderr").open("w") as stderr:
        run = subprocess.Popen(
            [PYTHON, "bin/run.py"],
            cwd=project,
            env={"PATH": os.environ["PATH"], "PORT": str(free_port())},
            stdout=subprocess.PIPE,
            stderr=stderr,
        )
    read_until(b"Ctrl-C stops it", run)
    children = processes_of(run.pid)
    run.stdout.close()
    assert run.wait(60) == 0
    assert not any(map(psutil.pid_exists, children))
    assert not re.search("Traceback|BrokenPipe", (tmp_path / "stderr").read_text())


def test_ctrl_c_is_no_error_of_make(installed, tmp_path):
    code = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
    environ = {"PATH": os.environ["PATH"], "PORT": str(free_port())}
    terminal = subprocess.Popen(
        [PYTHON, "-c", code, "make", "-o", ".venv/run", "run"],
        cwd=installed,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    read_until(b"Ctrl-C stops it", terminal)
    rest, _ = terminal.communicate(b"\x03", timeout=60)
    assert terminal.returncode == 0
    assert b"***" not in rest
    assert b"Traceback" not in rest


def test_a_dead_scheduler_is_started_again_while_the_web_goes_on(run):
    port = free_port()
    process = run(PORT=str(port))
    curl_line(process)

    def schedulers():
        return {
            pid for pid, words in processes_of(process.popen.pid).items() if "scheduler.py" in words
        }

    (dead,) = schedulers()
    os.kill(dead, signal.SIGKILL)
    wait_until(lambda: "the scheduler ended" in process.output)
    assert answers(f"http://127.0.0.1:{port}/healthz")
    wait_until(lambda: schedulers() - {dead})
    assert answers(f"http://127.0.0.1:{port}/healthz")


def test_where_it_is_night_at_all_numbers_the_text_has_a_date_soon(run):
    now = datetime.now(UTC)
    closed = DAYS[(now.weekday() + 3) % 7]  # nowhere is it that day
    process = run(PORT=str(free_port()), BUSINESS_DAYS=closed)
    words = curl_line(process)
    send_date = datetime.fromisoformat(re.search(r'"send_date": "([^"]+)"', words[-1])[1])
    assert timedelta() < send_date - now < timedelta(minutes=5)
    assert f"it has a send_date, {send_date:%H:%M:%S} UTC" in process.output
    assert send(words) == 201


def test_a_prefix_and_a_short_limit_still_make_a_line_that_works(run):
    process = run(SCRIPT_NAME="stage/", MAX_MESSAGE_LENGTH="5")
    assert send(curl_line(process)) == 201


def test_without_a_carrier_no_text_is_promised(run):
    process = run(PORT=str(free_port()), CARRIER_URL="")
    curl_line(process)
    assert "No carrier is set" in process.output
    assert "it appears here" not in process.output


def test_what_it_makes_is_for_its_user_alone(run, project):
    shutil.copy(ROOT / ".env.example", project)
    (project / ".env").unlink()
    curl_line(run(PORT=str(free_port())))
    for name in (".env", ".first-key", "messages.db"):
        assert (project / name).stat().st_mode & 0o077 == 0
    assert secret_keys(project)


def test_a_folder_that_was_moved_is_reported(installed, tmp_path):
    moved = installed.rename(tmp_path / "elsewhere")
    make = ["make", "-o", ".venv/run"]
    told = subprocess.run([*make, "run"], cwd=moved, capture_output=True, text=True)
    assert told.returncode == 2
    assert "this folder was moved" in told.stderr
    assert "make clean" in told.stderr
    assert subprocess.run(["make", "clean"], cwd=moved, capture_output=True).returncode == 0
    assert not (moved / ".venv").exists()
    assert Path(sys.prefix).exists()


def test_a_port_in_use_is_reported_in_one_line(run):
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        process = run(PORT=str(taken.getsockname()[1]))
        assert process.wait() == 1
    (line,) = process.output.splitlines()
    assert "cannot be used" in line


@pytest.mark.parametrize("port", ["", "0", "-1", "http", "65536", "８０"])
def test_what_is_no_port_is_refused(port):
    with pytest.raises(SystemExit, match=rf"^port {port} cannot be used .*\Z"):
        check(port)


def test_what_is_no_port_is_reported_in_one_line(run):
    process = run(PORT="65536")
    assert process.wait() == 1
    (line,) = process.output.splitlines()
    assert line.startswith("port 65536 cannot be used")


def test_settings_that_cannot_be_used_are_reported_before_anything_starts(run):
    process = run(MAX_RETRIES="many", LOG_LEVEL="loud")
    assert process.wait() == 1
    assert [line.partition(":")[0] for line in process.output.splitlines()] == [
        *("MAX_RETRIES", "LOG_LEVEL")
    ]


def test_a_file_named_env_that_cannot_be_read_is_reported_in_one_line(run, project):
    (project / ".env").write_bytes(b"\xff\xfe")
    process = run()
    assert process.wait() == 1
    assert len(process.output.splitlines()) == 1
    assert process.output.startswith(".env: cannot be read")
