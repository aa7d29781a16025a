"""The wall clock was set back: what was noted before holds no longer than its kind can."""

import uuid
from datetime import timedelta

import pytest
from peewee import (
    BigAutoField,
    BigIntegerField,
    BooleanField,
    ForeignKeyField,
    IntegerField,
    TextField,
    UUIDField,
)

import models
from app import create_app
from databases import on_both
from fake_carrier import FOR_NOW, SLOWLY
from samples import ALWAYS_OPEN, DAY, HOUR, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from several_carriers import NamedCarrier
from signed_callbacks import SECRET, VONAGE, of_vonage
from stored_messages import again, decide_on, held, key_named, store, store_many
from texting import database
from texting.access.do_not_call import OptedOut
from texting.carriers import CarrierError
from texting.database import FEW
from texting.events.delivery import DELAYS
from texting.events.outbox import LONGEST_DELAY, Event
from texting.messages.attempts import Attempt
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import FURTHEST_AHEAD, SET_ASIDE, Message, Status
from texting.sending import outcomes
from texting.sending.carrier_state import CarrierState

LOST = CarrierError("no answer", in_doubt=True)
EARLY = 4 * SECOND  # within what the clocks of machines may differ by

AHEAD = {
    *("message.send_date", "message.first_send_at", "message.expires_at"),
    *("api_key.expires_at", "api_key.old_expires_at", "event_address.old_secret_until"),
    "carrier_state.retry_at",  # it moves with paused_at
}
"""Instants that can be as far ahead as they like."""

SHOWN = {
    *(
        "message.approved_at",
        "message.last_error_at",
        "message.receipt_at",
        "message.event_delivered_at",
    ),
    *("attempt.ended_at", "attempt.receipt_at", "reply.read_at", "event.at", "audit.at"),
    "audit.link_made_at",
    *("api_key.created_at", "api_key.revoked_at", "api_key.last_used_at", "api_key.paused_at"),
    *("do_not_call.added_at", "opt_out.added_at", "do_not_call_history.at"),
    *("do_not_call_history.said_at", "key_country.first_at", "key_country.told_at"),
    "known_place.imported_at",
}
"""Instants that are only shown, or say since when a person has wanted something."""


def name_of(field):
    return f"{field.model._meta.table_name}.{field.name}"


INSTANTS = {
    name_of(field): field
    for table in models.TABLES
    for field in table._meta.sorted_fields
    if isinstance(field, database.InstantField)
}
BOUND = {name: field for name, field in INSTANTS.items() if field.longest is not None}

LONGEST = {
    "message.send_at": 60 * DAY,  # an opening; see below for retries
    "attempt.ask_at": 30 * SECOND,
    "event.next_try_at": 1.2 * timedelta(seconds=DELAYS[-1]),
    "outgoing_notice.next_try_at": 5 * MINUTE,
    "retention.next_at": MINUTE,
    "reply.due_at": 5 * MINUTE,
    "wrong_clock.until": DAY,  # STALLED_AFTER at most
}
"""How far ahead a scheduler puts instants; all others say when something has happened."""


LARGE = {
    "carrier_state.rate_used_until",  # in microseconds, and dated back by itself
    *("key_use.begins", "key_use.used", "wrong_clock.ahead"),
}
"""Numbers as large as an instant: of these, a scheduler puts the first ahead."""


def test_no_instant_is_stored_as_a_mere_number():
    fields = (field for table in models.TABLES for field in table._meta.sorted_fields)
    assert {name_of(each) for each in fields if type(each) is BigIntegerField} == LARGE


def test_every_instant_has_a_longest_or_is_known_to_need_none():
    assert {*BOUND} | AHEAD | SHOWN == {*INSTANTS}
    assert not {*BOUND} & (AHEAD | SHOWN)


def test_no_instant_may_be_further_ahead_than_a_scheduler_puts_it():
    longest = {name: field.longest for name, field in BOUND.items() if field.longest}
    assert longest == LONGEST


LEAST = {database.InstantField: TUESDAY_NOON, TextField: "x", IntegerField: 1, BooleanField: False}
ENDED = {"status": Status.SENT, "finished_at": TUESDAY_NOON}
OF_A_KIND = {
    "message.finished_at": ENDED,
    "message.send_at": {"status": Status.SCHEDULED},
    "attempt.begun_at": {"result": "taken"},
    "attempt.ask_at": {"result": "unclear"},
    "event.next_try_at": {"tries": 1},
}
"""What else a row has that such an instant is about."""


