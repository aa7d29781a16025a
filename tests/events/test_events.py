"""The outbox: every change into a final state is one event, and nothing else is."""

import json
from collections import Counter

import pytest

from databases import on_both
from samples import DAY, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import (
    FAKE,
    again,
    claim,
    decide_on,
    held,
    key_named,
    store,
    store_many,
    take_over,
)
from texting.access.keys import ApiKey
from texting.carriers import Receipt
from texting.database import db
from texting.events.outbox import Event, EventAddress
from texting.messages import model, receipts, waiting
from texting.messages.attempts import Attempt
from texting.messages.model import FINISHED, Message, Status
from texting.sending import retention
from texting.sending.outcomes import Outcome

pytestmark = pytest.mark.usefixtures("database_url")

LATER = TUESDAY_NOON + DAY
URL = "http://127.0.0.1:9/events"


@pytest.fixture
def app_key():
    """The key of stored messages, with an address."""
    key = key_named("app")
    EventAddress.set(key, URL, TUESDAY_NOON)
    return key


def bodies():
    """What the events say, in the order in which they were written."""
    return [json.loads(event.body) for event in Event.select().order_by(Event.id)]


def told():
    """The message and the status of each event."""
    return [(body["data"]["message_id"], body["data"]["status"]) for body in bodies()]


# One transition


def promote(message):
    waiting.promote(LATER)


def expire(message):
    waiting.expire(LATER + 30 * DAY)


def block(message):
    waiting.block_number(NEW_YORK, LATER, check_dnc="always")


def receipt(delivered):
    def record(message):
        Attempt.update(reference="SM1").where(Attempt.message == message.id).execute()
        receipts.record_receipts(
            [Receipt("SM1", delivered, None if delivered else "no phone")], LATER, FAKE
        )

    return record


def found(message):
    for copy in Attempt.select().where(Attempt.message == message.id, Attempt.result.is_null()):
        receipts.found(copy, ["SM1"], LATER, FAKE)


