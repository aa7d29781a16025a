"""python scheduler.py as a real process: what it prints, how it stops and sends, whom it tells."""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import psutil
import pytest

from app import create_app
from carrier_errors import form
from carrier_servers import (
    HANG,
    Answer,
    served,
)
from databases import on_both
from desk_visitor import Visitor
from kits.twilio import refusal
from kits.webhook import WebhookServer
from running import ALWAYS, ROOT, send, wait_until
from samples import DAY, HOUR, NEIGHBOUR, NEW_YORK
from signed_callbacks import of_twilio
from stored_messages import again, create, key_named, statuses, store, store_many
from texting.access.do_not_call import DoNotCall
from texting.access.keys import ApiKey, Role
from texting.database import clock
from texting.events.outbox import Event
from texting.messages.model import FINISHED, Message, Status
from texting.monitoring import dead_scheduler
from texting.sending.carrier_state import CarrierState
from texting.settings import VERSION

DEPLOYING = (ROOT / "docs/deploying.md").read_text()

# What it prints


def test_a_pass_says_in_lines_of_the_log_what_it_did_and_more_if_it_is_asked(schedule):
    message = store()
    store(to=NEIGHBOUR, status=Status.SCHEDULED, check_dnc=True)
    DoNotCall.add([NEIGHBOUR], clock.now(), "operator")
    began = f"scheduler - Text Message Sending Service {VERSION}"
    nothing = "counts - nothing to do"
    for words, told in (
        ((), [f"scheduler - message {message.id} sent", "counts - 1 sent, 1 blocked"]),
        ((), [nothing]),
        (("--verbose",), [began, "scheduler - texts go to simulator", nothing]),
    ):
        one = schedule(*words, CARRIER_URL="simulator:", LOG_LEVEL="ERROR" if words else "INFO")
        assert one.wait() == 0
        instant = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO "
        assert re.sub(instant, "", one.output, flags=re.M).splitlines() == told


CRONTAB = re.search(r"```crontab\n.*scheduler\.py (.*?)\n```", DEPLOYING, re.S)[1].split()


def test_cron_gets_no_mail_while_nothing_is_wrong(schedule):
    store_many(3)
    process = schedule(*CRONTAB, CARRIER_URL="simulator:")
    assert (process.wait(), process.output) == (0, "")
    assert statuses() == {Status.SENT: 3}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://someone:s3cret@127.0.0.1:1/messages",
        "postgresql://someone:s3cret@no-such-host.invalid/messages",
        "sqlite:///without-tables.db",
        "sqlite:////nowhere/messages.db",
    ],
)
def test_a_pass_without_a_database_ends_with_status_1_and_one_clear_line(start, url):
    """Cron mails it."""
    scheduler = start("scheduler.py", *CRONTAB, DATABASE_URL=url)
    assert scheduler.wait() == 1
    (line,) = scheduler.output.splitlines()
    assert "ERROR scheduler - the scheduler cannot work: the database: " in line
    assert "s3cret" not in line


# Told to stop


@pytest.mark.parametrize(
    ("words", "name"), [(["--every=0.1"], "SIGTERM"), (["--every=0.1"], "SIGINT"), ([], "SIGTERM")]
)
def test_a_signal_lets_sends_end_and_none_begin(schedule, twilio, words, name):
    twilio.wait()
    store_many(20)
    scheduler = schedule(*words, CARRIER_URL=twilio.url, SEND_CONCURRENCY="4")
    wait_until(lambda: len(twilio.texts) == 4)
    for _ in range(2):  # impatience changes nothing
        scheduler.popen.send_signal(signal.Signals[name])
        time.sleep(0.2)
    assert scheduler.popen.poll() is None
    twilio.go_on.set()
    assert scheduler.wait() == 0
    assert len(twilio.texts) == 4
    assert statuses() == {Status.SENT: 4, Status.QUEUED: 16}


STOPPED = "the scheduler was stopped before the carrier answered"


