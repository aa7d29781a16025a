"""`flask notify test`, and what loads Apprise."""

import subprocess
import sys

import pytest

from carrier_servers import Answer
from running import ROOT


@pytest.fixture
def notify(flask_with):
    """Run `flask notify test` with a NOTIFY_URL."""
    return lambda url: flask_with(notify_url=url)("notify", "test")


def test_a_test_goes_to_each_address(notify, people):
    result = notify(f"{people.url} {people.url}")
    assert (result.exit_code, result.output) == (
        0,
        "sent to address 1 of NOTIFY_URL (json://)\nsent to address 2 of NOTIFY_URL (json://)\n",
    )
    assert people.told == ["This is a test of the notices about text messages."] * 2


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("{people.url}", "could not be sent to address 1 of NOTIFY_URL (json://)"),
        (None, "NOTIFY_URL is not set, so nobody is notified"),
        ("nosuch://s3cret@host", "NOTIFY_URL: Apprise does not know address 1 (nosuch://)"),
    ],
)
def test_a_test_that_fails_says_why_in_one_line(notify, people, url, words):
    people.answer = Answer(403)
    result = notify(url and url.format(people=people))
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {words}\n")


LOADED = """
import sys
from app import create_app
app = create_app()
app.test_client().get("/healthz")
for words in (["stats"], ["keys", "list"], ["notify", "--help"]):
    assert app.test_cli_runner().invoke(args=words).exit_code == 0
print([name for name in sys.modules if name.partition(".")[0] in ("apprise", "requests")])
"""


def test_neither_the_web_nor_the_other_commands_load_apprise(database_url, tmp_path):
    environ = {"DATABASE_URL": database_url, "NOTIFY_URL": "json://user:s3cret@127.0.0.1:9/"}
    environ |= {"PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", LOADED]
    done = subprocess.run(words, env=environ, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