TRANSITIONS = {
    "promote": promote,
    "expire": expire,
    "block": block,
    "take over": lambda m: take_over(LATER),
    "claim": lambda m: claim(10),
    "approve": lambda m: decide_on(m).approve("shell", LATER),
    "refuse": lambda m: decide_on(m).decide(False, "desk", LATER),
    "cancel": lambda m: decide_on(m).cancel("shell", LATER),
    "retry": lambda m: decide_on(m).retry(LATER, 3 * DAY),
    "settle": lambda m: m.apply_waiting(Outcome(Status.FAILED, "busy"), LATER),
    "put back": lambda m: Message.put_back([m]),
    "sent": lambda m: receipts.record_accepted({m.id: "SM1"}, LATER, FAKE),
    "found": found,
    "delivered": receipt(True),
    "undelivered": receipt(False),
    **{
        f"apply {status}": lambda m, status=status: m.apply(Outcome(status, "busy"), LATER)
        for status in Status
        if status not in (*model.TAKEN, Status.SENDING)
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRANSITIONS)
def test_a_change_into_a_final_state_is_one_event_and_nothing_else_is(app_key, name):
    expected = []
    for status in Status:
        for approved in (True, False):
            finished_at = TUESDAY_NOON if status in FINISHED else None
            given = {"approved": approved, "finished_at": finished_at}
            message = held(status, first_send_at=TUESDAY_NOON, **given)
            TRANSITIONS[name](message)
            became = again(message).status
            if status == Status.SENDING and name in ("delivered", "undelivered"):
                expected.append((str(message.id), "sent"))  # the receipt shows that, too
            if became != status and became in FINISHED:
                expected.append((str(message.id), became))
            Message.delete().where(Message.id == message.id).execute()
    assert told() == expected


@pytest.mark.slow
def test_the_transitions_reach_every_final_state():
    """Or the test above would miss one."""
    reached = set()
    for transition in TRANSITIONS.values():
        for status in Status:
            message = held(status, first_send_at=TUESDAY_NOON, finished_at=TUESDAY_NOON)
            transition(message)
            reached |= {again(message).status} - {status}
            Message.delete().where(Message.id == message.id).execute()
    assert {*FINISHED} <= reached


# In bulk


def statements(monkeypatch):
    """Record the statements from now on, by their first words."""
    seen, execute = [], db.obj.execute_sql
    monkeypatch.setattr(
        db.obj, "execute_sql", lambda sql, *rest: seen.append(sql[:20]) or execute(sql, *rest)
    )
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("has_address", [True, False])
def test_ten_thousand_that_expire_are_as_many_events_in_a_few_statements(monkeypatch, has_address):
    if has_address:
        EventAddress.set(key_named("app"), URL, TUESDAY_NOON)
    store_many(10_000, first_send_at=TUESDAY_NOON)
    seen = statements(monkeypatch)
    assert sum(iter(lambda: waiting.expire(LATER + 30 * DAY), 0)) == 10_000
    assert Event.select().count() == 10_000 * has_address
    changes = [each for each in seen if each.startswith(("UPDATE", "INSERT"))]
    assert len(changes) <= (200 if has_address else 20)  # twenty batches


@pytest.mark.parametrize("off", [True, False])
def test_a_key_without_an_address_that_is_on_costs_no_statement(monkeypatch, off):
    key = key_named("app")
    if off:
        EventAddress.set(key, URL, TUESDAY_NOON)
        EventAddress.switch_off(key.id, "by an operator", TUESDAY_NOON)
    store()
    seen = statements(monkeypatch)
    assert waiting.block_number(NEW_YORK, LATER, check_dnc="always") == 1
    assert [each for each in seen if each.startswith(("INSERT", "SELECT"))] == []
    assert told() == []


def test_each_key_is_told_of_its_own_messages_alone():
    one, other, none = (key_named(name) for name in ("one", "other", "none"))
    EventAddress.set(one, URL, TUESDAY_NOON), EventAddress.set(other, URL, TUESDAY_NOON)
    messages = [store(key=key, to=NEW_YORK) for key in (one, other, none)]
    waiting.block_number(NEW_YORK, LATER, check_dnc="always")
    assert {(event.key_id, event.message_id) for event in Event.select()} == {
        (one.id, messages[0].id),
        (other.id, messages[1].id),
    }


def test_what_is_rolled_back_is_not_told(app_key):
    message = store()
    with db.atomic() as transaction:
        decide_on(message).cancel("shell", LATER)
        transaction.rollback()
    assert again(message).status == Status.QUEUED
    assert told() == []


# What an event says


def test_an_event_says_what_the_contract_says(app_key):
    message = held(Status.SENDING, message="é" * 161, attempts=2)
    message.apply(Outcome(Status.FAILED, "no such number", counted=True), LATER)
    (event,) = Event.select()
    assert json.loads(event.body) == {
        "type": "text_message.failed",
        "timestamp": "2026-03-04T17:00:00.000Z",
        "data": {
            "message_id": str(message.id),
            "status": "failed",
            "reason": "no such number",
            "attempts": 3,
            "parts": 2,
        },
    }
    assert event.webhook_id.startswith("evt_")
    assert (event.message_id, event.type) == (message.id, "text_message.failed")
    assert NEW_YORK not in event.body
    assert "é" not in event.body


@pytest.mark.parametrize("status", [Status.BLOCKED, Status.EXPIRED, Status.CANCELLED])
def test_an_error_of_an_earlier_try_is_no_reason(app_key, status):
    message = held(Status.SENDING, last_error="busy", last_error_at=TUESDAY_NOON)
    message.apply(Outcome(status), LATER)
    assert [body["data"]["reason"] for body in bodies()] == [None]


@pytest.mark.parametrize("delivered", [True, False])
def test_a_receipt_before_the_yes_gives_both_the_yes_first(app_key, delivered):
    message, final = held(Status.SENDING), "delivered" if delivered else "undelivered"
    receipts.record_receipts([Receipt("SM1", delivered, None)], TUESDAY_NOON, FAKE)
    receipts.record_accepted({message.id: "SM1"}, LATER, FAKE)
    assert told() == [(str(message.id), "sent"), (str(message.id), final)]
    sent_at, received_at = (body["timestamp"] for body in bodies())
    assert sent_at == "2026-03-04T17:00:00.000Z"
    assert received_at > sent_at, "or receivers would take the yes for the last word"


def test_a_receipt_is_told_of_when_it_was_recorded(app_key):
    message = store(status=Status.SENT, finished_at=TUESDAY_NOON, carrier_reference="SM1")
    receipts.record_receipts([Receipt("SM1", False, "no phone")], LATER, FAKE)
    ((body),) = bodies()
    assert body["timestamp"] == "2026-03-04T17:00:00.000Z"
    assert body["data"]["reason"] == "no phone"
    assert body["data"]["message_id"] == str(message.id)


def test_a_message_tried_again_reaches_a_state_again_and_that_is_another_event(app_key):
    message = held(Status.SENDING)
    message.apply(Outcome(Status.FAILED, "busy", counted=True), TUESDAY_NOON)
    assert decide_on(message).retry(TUESDAY_NOON, 3 * DAY)
    waiting.promote(LATER)
    (message,) = claim(1)
    message.apply(Outcome(Status.FAILED, "busy", counted=True), LATER)
    assert [status for _, status in told()] == ["failed", "failed"]
    assert [body["data"]["attempts"] for body in bodies()] == [1, 1]
    assert len({event.webhook_id for event in Event.select()}) == 2


def test_an_event_outlives_its_message_and_its_text(app_key):
    message = store()
    decide_on(message).cancel("shell", TUESDAY_NOON)
    assert retention.redact(LATER, LATER) == 1
    assert retention.purge(LATER, LATER) == 1
    assert [body["data"]["parts"] for body in bodies()] == [1]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"parts": 3}, 3),  # what was stored counts
        ({"parts": 3, "message": None, "to": None}, 3),  # redacted since
    ],
)
def test_an_event_has_the_parts_that_were_stored_with_the_message(app_key, columns, told):
    store(status=Status.SENT, finished_at=TUESDAY_NOON, carrier_reference="SM1", **columns)
    receipts.record_receipts([Receipt("SM1", True, None)], LATER, FAKE)
    assert [body["data"]["parts"] for body in bodies()] == [told]


