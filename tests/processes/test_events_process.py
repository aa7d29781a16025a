"""The whole way of an event: real schedulers, a carrier, and receivers that verify it."""

import random
import time
from collections import Counter

from access.keys import ApiKey, Role
from app import create_app
from carrier_servers import HANG, refusal
from database import clock
from databases import on_both
from desk_visitor import Visitor
from events.outbox import Event, EventAddress
from models import FINISHED, Message, Status
from running import wait_until
from samples import DAY
from signed_callbacks import of_twilio
from stored_messages import again, key_named, statuses, store, store_many

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


def test_a_single_pass_tells_of_its_own_sends(schedule, twilio, app_key, receiver):
    store(clock.now())
    single = schedule(CARRIER_URL=twilio.url)
    assert single.wait() == 0
    assert receiver.types == ["sent"]
    assert Event.select().count() == 0
    assert "events" not in single.output, "it prints its counts, and nothing else"


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