def row_with(field, at):
    """Store a row with an instant; return how to read that."""
    table, name = field.model, field.name
    columns = OF_A_KIND.get(name_of(field), {}) | {name: at}
    if table is Message:
        made = store(at, **{"send_at": TUESDAY_NOON} | columns)
        return lambda: getattr(again(made), name)
    if table is Attempt:
        columns |= {"message": store(at).id, "claim_number": 1}
    values = {}
    for each in table._meta.sorted_fields:
        if isinstance(each, BigAutoField) or each.null or each.default is not None:
            continue
        if isinstance(each, ForeignKeyField):
            values[each.name] = key_named("app").id
        elif isinstance(each, UUIDField):
            values[each.name] = uuid.uuid4()
        else:
            values[each.name] = next(v for kind, v in LEAST.items() if isinstance(each, kind))
    table.insert(values | columns).execute()
    return lambda: table.select(field).where(field.is_null(False)).scalar()


@on_both
@pytest.mark.parametrize("name", BOUND)
def test_what_lies_too_far_ahead_counts_as_now_and_what_is_seconds_early_stays(database_url, name):
    field = BOUND[name]
    for ahead in (field.longest + EARLY, field.longest + DAY):
        at = TUESDAY_NOON + ahead
        read = row_with(field, at)
        while field.model.date_back(TUESDAY_NOON):
            pass
        dated = TUESDAY_NOON + (field.longest if name == "attempt.ask_at" else timedelta(0))
        assert read() == (at if ahead < field.longest + DAY else dated)
        for table in (Attempt, Message, field.model):
            table.delete().execute()


# What a scheduler does that finds its clock set back

STEPS = pytest.mark.parametrize("step", [HOUR, DAY, 365 * DAY], ids=["an hour", "a day", "a year"])


@on_both
@STEPS
def test_a_pause_lasts_as_long_as_if_it_began_now(run_pass, carrier, step):
    store(TUESDAY_NOON + step)
    carrier.answers[NEW_YORK] = SLOWLY
    run_pass(TUESDAY_NOON + step)
    carrier.answers.clear()
    run_pass(TUESDAY_NOON)
    run_pass(TUESDAY_NOON + 29 * SECOND)
    assert len(carrier.texts) == 1
    assert run_pass(TUESDAY_NOON + 30 * SECOND)["sent"] == 1


def test_a_clock_that_was_seconds_early_changes_nothing(run_pass, carrier):
    store(TUESDAY_NOON)
    carrier.answers[NEW_YORK] = SLOWLY
    run_pass(TUESDAY_NOON + EARLY)
    carrier.answers.clear()
    run_pass(TUESDAY_NOON)
    assert CarrierState.get_by_id("fake").paused_at == TUESDAY_NOON + EARLY


@STEPS
def test_a_used_up_rate_recovers_in_a_second(run_pass, step):
    store(TUESDAY_NOON + step)
    store(TUESDAY_NOON + step)
    assert run_pass(TUESDAY_NOON + step, send_rate=2)["sent"] == 1
    assert run_pass(TUESDAY_NOON, send_rate=2)["sent"] == 0
    assert run_pass(TUESDAY_NOON + SECOND, send_rate=2)["sent"] == 1


@on_both
@STEPS
@pytest.mark.parametrize("asked_for", [None, -MINUTE, 90 * SECOND])
def test_a_retry_waits_as_if_its_attempt_had_failed_now(run_pass, carrier, step, asked_for):
    """It never goes before its send_date, which has not come by the clock that is right."""
    at = TUESDAY_NOON + (asked_for or -MINUTE)
    later = {"expires_at": TUESDAY_NOON + 400 * DAY, "max_retries": 9}
    message = store(at, send_date=asked_for and at, send_at=at, **later)
    carrier.answers[NEW_YORK] = FOR_NOW
    run_pass(TUESDAY_NOON + step, retry_delay=60)
    carrier.answers.clear()
    assert not run_pass(TUESDAY_NOON)["sent"]
    due = max(at, TUESDAY_NOON + MINUTE)
    assert abs(again(message).send_at - due) <= 6 * SECOND
    assert not run_pass(due - 7 * SECOND)["sent"]
    assert run_pass(due + 7 * SECOND)["sent"] == 1


