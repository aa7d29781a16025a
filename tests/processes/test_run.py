"""`make run` with all packages installed: it prints a curl line that works, again and again."""

import json
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

from databases import on_sqlite
from running import PYTHON, ROOT, SECRET_KEY, Process, free_port, wait_until
from settings import DAYS

NOT_COPIED = shutil.ignore_patterns(".*", "*.db*", "tests", "benchmarks")


@pytest.fixture
def project(tmp_path):
    """A fresh copy of the project with a .env that the environment overrides."""
    folder = shutil.copytree(ROOT, tmp_path / "project", ignore=NOT_COPIED)
    (folder / ".env").write_text("CARRIER_URL=console:\nPORT=1\nDATABASE_URL=sqlite:///wrong.db\n")
    return folder


@pytest.fixture
def installed(project):
    """The copy with the packages that `make run` would install first."""
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
    """Send Ctrl-C: SIGKILL would leave the children behind, in process groups of their own."""
    if process.popen.poll() is None:
        process.popen.send_signal(signal.SIGINT)
        process.wait()


def children_of(pid):
    """All descendants of a process."""
    return psutil.Process(pid).children(recursive=True)


def wait_for_the_end_of(processes):
    """Wait until processes end; one that nobody has reaped yet counts as ended."""
    wait_until(lambda: not any(map(lives, processes)), seconds=10)