@pytest.mark.timed
@pytest.mark.parametrize("words", [["--every=0.1"], []])
def test_a_scheduler_that_is_stopped_leaves_what_the_carrier_does_not_answer_in_doubt(
    schedule, twilio, words
):
    """The carrier that can be asked is asked next: the text is not sent again."""
    twilio.wait()
    message = store()
    scheduler = schedule(*words, CARRIER_URL=twilio.url, SHUTDOWN_TIMEOUT="2", RETRY_DELAY="1")
    wait_until(lambda: twilio.texts)
    began = time.monotonic()
    for _ in range(2):  # impatience gives it no more time, and no less
        scheduler.popen.terminate()
        time.sleep(0.5)
    assert scheduler.wait(10) == 0
    assert 2 <= time.monotonic() - began < 5
    stopped = again(message)
    assert (stopped.status, stopped.in_doubt, stopped.attempts) == (Status.SCHEDULED, 1, 1)
    assert stopped.last_error == STOPPED
    assert CarrierState.get().trouble is None, "the carrier is not to blame"
    twilio.go_on.set()
    schedule("--every", "0.1", CARRIER_URL=twilio.url)
    wait_until(lambda: again(message).status == Status.SENT)
    assert len(twilio.texts) == 1


def test_a_log_that_nobody_can_read_stops_nothing(database_url, twilio, tmp_path):
    with open("/dev/full", "w") as full:
        environ = os.environ | {"DATABASE_URL": database_url, "CARRIER_URL": twilio.url} | ALWAYS
        words = [sys.executable, ROOT / "scheduler.py", "--every", "0.1"]
        scheduler = subprocess.Popen(words, env=environ, cwd=tmp_path, stdout=full, stderr=full)
        try:
            store()
            wait_until(lambda: twilio.texts)
        finally:
            scheduler.terminate()
        assert scheduler.wait(30) == 0


# How fast it sends


class Clocked(WebhookServer):
    """Note when each text came, but for those beyond `most` within any second.

    After `good` texts, there is a page in front of it.
    """

    most = good = 10_000

    def __init__(self):
        super().__init__()
        self.taken, self.refused, self.guard = [], 0, threading.Lock()

    def take(self, request):
        with self.guard:
            now = time.monotonic()
            if len(self.taken) >= self.most and now - self.taken[-self.most][0] < 1:
                self.refused += 1
                return Answer(429)
            self.taken.append((now, self.read(request)[1]))
            is_good = len(self.taken) <= self.good
        return super().take(request) if is_good else Answer(503, b"<html>")


clocked = served(Clocked)


stand_in = served(Clocked)


RATE = 20
TEXTS = {"x" * 160: 1, "é€" * 100: 2, "д" * 200: 3}
"""The parts of texts: one in GSM 03.38, one with an escaped character, one in UCS-2."""


def most_within(seconds, taken):
    """Return the most parts that were taken within so many seconds."""
    return max(
        sum(TEXTS[text] for at, text in taken[number:] if at < first + seconds)
        for number, (first, _) in enumerate(taken)
    )


@pytest.mark.timed
@on_both
@pytest.mark.parametrize("seconds", [8, pytest.param(30, marks=pytest.mark.soak)])
def test_three_schedulers_keep_to_the_rate_and_use_it_though_one_is_killed(
    schedule, clocked, seconds
):
    for text in TEXTS:
        store_many(RATE * seconds, clock.now(), key=key_named(f"key {text[0]}"), message=text)
    environ = {"CARRIER_URL": clocked.url, "SEND_RATE": f"{RATE}/s", "CLAIM_TIMEOUT": "10"}
    schedulers = [schedule("--every", "5", **environ) for _ in range(3)]
    wait_until(lambda: clocked.taken)
    began = clocked.taken[0][0]
    wait_until(lambda: time.monotonic() > began + seconds / 3)
    schedulers[0].kill()
    wait_until(lambda: time.monotonic() > began + seconds)
    assert [each.terminate() for each in schedulers[1:]] == [0, 0]
    used = sum(TEXTS[text] for at, text in clocked.taken if at <= began + seconds)
    most = most_within(1, clocked.taken)
    print(f"{used / RATE / seconds:.2f} of the rate, {most} parts in a second")
    assert {text for _, text in clocked.taken} == {*TEXTS}
    assert most <= 2 * RATE
    assert most_within(10, clocked.taken) <= 11 * RATE
    assert used >= 0.8 * RATE * seconds
    assert statuses().get(Status.SENDING, 0) <= 8, "only the killed one has claimed any"


