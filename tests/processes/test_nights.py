"""The nights: told by /healthz and stats, over by themselves once mended, no text lost."""

import json

import pytest

from carrier_servers import refusal
from models import Message, Status
from running import ALWAYS, ask, health, post, wait_until
from stored_messages import statuses


@pytest.fixture
def night(shared_web, start, twilio):
    """A web and a scheduler with a carrier; `.problems()` asks /healthz?strict=1.

    All that /healthz reads is tried on both databases in test_monitoring.py.
    """
    web, key = shared_web
    environ = {"CARRIER_URL": twilio.url, "RETRY_DELAY": "2", "MAX_RETRIES": "9"} | ALWAYS

    class Night:
        def __init__(self):
            self.web = web
            self.start()

        def start(self):
            words = ("scheduler.py", "--every", "0.2")
            self.scheduler = start(*words, DATABASE_URL=web.database_url, **environ)

        def post(self):
            for n in range(3):
                body = {"to": f"+1212555010{n}", "message": "Hello"}
                assert post(self.web, key, body).status == 201

        def problems(self):
            answer = ask(self.web, "GET", "/healthz?strict=1")
            if answer.status == 200:
                return []
            assert answer.status == 503
            return json.loads(answer.text)["details"]["problems"]

        def tells(self, words):
            return any(words in problem for problem in self.problems())

    return Night()


def assert_over(night, twilio):
    wait_until(lambda: statuses() == {Status.SENT: 3})
    wait_until(lambda: night.problems() == [])
    assert {*twilio.numbers[-3:]} == {f"+1212555010{n}" for n in range(3)}


def test_a_wrong_token(night, twilio):
    login, twilio.login = twilio.login, (twilio.sid, "another token")
    night.post()
    wait_until(lambda: night.tells("the carrier has refused the account since "))
    wait_until(lambda: health(night.web)[1]["problems"])
    assert health(night.web)[0] == 200
    twilio.login = login
    assert_over(night, twilio)
    assert not any(message.attempts > 1 for message in Message.select())


def test_a_carrier_that_is_down(night, twilio):
    twilio.answer = refusal(20500, 500)
    night.post()
    wait_until(lambda: night.tells("nothing was sent"))
    wait_until(lambda: health(night.web)[1]["retrying"] == 3)  # none is under way again
    wait_until(lambda: (health(night.web)[1]["commonest_error"] or {}).get("messages") == 3)
    wait_until(lambda: health(night.web)[1]["oldest_due_seconds"] >= 1)
    twilio.answer = None
    assert_over(night, twilio)


def test_everything_refused_for_good(night, twilio):
    twilio.answer = refusal(21612, 400)
    for _ in "12":
        night.post()
    wait_until(lambda: night.tells("6 of the latest 6 texts failed for one reason"))
    twilio.answer = None
    for _ in "12":
        night.post()
    wait_until(lambda: statuses() == {Status.FAILED: 6, Status.SENT: 6})
    wait_until(lambda: night.problems() == [])


def test_a_dead_scheduler(night, twilio):
    night.scheduler.kill()
    night.post()
    wait_until(lambda: night.tells("no scheduler makes a pass"))
    night.start()
    assert_over(night, twilio)