def lives(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def curl_line(process):
    """Wait for the curl line; its words."""
    wait_until(lambda: "Ctrl-C" in process.output or process.popen.poll() is not None)
    return words_of_curl(process.output)


def words_of_curl(output):
    line = re.search(r"^curl (?:.*\\\n)*.*", output, re.MULTILINE)
    assert line, output
    return shlex.split(line[0].replace("\\\n", ""))


def send(words):
    """Send the request of a curl line; the status of the answer."""
    _, url, *options = words
    given = [*zip(options[::2], options[1::2], strict=True)]
    headers = dict(text.split(": ", 1) for option, text in given if option == "-H")
    (body,) = (text for option, text in given if option == "-d")
    request = urllib.request.Request(url, body.encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return response.status


def secret_keys(project):
    return re.findall("^SECRET_KEY=([0-9a-f]{64})$", (project / ".env").read_text(), re.M)


@pytest.mark.slow
def test_the_curl_line_works_and_again_after_a_restart(run, project):
    port = str(free_port())
    printed = []
    for _ in range(2):
        process = run(PORT=port, DATABASE_URL="sqlite:///right.db")
        printed.append(curl_line(process))
        assert send(printed[-1]) == 201
        assert f"http://localhost:{port}/docs" in process.output
        wait_until(lambda shown=process: "'Hello from the service'" in shown.output)
        assert "release" not in process.output
        interrupt(process)
        assert process.popen.returncode == 0
        assert "Traceback" not in process.output
    assert printed[0][1] == f"http://localhost:{port}/v1/text-messages"
    assert [words[3] for words in printed] == [printed[0][3]] * 2  # the key is kept
    assert (project / ".first-key").stat().st_mode & 0o077 == 0
    assert len(secret_keys(project)) == 1  # made once
    assert not (project / "wrong.db").exists()
    with closing(sqlite3.connect(project / "right.db")) as database:
        assert database.execute("SELECT count(*) FROM message").fetchone() == (2,)


@pytest.mark.parametrize(
    "number",  # SIGINT ends the first run of test_the_curl_line..., SIGTERM that of make
    [
        signal.SIGHUP,
        *(pytest.param(n, marks=pytest.mark.soak) for n in (signal.SIGINT, signal.SIGTERM)),
    ],
)
def test_a_signal_ends_it_and_leaves_no_process_behind(number, run):
    process = run(PORT=str(free_port()))
    curl_line(process)
    children = children_of(process.popen.pid)
    commands = [" ".join(child.cmdline()) for child in children]
    assert any("gunicorn" in words for words in commands)
    assert any("scheduler.py" in words for words in commands)
    process.popen.send_signal(number)
    assert process.wait(10) == 0
    wait_for_the_end_of(children)
    assert "Traceback" not in process.output


def test_a_signal_during_the_start_ends_it_too(run, project):
    process = run(PORT=str(free_port()))
    wait_until((project / ".operator-key").exists)
    process.popen.terminate()
    assert process.wait(10) in (0, -signal.SIGTERM)  # the latter before anything has started
    assert "Traceback" not in process.output


@pytest.mark.parametrize("name", [pytest.param("scheduler.py", marks=pytest.mark.soak), "gunicorn"])
def test_when_one_process_ends_everything_ends(name, run):
    process = run(PORT=str(free_port()))
    curl_line(process)
    children = children_of(process.popen.pid)
    next(child for child in children if child.cmdline()[1].endswith(name)).kill()
    assert process.wait(20) != 0
    wait_for_the_end_of(children)


def read_until(words, popen):
    """Read the output of a process until these words come."""
    output = b""
    while words not in output:
        output += (read := os.read(popen.stdout.fileno(), 65_536))
        assert read, output
    return output


def test_ctrl_c_at_a_terminal_ends_make_and_everything_else(installed):
    code = "import pty, sys; pty.spawn(sys.argv[1:])"
    terminal = subprocess.Popen(
        [PYTHON, "-c", code, "make", "-o", ".venv/run", "run"],
        cwd=installed,
        env={"PATH": os.environ["PATH"], "PORT": str(free_port())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    read_until(b"Ctrl-C stops it", terminal)
    children = children_of(terminal.pid)
    rest, _ = terminal.communicate(b"\x03", timeout=20)
    wait_for_the_end_of(children)
    assert b"***" not in rest
    assert b"Traceback" not in rest


def test_sigterm_to_make_ends_everything(installed):
    make = subprocess.Popen(
        ["make", "-o", ".venv/run", "run"],
        cwd=installed,
        env={"PATH": os.environ["PATH"], "PORT": str(free_port())},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    read_until(b"Ctrl-C stops it", make)
    children = children_of(make.pid)
    make.terminate()
    rest, _ = make.communicate(timeout=20)
    wait_for_the_end_of(children)
    assert b"Traceback" not in rest


def test_what_is_printed_works_at_any_hour_and_days_of_ones_own_are_kept_to(run, project):
    closed = DAYS[(datetime.now(UTC).weekday() + 3) % 7]
    always = run(PORT=str(free_port()), DATABASE_URL="sqlite:///always.db")
    curl_line(always)
    assert "at any hour: for trying" in always.output
    interrupt(always)
    own = run(PORT=str(free_port()), DATABASE_URL="sqlite:///own.db", BUSINESS_DAYS=closed)
    assert send(curl_line(own)) == 201
    assert "at any hour" not in own.output
    with closing(sqlite3.connect(project / "own.db")) as database:
        assert database.execute("SELECT status FROM message").fetchone() == ("scheduled",)


def test_the_export_that_is_printed_sets_the_key_that_is_printed(run, project):
    words = curl_line(process := run(PORT=str(free_port())))
    (line,) = re.findall("^export API_KEY=.*$", process.output, re.MULTILINE)
    shell = ["sh", "-c", f'{line}; printf %s "$API_KEY"']
    told = subprocess.run(shell, cwd=project, capture_output=True, text=True)
    assert words[3] == f"X-Api-Key: {told.stdout}"


def test_outside_business_hours_below_a_prefix_and_cut_to_a_short_limit_the_line_works_too(run):
    closed = DAYS[(datetime.now(UTC).weekday() + 3) % 7]
    process = run(
        PORT=str(free_port()), SCRIPT_NAME="stage/", MAX_MESSAGE_LENGTH="5", BUSINESS_DAYS=closed
    )
    assert send(curl_line(process)) == 201


def test_where_the_number_would_be_refused_it_says_so(run):
    process = run(PORT=str(free_port()), ALLOWED_COUNTRIES="GB")
    curl_line(process)
    assert "ALLOWED_COUNTRIES refuses the number" in process.output


def test_what_it_makes_is_for_its_user_alone_and_without_a_carrier_no_text_is_promised(
    run, project
):
    shutil.copy(ROOT / ".env.example", project)
    (project / ".env").unlink()
    process = run(PORT=str(free_port()), CARRIER_URL="")
    curl_line(process)
    assert "No carrier is set" in process.output
    assert "it appears here" not in process.output
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


@pytest.mark.parametrize("address", ["", "127.0.0.1"])
def test_a_port_in_use_is_reported_in_one_line(run, address):
    with socket.socket() as taken:
        taken.bind((address, 0))
        taken.listen()
        process = run(PORT=str(taken.getsockname()[1]))
        assert process.wait() == 1
    (line,) = process.output.splitlines()
    assert "cannot be used" in line


CHECK = """
import sys
import run

for port in sys.argv[1:]:
    try:
        run.check(port)
    except SystemExit as told:
        print(told)
"""


def test_what_is_no_port_is_reported_in_one_line(start):
    ports = ("", "0", "-1", "http", "65536", "８０")
    process = start("python", "-c", CHECK, *ports, PYTHONPATH=str(ROOT / "bin"))
    assert process.wait() == 0
    for port, line in zip(ports, process.output.splitlines(), strict=True):
        assert line.startswith(f"port {port} cannot be used")


def test_a_database_that_does_not_answer_is_reported_in_one_line(run):
    process = run(PORT=str(free_port()), DATABASE_URL=f"postgresql://127.0.0.1:{free_port()}/x")
    assert process.wait() == 1
    (line,) = process.output.splitlines()
    assert line.startswith("the database failed: ")


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


# For this machine, unless HOST says otherwise; its keys end by themselves

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
def test_it_listens_on_this_machine_unless_host_says_otherwise(run, environ, address, words):
    process = run(PORT=str(free_port()), **environ)
    assert send(curl_line(process)) == 201
    assert listening(psutil.Process(process.popen.pid)) == {address}
    assert words in process.output
    assert (LINE in process.output) is (address == "0.0.0.0")


def test_its_keys_end_after_thirty_days_and_are_told_in_the_list(run, project):
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