@pytest.mark.timed
@pytest.mark.parametrize("words", [["--every", "5"], []])
def test_of_what_a_carrier_takes_at_least_seven_tenths_are_used(schedule, clocked, words):
    store_many(80, clock.now(), max_retries=0)
    clocked.most = 10
    scheduler = schedule(*words, CARRIER_URL=clocked.url)
    wait_until(lambda: statuses() == {Status.SENT: 80})
    assert (scheduler.terminate() if words else scheduler.wait()) == 0
    (first, *_), (last, *_) = clocked.taken[0], clocked.taken[-1]
    used = len(clocked.taken) / (1 + last - first) / clocked.most
    print(f"{used:.2f} of what the carrier takes, {clocked.refused} refused")
    assert len(clocked.taken) == 80
    assert clocked.refused > 0
    assert used >= 0.7
    assert Message.select().where(Message.attempts == 1).count() == 80


@pytest.mark.timed
def test_a_queue_goes_through_another_within_two_seconds_of_the_fifth_silence(
    schedule, clocked, stand_in
):
    clocked.good = 100
    store_many(2_000)
    schedule("--every", "5", CARRIER_URL=f"{clocked.url}#name=us {stand_in.url}#name=eu")
    asked = 5 + 2 * 8  # the five, what was under way, and what begins until they are recorded
    wait_until(lambda: len(stand_in.taken) >= 2_000 - 100 - asked)
    assert stand_in.taken[0][0] - clocked.taken[104][0] < 2
    sent = Message.select().where(Message.carrier == "us", Message.status == Status.SENT)
    assert sent.count() == 100
    assert CarrierState.get_by_id("us").is_down
    assert len(clocked.taken) <= 100 + asked + 5, "one text a pause"


@pytest.mark.timed
@pytest.mark.parametrize("every", ["5", "30"], ids=["while others wait", "between two passes"])
def test_an_urgent_text_goes_within_two_seconds(
    serve, schedule, start, twilio, database_url, every
):
    words = ("keys", "create", "codes", "--urgent", "--quiet-hours", "none", "--limit", "9/s")
    create = start("flask", *words, DATABASE_URL=database_url)
    assert create.wait() == 0, create.output
    web = serve(database_url, workers=1, **ALWAYS)
    for _ in range(6 if every == "5" else 0):
        store_many(500, clock.now(), message="news")
    process = schedule("--every", every, CARRIER_URL=twilio.url)
    wait_until(lambda: len(twilio.texts) > 20 or "nothing to do" in process.output)
    for number in range(3):
        began, text = time.monotonic(), f"code {number}"
        assert send(web, create.output.split()[-1], {"to": NEW_YORK, "message": text})[0] == 201
        wait_until(lambda: (NEW_YORK, text) in twilio.texts, 10)  # noqa: B023
        assert time.monotonic() - began < 3  # two, and what a busy machine adds
    assert process.terminate() == 0


# Whom it notifies


def awaiting():
    now = clock.now()
    key = key_named("app").id
    create("Hello", key=key, status=Status.QUEUED, send_at=now, manual_mode=True)


def test_single_passes_notify_and_tell_within_the_pass_and_do_not_repeat_it(
    schedule, people, app_key, receiver
):
    """They print their counts, and nothing else."""
    ApiKey.update(created_at=clock.now()).execute()  # or its first country is news
    awaiting()
    store(clock.now())
    counts = "1 waiting for approval"
    for told in (f"1 sent, {counts}", counts):
        one = schedule(NOTIFY_URL=people.url, CARRIER_URL="simulator:", LOG_LEVEL="WARNING")
        assert one.wait() == 0, one.output
        assert one.output.endswith(f" INFO counts - {told}\n")
        assert one.output.count("\n") == 1
        assert len(people.told) == 1
        assert receiver.types == ["sent"]
        assert Event.select().count() == 0