@on_both
@STEPS
@pytest.mark.parametrize("asked_for", [None, 50 * SECOND])
def test_a_text_waits_no_longer_behind_an_equal_one(run_pass, askable, step, asked_for):
    """It never goes before its send_date, which has not come by the clock that is right."""
    store(TUESDAY_NOON + step, send_at=TUESDAY_NOON + step - SECOND)  # it is given first
    send_date = asked_for and TUESDAY_NOON + asked_for
    store(TUESDAY_NOON + step, send_date=send_date)
    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello", LOST)
    run_pass(TUESDAY_NOON + step, askable)
    askable.answers.clear()
    for seconds in (0, 31, 49):
        run_pass(TUESDAY_NOON + seconds * SECOND, askable)
    assert len(askable.texts) == (1 if asked_for else 2)
    run_pass(TUESDAY_NOON + 62 * SECOND, askable)
    assert len(askable.texts) == 2


@on_both
@STEPS
@pytest.mark.parametrize(("moved", "asked_for"), [("queued", 0), ("sending", 0), ("sending", 50)])
def test_a_text_that_broke_waits_as_if_it_were_set_aside_now(
    run_pass, broken, step, moved, asked_for
):
    """It was never claimed, because that is what broke. Nor does it go before its send_date."""
    at = TUESDAY_NOON + asked_for * MINUTE
    due = {"send_at": at, "first_send_at": at, "expires_at": TUESDAY_NOON + 400 * DAY}
    message = store(status=Status.SCHEDULED, send_date=at if asked_for else None, **due)
    broken("message", message, f"NEW.status = '{moved}'")
    run_pass(TUESDAY_NOON + step)
    broken.mend()
    assert not run_pass(TUESDAY_NOON)["sent"]
    goes_at = max(at, TUESDAY_NOON + SET_ASIDE)
    assert again(message).send_at == goes_at
    assert run_pass(goes_at)["sent"] == 1


@on_both
@STEPS
def test_a_doubt_that_could_not_be_taken_over_waits_no_longer(run_pass, askable, broken, step):
    """Its scheduler died, and its row broke."""
    message = held(Status.SENDING, carrier="fake", expires_at=TUESDAY_NOON + 400 * DAY)
    Heartbeat.delete().execute()
    broken("attempt", Attempt.get(), "NEW.result = 'unclear'")
    run_pass(TUESDAY_NOON + step, askable)
    assert Attempt.get().ask_at > TUESDAY_NOON + step
    broken.mend()
    askable.taken.append((NEW_YORK, "Hello"))
    for minutes in (0, 1, 2):
        run_pass(TUESDAY_NOON + minutes * MINUTE, askable)
    assert again(message).status == Status.SENT


def test_what_a_person_has_just_approved_can_still_be_undone(run_pass):
    """It waits for ten seconds, by a clock that was a little ahead."""
    run_pass(TUESDAY_NOON + MINUTE)
    message = store(manual_mode=True)
    approved_at = TUESDAY_NOON + 6 * SECOND
    not_before = approved_at + 10 * SECOND
    assert decide_on(message).decide(True, "Ann", approved_at, not_before)
    run_pass(TUESDAY_NOON)
    assert again(message).send_at == not_before


def test_a_retry_whose_attempt_failed_by_the_right_clock_stays_where_it_is(run_pass):
    retry = {"send_at": TUESDAY_NOON + 25 * MINUTE, "due_since": TUESDAY_NOON - MINUTE}
    message = held(Status.SCHEDULED, last_error_at=TUESDAY_NOON, **retry)
    run_pass(TUESDAY_NOON - 4 * SECOND)
    while Message.date_back(TUESDAY_NOON - 4 * SECOND):
        pass
    assert again(message).send_at == retry["send_at"]


def test_a_carrier_is_asked_what_it_took_before_a_text_is_given_again(run_pass, askable):
    store(TUESDAY_NOON + 365 * DAY)
    askable.answers[NEW_YORK] = lambda: askable.take(NEW_YORK, "Hello", LOST)
    run_pass(TUESDAY_NOON + 365 * DAY, askable)
    for minutes in (0, 1, 2):
        run_pass(TUESDAY_NOON + minutes * MINUTE, askable)
    assert again(Message.get()).status == Status.SENT
    assert len(askable.texts) == 1
    assert askable.asked[0][2] < TUESDAY_NOON, "it lists what it took since then"


