"""An event that breaks its claim or its record is tried later, and all others are delivered."""

import logging

import pytest

from broken_rows import BAD, unreadable
from carrier_servers import Answer
from databases import on_both
from receivers import cancelled, many
from running import wait_until
from samples import HOUR, MINUTE, SECOND, TUESDAY_NOON
from stored_messages import key_named
from texting.database import clock
from texting.events import delivery
from texting.events.outbox import Event, EventAddress

pytestmark = on_both


def errors(caplog):
    return [each.message for each in caplog.records if each.levelno >= logging.ERROR]


def of(event):
    """When it is tried next, and how often it was."""
    row = Event.select(Event.next_try_at, Event.tries).where(Event.id == event.id).tuples()
    return row.get()


def test_an_event_that_cannot_be_read_is_put_off_and_all_others_are_delivered(
    app_key, receiver, deliver, caplog
):
    many(12)
    bad = Event.select().order_by(Event.id).get()
    unreadable("event", bad)
    deliver()
    assert len(receiver.events) == 11
    (line,) = errors(caplog)
    assert f"event {bad.id} is put off" in line
    assert of(bad)[0] > clock.now() + HOUR
    assert Event.select().count() == 1


@pytest.mark.parametrize("answer", [Answer(204), Answer(500)], ids=["taken", "not taken"])
def test_an_answer_that_breaks_its_record_stops_no_other_and_counts_as_a_failed_try(
    app_key, receiver, deliver, broken, caplog, answer, monkeypatch
):
    many(12)
    bad = Event.select().order_by(Event.id).get()
    receiver.answer = answer
    if answer.status == 204:
        broken("event", bad, "TRUE", "DELETE")
    else:
        failed = Event.failed

        def fail(event, answer, *rest):
            if event.id == bad.id and answer == "HTTP 500":
                raise KeyError(BAD)
            return failed(event, answer, *rest)

        monkeypatch.setattr(Event, "failed", fail)
    deliver()
    assert len(receiver.ids) == 12
    assert Event.select().count() == (1 if answer.status == 204 else 12)
    assert of(bad)[1] == 1
    assert bad.webhook_id in "".join(errors(caplog))
    assert len(errors(caplog)) == 1
    assert BAD not in caplog.text


def test_neither_stops_the_events_of_other_keys(app_key, receivers, broken, delivering):
    other = receivers()
    EventAddress.set(key_named("other"), other.url, TUESDAY_NOON)
    many(2)
    for event in Event.select():
        broken("event", event, "TRUE", "DELETE") if event.id % 2 else unreadable("event", event)
    cancelled("other")
    wait_until(lambda: len(other.events) == 1)


def test_an_event_that_can_never_be_recorded_is_given_up_in_the_end(app_key, receiver, broken, at):
    """Or its receiver would get it for ever."""
    cancelled()
    bad = Event.get()
    broken("event", bad, "TRUE", "DELETE")
    deliveries = delivery.Deliveries(300, lambda *_: None)
    for _ in range(len(delivery.DELAYS) + 1):
        at(Event.get().next_try_at + SECOND)
        deliveries.exchange(clock.now())
        deliveries.wait(30)
        deliveries.exchange(clock.now())
    assert Event.get().given_up_at is not None
    assert len(receiver.ids) == len(delivery.DELAYS) + 1


def test_what_was_given_up_or_claimed_meanwhile_is_not_put_off(app_key):
    cancelled()
    event, now = Event.get(), clock.now()
    (claimed,) = Event.claim(app_key.id, 1, now, now + MINUTE, None)
    Event.put_off(event.id, now, now + HOUR)
    assert of(event) == (claimed.next_try_at, 0)
    EventAddress.switch_off(app_key.id, "by an operator", now)
    Event.put_off(event.id, now, now + HOUR)
    assert Event.backlogs()[app_key.id][:2] == (0, 1)
