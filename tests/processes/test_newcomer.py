"""A newcomer: `make run` and what it prints, the first ten minutes, the clients that docs print."""

import http.client
import http.cookiejar
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
import urllib.parse
import urllib.request
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from carrier_servers import HANG_UP, Answer, CarrierServer, served
from desk_visitor import Page
from running import PYTHON, ROOT, TOOLS, Process, ask, free_port, wait_until
from samples import NEW_YORK
from texting.access import limits
from texting.access.keys import ApiKey
from texting.database import clock
from texting.messages.model import Message
from texting.settings import DAYS

NOT_COPIED = shutil.ignore_patterns(
    *(".git", ".venv", ".*-key", ".env", ".*_cache", "*.db*", "tests", "benchmarks")
)
CLOSED = DAYS[(datetime.now(UTC).weekday() + 3) % 7]  # a day that is not today

# `make run` with all packages installed


@pytest.fixture
def clone(tmp_path):
    """A fresh copy of the project, as `git clone` makes it."""
    return shutil.copytree(ROOT, tmp_path / "text-messages", ignore=NOT_COPIED)


@pytest.fixture
def installed(clone):
    """The copy with the packages that `make run` would install first."""
    (clone / ".venv").mkdir()
    for name in ("bin", "lib", "pyvenv.cfg"):
        (clone / ".venv" / name).symlink_to(Path(sys.prefix) / name)
    (clone / ".venv" / "python").write_text(str(clone.resolve()))
    return clone


@pytest.fixture
def run(clone, tmp_path):
    """Start bin/run.py in the copy, on a free port."""
    processes = []

    def start(**environ):
        own = {"PYTHONPATH": "", "FLASK_APP": "app", "PORT": str(free_port())}
        words = (PYTHON, clone / "bin" / "run.py")
        processes.append(Process(words, tmp_path / "cwd", **own | environ))
        return processes[-1]

    yield start
    for process in processes:
        interrupt(process)
        assert "Traceback" not in process.output


@pytest.fixture
def service(run):
    """`make run` without any setting, once it has printed what to type."""
    process = run()
    wait_for_curl(process)
    return process


def interrupt(process):
    """Send Ctrl-C: SIGKILL would leave the children behind, in process groups of their own."""
    if process.popen.poll() is None:
        process.popen.send_signal(signal.SIGINT)
        process.wait()


def children_of(pid):
    """Return all descendants of a process."""
    return psutil.Process(pid).children(recursive=True)


def wait_for_the_end_of(processes):
    """Wait until processes end; one that nobody has reaped yet counts as ended."""
    wait_until(lambda: not any(map(lives, processes)))


