"""The whole way of an event: real schedulers, a carrier, and receivers that verify it."""

import os
import random
import re
import shutil
import signal
import time
from collections import Counter

import pytest

from access.keys import ApiKey, Role
from app import create_app
from carrier_servers import HANG, Answer, refusal
from database import clock
from databases import on_both, on_sqlite
from desk_visitor import Visitor
from events.outbox import Event, EventAddress
from models import FINISHED, Message, Status
from running import ROOT, Process, free_port, wait_until
from samples import DAY
from signed_callbacks import of_twilio
from stored_messages import decide_on, key_named, statuses, store, store_many

pytestmark = on_both

PUBLIC_URL = "https://sms.example.com"
QUICK = {"CLAIM_TIMEOUT": "2"}


@pytest.fixture
def npm_receiver(npm_package, database_url, tmp_path):
    """The receiver that docs/events.md prints for Node.js, as the address of the key `npm`."""
    modules = npm_package("standardwebhooks", "1.1.1")
    (code,) = re.findall(r"```js\n(.*?)```", (ROOT / "docs/events.md").read_text(), re.S)
    file, port = tmp_path / "receiver.js", str(free_port())
    told = "console.log(event.type);"  # also of what comes after a newer one
    file.write_text(code.replace("const { message_id", f"{told} const {{ message_id"))
    key = key_named("npm")
    EventAddress.set(key, f"http://127.0.0.1:{port}/", clock.now())
    environ = {"NODE_PATH": str(modules), "PORT": port}
    secret = EventAddress.of(key).secret
    process = Process([shutil.which("node"), file], tmp_path, EVENTS_SECRET=secret, **environ)
    yield process
    process.kill()


class Year:
    """Everything that can become of the messages of a key: one of each kind."""

    def __init__(self, name, key, twilio):
        self.key, self.twilio = key_named(name), twilio
        numbers = (f"+1212555{key}{n:03}" for n in range(100, 200))
        kinds = ("taken", "arrives", "lost", "refused", "stop", "shell", "desk", "old")
        self.to = dict(zip(kinds, numbers, strict=False))
        twilio.answers[self.to["refused"]] = refusal(21211)
        later = clock.now() + DAY
        waits = {"status": Status.SCHEDULED, "send_at": later, "key": self.key}
        for kind in ("taken", "arrives", "lost", "refused"):
            store(clock.now(), to=self.to[kind], key=self.key)
        store(clock.now(), to=self.to["stop"], check_dnc=True, **waits)
        self.by_shell = store(clock.now(), to=self.to["shell"], **waits)
        store(clock.now(), to=self.to["desk"], manual_mode=True, **waits)
        old = clock.now() - 10 * DAY
        store(old, to=self.to["old"], key=self.key, send_at=old, first_send_at=old)

    def reference(self, kind):
        return Message.get(Message.to == self.to[kind]).carrier_reference

    def go_on(self, client, visitor, run):
        """Let receipts, a STOP, the desk and the shell do the rest."""
        url = f"{PUBLIC_URL}/carriers/twilio/"
        for kind, word in (("arrives", "delivered"), ("lost", "undelivered")):
            said = {"MessageSid": self.reference(kind), "MessageStatus": word}
            said["To"] = self.to[kind]
            signed = of_twilio(f"{url}status", said, self.twilio.token)
            assert client.post("/carriers/twilio/status", **signed).status_code == 204
        said = {"From": self.to["stop"], "Body": "STOP"}
        signed = of_twilio(f"{url}inbound", said, self.twilio.token)
        assert client.post("/carriers/twilio/inbound", **signed).status_code == 204
        run("messages", "cancel", str(self.by_shell.id))
        visitor.open()
        visitor.press("Refuse")


TOLD = Counter(
    {"sent": 3, "delivered": 1, "undelivered": 1, "failed": 1, "blocked": 1}
    | {"cancelled": 2, "expired": 1}
)


