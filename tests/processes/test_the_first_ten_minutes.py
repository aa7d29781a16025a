"""A newcomer's ten minutes, as a script: run, curl, events, an approval on a phone, a real carrier.

The clone is a copy of this folder with its packages, and the receiver and Twilio are servers here.
All else is typed and pressed as the README and what is printed say.
"""

import http.cookiejar
import json
import re
import shutil
import signal
import subprocess
import urllib.parse
import urllib.request

import pytest

from desk_visitor import Page
from running import PYTHON, ROOT, TOOLS, Process, free_port, wait_until

PHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Mobile/15E148 Safari/604.1"


@pytest.fixture
def clone(tmp_path):
    """A fresh copy of the project, as `git clone` makes it."""
    left = shutil.ignore_patterns(".git", ".venv", ".*-key", ".env", "*.db*", "tests", ".*_cache")
    return shutil.copytree(ROOT, tmp_path / "text-messages", ignore=left)


@pytest.fixture
def service(clone):
    """`make run`, and what it prints."""
    port = str(free_port())
    own = {"PYTHONPATH": "", "FLASK_APP": "app", "PORT": port}
    process = Process([PYTHON, clone / "bin" / "run.py"], clone, **own)
    wait_until(lambda: "Ctrl-C stops it." in process.output or process.popen.poll() is not None)
    assert process.popen.poll() is None, process.output
    yield process
    process.popen.send_signal(signal.SIGINT)
    assert process.wait() == 0
    assert "Traceback" not in process.output


def typed(line, folder, **environ):
    """What a line prints at a shell in the clone, with its environment active."""
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
    export, curl = re.search(r"^(export .*)\n\n(curl (?:.*\\\n)*.*)", printed, re.M).groups()
    address = re.search(r"^curl (\S+)/v1/", curl)[1]

    # Minute 2: the printed lines, pasted at whatever hour this is
    answer = json.loads(typed(f"{export}\n{curl}", clone))
    assert (answer["status"], answer["can_send_now"]) == ("queued", True)
    wait_until(lambda: "Hello from the service" in service.output.replace(printed, ""), seconds=30)

    # Minute 4: what became of it, told to a program
    (name,) = re.findall(r"^(make-run-first-\S+)", typed("flask keys list", clone), re.M)
    assert "(on)" in typed(f"flask keys events {name} '{receiver.url}'", clone)
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