def lives(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for_curl(process):
    """Wait for the curl line; return its words."""
    wait_until(lambda: "Ctrl-C stops it" in process.output or process.popen.poll() is not None)
    line = re.search(r"^curl (?:.*\\\n)*.*", process.output, re.MULTILINE)
    assert line, process.output
    return shlex.split(line[0].replace("\\\n", ""))


def send(words):
    """Send the request of a curl line; return the answer's status."""
    _, url, *options = words
    given = [*zip(options[::2], options[1::2], strict=True)]
    headers = dict(text.split(": ", 1) for option, text in given if option == "-H")
    (body,) = (text for option, text in given if option == "-d")
    request = urllib.request.Request(url, body.encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)["status"]


def typed(line, folder, **environ):
    """Return what a line prints at a shell in the clone, with its environment active."""
    path = f"{TOOLS}:/usr/local/bin:/usr/bin:/bin"
    done = subprocess.run(
        ["sh", "-ec", line],
        cwd=folder,
        env={"PATH": path, **environ},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_what_it_makes_is_for_its_user_alone_and_kept_for_the_next_time(run, clone):
    printed = []
    for _ in range(2):
        process = run(CARRIER_URL="console:")
        printed.append(wait_for_curl(process))
        assert send(printed[-1]) == "queued"
        wait_until(lambda shown=process: "'Hello from the service'" in shown.output)
        interrupt(process)
        assert process.popen.returncode == 0
    assert [words[3] for words in printed] == [printed[0][3]] * 2  # the key
    secrets = re.findall("^SECRET_KEY=([0-9a-f]{64})$", (clone / ".env").read_text(), re.M)
    assert len(secrets) == 1
    assert re.findall("^BUSINESS_HOURS=.*", (clone / ".env").read_text(), re.M) == [
        "BUSINESS_HOURS=00:00-24:00"
    ]
    night = "+12125550123 --at 2026-03-03T08:00:00Z"
    assert json.loads(typed(f"flask hours {night} --json", clone))["within_business_hours"]
    for name in (".env", ".first-key", ".desk-key", "messages.db"):
        assert (clone / name).stat().st_mode & 0o077 == 0
    keys = json.loads(typed("flask keys list --json", clone))
    assert sorted(key["name"] for key in keys) == ["desk", "first"]
    for key in keys:
        created, ends = (datetime.fromisoformat(key[name]) for name in ("created_at", "expires_at"))
        assert ends - created == timedelta(days=30)


def test_the_environment_comes_before_a_file_named_env(run, clone):
    (clone / ".env").write_text("PORT=1\nDATABASE_URL=sqlite:///wrong.db\n")
    assert send(wait_for_curl(run(DATABASE_URL="sqlite:///right.db"))) == "queued"
    assert not (clone / "wrong.db").exists()
    with closing(sqlite3.connect(clone / "right.db")) as database:
        assert database.execute("SELECT count(*) FROM message").fetchone() == (1,)


def listening(process):
    """Return the addresses at which a process or its children listen."""
    found = [each for child in children_of(process.popen.pid) for each in child.net_connections()]
    return {each.laddr.ip for each in found if each.status == psutil.CONN_LISTEN}


FIRST_TEXT = (
    r"^(export .*)\n\nSend a first text, to a number that nobody has:\n\n(curl (?:.*\\\n)*.*)"
)
LOCAL = "on this machine only: HOST=0.0.0.0 make run"


@pytest.mark.parametrize(
    ("environ", "address", "said", "status"),
    [
        ({}, "127.0.0.1", (LOCAL, "at any hour: .env says BUSINESS_HOURS=00:00-24:00"), "queued"),
        ({"HOST": "some-shells-machine"}, "127.0.0.1", (LOCAL,), "queued"),
        (
            {"HOST": "0.0.0.0"},
            "0.0.0.0",
            ("everybody in this network can reach it", "PUBLIC_URL is not set"),
            "queued",
        ),
        (
            {"BUSINESS_DAYS": CLOSED, "SCRIPT_NAME": "stage/", "MAX_MESSAGE_LENGTH": "5"},
            "127.0.0.1",
            ("in business hours",),
            "scheduled",
        ),
        ({"CARRIER_URL": ""}, "127.0.0.1", ("No carrier is set",), "queued"),
        (
            {"CARRIER_URL": "webhook+http://127.0.0.1:1/"},
            "127.0.0.1",
            ("Texts go through webhook within seconds",),
            "queued",
        ),
        ({"ALLOWED_COUNTRIES": "GB"}, "127.0.0.1", ("ALLOWED_COUNTRIES refuses",), None),
    ],
    ids=[
        "alone",
        "a shell's HOST",
        "in the network",
        "hours of its own",
        "no carrier",
        "a webhook",
        "GB",
    ],
)
def test_it_says_who_reaches_it_and_what_to_expect_of_the_first_text(
    run, environ, address, said, status
):
    process = run(**{"CARRIER_URL": "console:"} | environ)
    words = wait_for_curl(process)
    assert listening(process) == {address}
    assert not [each for each in said if each not in process.output]
    if status:
        assert send(words) == status


# How it ends


@pytest.mark.parametrize("how", ["a signal", "scheduler.py", "gunicorn"])
def test_a_signal_or_the_end_of_one_process_ends_it_and_leaves_none_behind(how, service):
    children = children_of(service.popen.pid)
    if how == "a signal":
        service.popen.send_signal(signal.SIGHUP)
    else:
        next(child for child in children if child.cmdline()[1].endswith(how)).kill()
    assert (service.wait() == 0) == (how == "a signal")
    wait_for_the_end_of(children)


def test_a_signal_during_the_start_ends_it_too(run, clone):
    process = run()
    wait_until((clone / ".desk-key").exists)
    process.popen.terminate()
    assert process.wait() in (0, -signal.SIGTERM)  # the latter before anything has started


@pytest.mark.parametrize("how", ["Ctrl-C at a terminal", "SIGTERM to make"])
def test_make_ends_with_everything_that_it_started(installed, how):
    at_terminal = [PYTHON, "-c", "import pty, sys; pty.spawn(sys.argv[1:])"]
    make = subprocess.Popen(
        [*(at_terminal if "Ctrl-C" in how else ()), "make", "-o", ".venv/run", "run"],
        cwd=installed,
        env={"PATH": os.environ["PATH"], "PORT": str(free_port())},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output = b""
    while b"Ctrl-C stops it" not in output:
        output += (read := os.read(make.stdout.fileno(), 65_536))
        assert read, output
    children = children_of(make.pid)
    if how == "SIGTERM to make":
        make.terminate()
    rest, _ = make.communicate(b"\x03", timeout=60)
    wait_for_the_end_of(children)
    assert b"***" not in rest or how == "SIGTERM to make"
    assert b"Traceback" not in output + rest


# What it reports in one line


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


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"PORT": "65536"}, "PORT: "),
        ({"DATABASE_URL": "postgresql://127.0.0.1:1/x"}, "the database failed: "),
        ({"MAX_RETRIES": "many"}, "MAX_RETRIES: "),
        ({}, ".env: cannot be read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_used_is_reported_in_one_line(run, clone, environ, line):
    (clone / ".env").write_bytes(b"\n" if environ else b"\xff\xfe")
    process = run(**environ)
    assert process.wait() == 1
    assert process.output.removeprefix(f"{clone}/").startswith(line)
    assert process.output.count("\n") == 1


# The first ten minutes, as README and what is printed say

PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Mobile/15E148 Safari/604.1"


class Phone:
    """A browser without scripts, which keeps cookies and presses buttons by their words."""

    def __init__(self):
        jar = urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar())
        self.browser = urllib.request.build_opener(jar)
        self.browser.addheaders = [("User-Agent", PHONE)]

    def open(self, url, fields=None):
        data = fields and urllib.parse.urlencode(fields).encode()
        with self.browser.open(url, data, timeout=30) as answer:
            self.url, self.page = answer.url, Page(answer.read().decode())

    def press(self, words, **fields):
        (form, button), *_ = self.page.buttons(words)
        sent = dict(form["inputs"]) | fields
        if "name" in button:
            sent[button["name"]] = button.get("value", "")
        self.open(urllib.parse.urljoin(self.url, form.get("action") or self.url), sent)


@pytest.mark.slow
def test_a_newcomers_ten_minutes(clone, service, receiver, twilio):
    # Minute 1: `make run` prints what to type
    printed = service.output
    export, curl = re.search(FIRST_TEXT, printed, re.M).groups()
    address = re.search(r"^curl (\S+)/v1/", curl)[1]

    # Minute 2: the printed lines, pasted at whatever hour this is
    answer = json.loads(typed(f"{export}\n{curl}", clone))
    assert (answer["status"], answer["can_send_now"]) == ("queued", True)
    wait_until(lambda: "Hello from the service" in service.output.replace(printed, ""), seconds=30)

    # Minute 4: what became of it, told to a program
    assert "(on)" in typed(f"flask keys events first '{receiver.url}'", clone)
    typed(f"{export}\n{curl.replace('Hello from', 'A second text from')}", clone)
    wait_until(lambda: receiver.types == ["sent"], seconds=30)

    # Minute 6: a text that a person approves on a phone
    body = {"to": "+12125550123", "message": "Shall this go?", "manual_mode": True}
    curl = re.sub("-d '.*'", lambda _: f"-d '{json.dumps(body)}'", curl)
    typed(f"{export}\n{curl}", clone)
    desk, key = re.search(r"Sign in to the desk, (\S+), with (tms_\S+)", printed).groups()
    phone = Phone()
    phone.open(desk)
    phone.press("Sign in", key=key)
    assert "Shall this go?" in phone.page.text
    assert "Shall this go?" not in service.output
    phone.press("Approve")
    wait_until(lambda: "Shall this go?" in service.output, seconds=30)

    # Minute 8: a real carrier's settings, checked before anything is sent with them
    told = typed("flask check", clone, CARRIER_URL=twilio.url, PUBLIC_URL=address)
    assert "carrier: twilio accepts texts" in told
    assert "public address: answers" in told
    assert twilio.texts == []

    # Minute 10: where all of them went
    shown = typed("flask messages list", clone)
    assert shown.count(" sent ") == 3
    assert "PROBLEM" not in typed("flask stats", clone)


# The clients of docs/api.md, run as printed: no text twice, and none too fast

PAGE = (ROOT / "docs" / "api.md").read_text()
LANGUAGES = {
    "python": ([PYTHON, "-u"], "py", "print(send_text({to!r}, {text!r})['message_id'])\n"),
    "js": (
        ["node"],
        "js",
        "sendText({to!r}, {text!r}).then((a) => console.log(a.message_id), "
        "(e) => {{ console.log(e.message); process.exit(1); }});\n",
    ),
}


@pytest.fixture(params=LANGUAGES)
def client(request, tmp_path):
    """Run the printed client, which sends a text: `client(url, secret, "Hi")`."""
    command, ending, call = LANGUAGES[request.param]
    (code,) = re.findall(rf"^```{request.param}\n(.*?)^```$", PAGE, re.M | re.S)

    def run(url, secret, text, to=NEW_YORK):
        file = tmp_path / f"{text}.{ending}"
        file.write_text(code + call.format(to=to, text=text))
        return Process([*command, file], tmp_path / "cwd", TEXTS_URL=url, API_KEY=secret)

    return run


class Losing(CarrierServer):
    """Give requests to the web; of the first, lose the answer."""

    def take(self, request):
        self.requests.append(request)
        answer = ask(self.web, request.method, request.path, request.body, request.headers)
        return Answer(answer.status, answer.text.encode()) if self.requests[1:] else HANG_UP


losing = served(Losing)


def test_a_lost_answer_makes_no_second_text(client, shared_web, losing):
    losing.web, secret = shared_web
    process = client(f"http://{losing.address}", secret, "Hello")
    assert process.wait() == 0, process.output
    names = [request.headers["Idempotency-Key"] for request in losing.requests]
    assert len(names) == 2
    assert len({*names}) == 1
    assert [str(message.id) for message in Message.select()] == [process.output.strip()]


@pytest.mark.slow
def test_a_limit_is_waited_for_as_long_as_it_says(client, shared_web):
    web, _ = shared_web
    secret = ApiKey.issue("slow", None, clock.now(), limits=limits.parse("1/min"))
    wait_until(lambda: 50 <= clock.now().second < 56)  # so that the minute ends soon
    begun = clock.now()
    processes = [client(web.url, secret, text) for text in ("one", "two")]
    assert [process.wait() for process in processes] == [0, 0]
    created = sorted(message.created_at for message in Message.select())
    assert [instant.minute - begun.minute for instant in created] in ([0, 1], [0, -59])


def test_what_is_wrong_is_said_at_once(client, shared_web):
    web, secret = shared_web
    process = client(web.url, secret, "Hello", to="+1")
    assert process.wait() == 1
    assert "to: must be a phone number in E.164 format" in process.output
    assert Message.select().count() == 0