def test_all_seven_kinds_are_told_and_verified(
    request, settings, schedule, twilio, app_key, receiver, run
):
    years = [Year("app", 1, twilio)]
    npm = request.getfixturevalue("npm_receiver") if shutil.which("npm") else None
    if npm:
        years.append(Year("npm", 2, twilio))
    given = {"carrier_url": twilio.url, "public_url": PUBLIC_URL, "secret_key": "x" * 16}
    application = create_app(settings._replace(**given))
    client = application.test_client()
    visitor = Visitor(application)
    visitor.sign_in(ApiKey.issue("Olga", None, clock.now(), role=Role.OPERATOR))
    scheduler = schedule("--every", "0.2", CARRIER_URL=twilio.url, PUBLIC_URL=PUBLIC_URL)
    wait_until(lambda: statuses().get(Status.SENT) == 3 * len(years))
    for year in years:
        year.go_on(client, visitor, run)
    total = sum(TOLD.values())
    wait_until(lambda: len(receiver.events) == total)
    wait_until(lambda: not Event.select().count())
    assert Counter(receiver.types) == TOLD
    assert {*TOLD} == {*FINISHED}
    assert receiver.forged == []
    for event in receiver.events:
        data = event["data"]
        reasons = {"failed", "undelivered"}
        assert (data["reason"] is not None) == (data["status"] in reasons), data
        assert data["parts"] == 1
    if npm:
        wait_until(lambda: npm.output.count("text_message.") == total)
        assert Counter(re.findall(r"text_message\.(\w+)", npm.output)) == TOLD
    assert scheduler.terminate() == 0
    secrets = (receiver.secret, "1212555", receiver.address)
    assert not [secret for secret in secrets if secret in scheduler.output]


def test_a_single_pass_tells_of_its_own_sends(schedule, twilio, app_key, receiver):
    store(clock.now())
    single = schedule(CARRIER_URL=twilio.url)
    assert single.wait() == 0
    assert receiver.types == ["sent"]
    assert Event.select().count() == 0
    assert "events" not in single.output, "it prints its counts, and nothing else"


@pytest.mark.parametrize(
    ("late", "ours", "left"),
    [
        (500, Answer(503, headers={"Retry-After": "3600"}), (1, 0)),
        (500, Answer(410), (0, 1)),
        (500, Answer(204), (0, 0)),
        (204, Answer(500), (0, 0)),
        (204, Answer(410), (0, 0)),
    ],
)
def test_who_stood_still_for_longer_than_its_lease_decides_only_that_it_was_understood(
    schedule, app_key, receiver, late, ours, left
):
    receiver.open.clear()
    stopped = schedule("--every", "60")
    assert decide_on(store(clock.now())).cancel("shell", clock.now())
    wait_until(lambda: receiver.under_way)
    time.sleep(0.5)  # it should hold no lock of the database
    os.kill(stopped.popen.pid, signal.SIGSTOP)
    receiver.answer = Answer(late)
    receiver.open.set()
    wait_until(lambda: not receiver.under_way)
    receiver.answer = ours
    Event.update(next_try_at=clock.now()).execute()  # the end of the lease
    assert schedule().wait() == 0
    decided = [event.__data__ for event in Event.select()]
    os.kill(stopped.popen.pid, signal.SIGCONT)
    if late == 500:
        wait_until(lambda: "was not delivered, HTTP 500" in stopped.output)
        assert [event.__data__ for event in Event.select()] == decided
    else:
        wait_until(lambda: not Event.select().count())
    assert Event.standings().get(app_key.id, (0, 0))[:2] == left
    assert stopped.terminate() == 0
    assert len(receiver.ids) == 2
    assert len({*receiver.ids}) == 1


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


@on_sqlite
def test_a_bad_receiver_holds_up_no_text_and_no_other_key(
    schedule, twilio, app_key, receiver, receivers
):
    receiver.answer = HANG
    other = receivers()
    EventAddress.set(key_named("other"), other.url, clock.now())
    old = {"first_send_at": clock.now() - 10 * DAY, "send_at": clock.now() - 10 * DAY}
    store_many(300, clock.now(), **old)
    store_many(200, clock.now(), key=key_named("other"))
    schedule("--every", "0.1", CARRIER_URL=twilio.url)
    wait_until(lambda: len(other.events) == 200)
    assert len(twilio.texts) == 200
    assert Event.select().count() > 250, "the bad receiver's still wait"