def test_an_event_that_was_never_tried_is_tried_at_once(run_pass):
    key = key_named("app")
    new = {"webhook_id": "evt_1", "message_id": uuid.uuid4(), "key": key, "body": "{}"}
    Event.create(at=TUESDAY_NOON + DAY, next_try_at=TUESDAY_NOON + DAY, **new)
    Event.date_back(TUESDAY_NOON)
    assert Event.get().next_try_at == TUESDAY_NOON


def test_the_next_try_of_an_event_is_no_further_than_its_longest_delay():
    assert timedelta(seconds=1.2 * DELAYS[-1]) == LONGEST_DELAY


def test_the_next_try_of_a_text_is_no_further_than_a_clock_could_be_ahead():
    assert max(outcomes.retry_delay(99, 86_400) for _ in range(100)) < FURTHEST_AHEAD


def test_what_ends_after_the_step_is_redacted_in_its_time(run_pass):
    run_pass(TUESDAY_NOON + 365 * DAY, keep_texts=DAY)
    run_pass(TUESDAY_NOON, keep_texts=DAY)
    ended = held(Status.SENT, finished_at=TUESDAY_NOON)
    run_pass(TUESDAY_NOON + DAY + SECOND, keep_texts=DAY)
    assert again(ended).message is None


def test_a_send_date_stays_as_it_was_asked_for(run_pass):
    send_date = TUESDAY_NOON + 61 * DAY
    run_pass(TUESDAY_NOON + DAY)
    message = store(send_date=send_date, send_at=send_date, status=Status.SCHEDULED)
    run_pass(TUESDAY_NOON)
    assert again(message).send_at == send_date


# The carrier's clock


@pytest.fixture
def hear(settings, at):
    """Have Vonage hand over what a recipient wrote at an instant, and its time if it tells one."""
    settings = settings._replace(
        carrier_url=VONAGE, public_url="http://sms.example.com", **ALWAYS_OPEN
    )
    client = create_app(settings).test_client()

    def write(text, now=TUESDAY_NOON, told=None):
        at(now)
        fields = {"msisdn": NEW_YORK[1:], "text": text, "messageId": uuid.uuid4().hex}
        if told:
            fields["message-timestamp"] = f"{told:%Y-%m-%d %H:%M:%S}"
        answer = client.open("/carriers/vonage/inbound", **of_vonage(fields, SECRET))
        assert answer.status_code == 204

    return write


@on_both
def test_a_word_whose_carrier_has_a_wrong_clock_counts_as_now(hear):
    hear("STOP")
    hear("START", told=TUESDAY_NOON + DAY)
    assert not OptedOut.lists(NEW_YORK)
    hear("STOP", TUESDAY_NOON + SECOND)
    assert OptedOut.lists(NEW_YORK)


def test_a_start_without_a_time_ends_a_stop_whose_carrier_is_seconds_ahead(hear):
    hear("STOP", told=TUESDAY_NOON + EARLY)
    hear("START")
    assert not OptedOut.lists(NEW_YORK)


@on_both
@pytest.mark.parametrize(
    ("started", "stopped", "is_listed"),
    [
        (0.7, 0, True),  # within a second they count as they come
        (0.7, 1, True),
        (1, 1, True),
        (1, 0, False),
        (1.7, 0, False),
    ],
)
def test_a_stop_of_the_same_second_comes_after_a_start_without_a_time(
    hear, started, stopped, is_listed
):
    now = TUESDAY_NOON + started * SECOND
    hear("START", now)
    hear("STOP", now, told=TUESDAY_NOON + stopped * SECOND)
    assert OptedOut.lists(NEW_YORK) == is_listed


@on_both
def test_a_carrier_that_is_new_after_the_step_takes_the_texts_that_wait(run_pass):
    store(TUESDAY_NOON + HOUR)
    run_pass(TUESDAY_NOON + HOUR)
    more = 2 * FEW  # so that a pass may end before all is dated back
    store_many(more, TUESDAY_NOON + HOUR, status=Status.SENT, finished_at=TUESDAY_NOON + HOUR)
    new = NamedCarrier("new")
    store(TUESDAY_NOON)
    assert run_pass(TUESDAY_NOON, new)["sent"] == 1
    assert len(new.texts) == 1