@pytest.mark.slow
@on_both
def test_a_key_that_leaked_tells_of_itself_within_ten_seconds(
    serve, schedule, people, key, database_url
):
    web = serve(database_url, workers=1)
    scheduler = schedule("--every", "5", NOTIFY_URL=people.url, CARRIER_URL="simulator:")
    ApiKey.update(created_at=clock.now() - 2 * DAY).execute()
    assert send(web, key, {"to": "+201001234567", "message": "Win!"})[0] == 201
    wait_until(lambda: people.told, 10)
    (told,) = people.told
    assert told.startswith("The key app texts Egypt (EG) for the first time. ")
    assert "flask keys pause app" in told
    assert [scheduler.terminate(), web.terminate()] == [0, 0]


def test_an_address_that_hangs_holds_up_no_text(schedule, people):
    awaiting()
    people.answer = HANG
    scheduler = schedule("--every", "0.2", NOTIFY_URL=people.url, CARRIER_URL="simulator:")
    wait_until(lambda: people.told)
    message = store(now=clock.now())
    wait_until(lambda: again(message).status == Status.SENT)
    assert "did not take a notice" not in scheduler.output, "it is not given up yet"
    assert scheduler.terminate() == 0


def looking(web):
    """Return the processes by which a web's workers notify people in place of a scheduler."""
    found = []
    for process in psutil.Process(web.popen.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended
            if process.cmdline()[-2:] == ["notify", "look"]:
                found.append(process.pid)
    return found


@pytest.mark.slow
@on_both
def test_the_web_notifies_once_that_no_scheduler_runs(serve, schedule, people, database_url):
    """Of four workers, as if on two machines, one starts one process: Apprise takes much memory."""
    CarrierState.record_pass(clock.now() - HOUR, {"": []})
    web, other = (serve(database_url, NOTIFY_URL=people.url) for _ in range(2))
    began = set()

    def has_told():
        began.update(looking(web) + looking(other))
        return people.told

    wait_until(has_told)
    end = time.monotonic() + dead_scheduler.LOOK_EVERY + 3  # each worker has looked again
    wait_until(lambda: has_told() and time.monotonic() > end)
    assert len(began) == 1
    (told,) = people.told
    assert told.startswith("no scheduler is running: one last ran at ")
    schedule("--every", "0.2", NOTIFY_URL=people.url)
    wait_until(lambda: len(people.told) == 2)
    assert people.texts[1][0] == "Text messages: over: no scheduler is running"
    assert [web.terminate(), other.terminate()] == [0, 0]
    assert " ERROR " not in web.output


# What it tells receivers of events

PUBLIC_URL = "https://sms.example.com"
QUICK = {"CLAIM_TIMEOUT": "2"}
KINDS = ("taken", "arrives", "lost", "refused", "stop", "shell", "desk", "old")
TOLD = Counter(
    {"sent": 3, "delivered": 1, "undelivered": 1, "failed": 1, "blocked": 1}
    | {"cancelled": 2, "expired": 1}
)


def test_all_that_can_become_of_texts_is_told_and_verified(
    settings, schedule, twilio, app_key, receiver, run
):
    to = {kind: f"+1212555{n}" for n, kind in enumerate(KINDS, 1100)}
    twilio.answers[to["refused"]] = refusal(21211)
    now, waits = clock.now(), {"status": Status.SCHEDULED, "send_at": clock.now() + DAY}
    old = {"send_at": now - 10 * DAY, "first_send_at": now - 10 * DAY}
    columns = {"stop": {"check_dnc": True} | waits, "shell": waits, "old": old}
    columns |= {"desk": {"manual_mode": True} | waits}
    texts = {kind: store(now, to=to[kind], **columns.get(kind, {})) for kind in KINDS}
    given = {"carrier_url": twilio.url, "public_url": PUBLIC_URL, "secret_key": "x" * 16}
    application = create_app(settings._replace(**given))
    visitor = Visitor(application)
    visitor.sign_in(ApiKey.issue("Olga", None, clock.now(), role=Role.OPERATOR))
    scheduler = schedule("--every", "0.2", CARRIER_URL=twilio.url, PUBLIC_URL=PUBLIC_URL)
    wait_until(lambda: statuses().get(Status.SENT) == 3)
    addresses = {form(request)["StatusCallback"] for request in twilio.requests}
    given = [message for kind, message in texts.items() if not columns.get(kind)]
    assert addresses == {f"{PUBLIC_URL}/carriers/twilio/status?m={each.id}" for each in given}

    def call_back(what, **said):
        path = f"/carriers/twilio/{what}"
        signed = of_twilio(PUBLIC_URL + path, said, twilio.token)
        assert application.test_client().post(path, **signed).status_code == 204

    for kind, word in (("arrives", "delivered"), ("lost", "undelivered")):
        sid = again(texts[kind]).carrier_reference
        call_back("status", MessageSid=sid, MessageStatus=word, To=to[kind])
    call_back("inbound", From=to["stop"], Body="STOP")
    run("messages", "cancel", str(texts["shell"].id))
    visitor.open()
    visitor.press("Refuse")
    wait_until(lambda: len(receiver.events) == sum(TOLD.values()))
    wait_until(lambda: not Event.select().count())
    assert Counter(receiver.types) == TOLD
    assert {*TOLD} == {*FINISHED}
    assert receiver.forged == []
    for event in receiver.events:
        data = event["data"]
        assert (data["reason"] is not None) == (data["status"] in ("failed", "undelivered")), data
        assert data["parts"] == 1
    assert scheduler.terminate() == 0
    secrets = (receiver.secret, "1212555", receiver.address)
    assert not [secret for secret in secrets if secret in scheduler.output]


@on_both
def test_schedulers_that_are_killed_all_the_time_double_no_text_and_lose_no_event(
    schedule, twilio, app_key, receiver
):
    """Twilio is asked about texts in doubt: with it, there are never two copies."""
    numbers = store_many(100, clock.now())
    schedulers = [schedule("--every", "0.1", CARRIER_URL=twilio.url, **QUICK) for _ in range(2)]
    for _ in range(3):
        time.sleep(random.uniform(0.8, 1.6))
        schedulers.pop(0).kill()
        schedulers.append(schedule("--every", "0.1", CARRIER_URL=twilio.url, **QUICK))
    wait_until(lambda: statuses() == {Status.SENT: 100}, 240)
    wait_until(lambda: not Event.select().count(), 120)
    assert sorted(twilio.numbers) == numbers
    told = {(event["data"]["message_id"], event["type"]) for event in receiver.events}
    assert told == {(str(message.id), "text_message.sent") for message in Message.select()}
    assert len({*receiver.ids}) == 100, "nothing was told that did not happen"
    assert receiver.forged == []


# What it is made of

FOOTPRINT = r"""
import json, pathlib, re, sys
sys.argv = ["scheduler.py"]
import scheduler
status = scheduler.main()
told = pathlib.Path("/proc/self/status").read_text()  # getrusage knows the parent's peak, too
peak = int(re.search(r"VmHWM:\s*(\d+)", told)[1]) // 1024
print(json.dumps({"status": status, "peak": peak, "modules": sorted(sys.modules)}))
"""


def test_the_scheduler_imports_no_web_and_no_names_of_places_and_stays_small(start, database_url):
    store()
    environ = ALWAYS | {"DATABASE_URL": database_url, "CARRIER_URL": "console:"}
    scheduler = start("python", "-c", FOOTPRINT, **environ)
    assert scheduler.wait() == 0, scheduler.output
    told = json.loads(scheduler.output.splitlines()[-1])
    assert told["status"] == 0
    unwanted = {"flask", "werkzeug", "marshmallow", "babel", "click", "gunicorn", "apprise"}
    unwanted |= {"phonenumbers.geocoder", "phonenumbers.geodata", "holidays"}
    unwanted |= {"app", "cli", "schemas"}
    loaded = {m for m in told["modules"] if m in unwanted or m.partition(".")[0] in unwanted}
    assert loaded == set()
    print(f"peak memory of a scheduler that sends: {told['peak']} MB")
    assert told["peak"] < 75