def test_what_a_carrier_said_in_odd_characters_is_told(app_key):
    message = held(Status.SENDING)
    message.apply(Outcome(Status.FAILED, "a\0b\ud800 ‮ é 🎉 \"'\\"), TUESDAY_NOON)
    assert bodies()[0]["data"]["reason"] == "a\ufffdb\ufffd ‮ é 🎉 \"'\\"


# The address


def test_the_secret_is_made_with_the_first_address_and_stays(app_key):
    secret = EventAddress.of(app_key).secret
    assert secret.startswith("whsec_")
    EventAddress.switch_off(app_key.id, "by an operator", TUESDAY_NOON)
    EventAddress.set(app_key, "http://127.0.0.1:9/other", TUESDAY_NOON)
    address = EventAddress.of(app_key)
    assert (address.secret, address.off) == (secret, None)


# Claims


def test_an_event_is_claimed_once_until_its_lease_ends(app_key):
    for _ in range(5):
        decide_on(store()).cancel("shell", TUESDAY_NOON)
    until = LATER + SECOND
    first = Event.claim(app_key.id, 3, LATER, until, None)
    rest = Event.claim(app_key.id, 9, LATER, until, None)
    assert Counter(event.id for event in (*first, *rest)).most_common(1)[0][1] == 1
    assert len(first) == 3
    assert len(rest) == 2
    assert len(Event.claim(app_key.id, 9, until, until + SECOND, None)) == 5


def test_a_try_that_outlasts_its_lease_counts_unless_another_has_claimed(app_key):
    decide_on(store()).cancel("shell", TUESDAY_NOON)
    (mine,) = Event.claim(app_key.id, 1, LATER, LATER + SECOND, None)
    (others,) = Event.claim(app_key.id, 1, LATER + SECOND, LATER + 2 * SECOND, None)
    assert not mine.failed("HTTP 500", LATER + DAY, LATER)
    assert not mine.delivered()
    assert others.failed("HTTP 503", LATER + DAY, LATER)
    event = Event.get()
    assert (event.tries, event.last_answer, event.next_try_at) == (1, "HTTP 503", LATER + DAY)
    assert not others.delivered()
    (again,) = Event.claim(app_key.id, 1, LATER + DAY, LATER + 2 * DAY, None)
    assert again.delivered()
    assert Event.select().count() == 0


# How many wait


@on_both
@pytest.mark.parametrize(("first", "then"), [(TUESDAY_NOON, LATER), (LATER, TUESDAY_NOON)])
def test_keys_that_had_one_name_after_another_stand_together(app_key, first, then):
    """A revoked key is told of its messages, too."""
    for now in (LATER, first):
        decide_on(store(key=app_key)).cancel("shell", now)
    app_key.revoke(TUESDAY_NOON)
    ApiKey.issue("app", None, TUESDAY_NOON)
    heir, shop = ApiKey.named("app"), key_named("shop")
    for key in (heir, shop):
        EventAddress.set(key, URL, TUESDAY_NOON)
        decide_on(store(key=key)).cancel("shell", then)
    EventAddress.switch_off(shop.id, "by an operator", LATER)
    told = {app_key.id: (2, 0, first), heir.id: (1, 0, then), shop.id: (0, 1, None)}
    assert Event.backlogs() == told
    assert Event.by_name() == {"app": (3, 0, TUESDAY_NOON), "shop": (0, 1, None)}
