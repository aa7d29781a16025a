"""What changes while an event is under way: the address, --off, a retry; and second rounds."""

from contextlib import contextmanager
from datetime import timedelta

import pytest

from carrier_servers import Answer
from databases import on_both
from receivers import cancelled, many
from running import wait_until
from samples import DAY, HOUR, MINUTE, SECOND, TUESDAY_NOON
from stored_messages import key_named
from texting.database import clock
from texting.events.delivery import DELAYS, Deliveries
from texting.events.outbox import Event, EventAddress
from texting.messages.model import Message
from texting.monitoring import health

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]

GONE = "the receiver answered 410 (Gone)"


@contextmanager
def under_way(receiver):
    """A try whose receiver has it, and answers at the end of the block; the pass ends then."""
    receiver.open.clear()
    single = Deliveries(300, Message.record_notified, once=True)
    single.start()
    wait_until(lambda: receiver.under_way)
    yield single
    receiver.open.set()
    single.finish()


# Another address


@pytest.mark.parametrize(("status", "tells_the_new_one"), [(410, True), (500, True), (204, False)])
def test_the_answer_of_an_old_address_says_nothing_of_the_new_one(
    app_key, receiver, receivers, run, deliver, at, settings, status, tells_the_new_one
):
    other = receivers()
    receiver.answer = Answer(status)
    at(TUESDAY_NOON)
    cancelled()
    with under_way(receiver):
        run("keys", "events", "app", other.url)
    assert EventAddress.get().off is None
    assert Event.backlogs().get(app_key.id, (0, 0))[:2] == (int(tells_the_new_one), 0)
    problems = health.read(TUESDAY_NOON + 2 * HOUR, settings).problems()
    assert "receiver" not in [problem.kind for problem in problems]
    at(TUESDAY_NOON + MINUTE)
    deliver()
    assert other.types == ["cancelled"] * tells_the_new_one
    assert other.ids == receiver.ids * tells_the_new_one
    assert Event.select().count() == 0
    cancelled()
    deliver()
    assert len(other.events) == 1 + tells_the_new_one
    assert len(receiver.requests) == 1


def test_what_waits_while_the_address_changes_goes_to_the_new_one(
    app_key, receiver, receivers, run, delivering
):
    other = receivers()
    receiver.open.clear()
    many(30)
    wait_until(lambda: receiver.under_way == 2)
    run("keys", "events", "app", other.url)
    wait_until(lambda: len(other.events) == 28)
    receiver.open.set()
    wait_until(lambda: not Event.select().count())
    assert (len(receiver.requests), len(other.requests)) == (2, 28)


@pytest.mark.parametrize("status", [204, 503])
def test_an_answer_that_comes_late_is_of_its_own_event_alone(
    app_key, receiver, receivers, run, deliver, at, status
):
    """A scheduler stood still for longer than its lease: another has delivered its event."""
    other = receivers()
    receiver.answer = Answer(status)
    at(TUESDAY_NOON)
    cancelled()
    with under_way(receiver) as late:
        run("keys", "events", "app", other.url)
        at(TUESDAY_NOON + HOUR)
        deliver()
        assert Event.select().count() == 0
        other.open.clear()
        other.answer = Answer(500)
        cancelled()
        wait_until(lambda: other.under_way)
        receiver.open.set()
        wait_until(lambda: receiver.url not in late.receivers)
        other.open.set()
    assert other.types == ["cancelled"]
    event = Event.get()
    assert (event.tries, event.last_answer) == (1, "HTTP 500")


def standing_still(lease):
    """A scheduler that does nothing between what `begin` and `end` have it do."""
    return Deliveries(lease, Message.record_notified)


def begin(scheduler, receiver):
    """Claim what is due; wait until this receiver has one more request."""
    before = len(receiver.requests)
    scheduler.exchange(clock.now())
    wait_until(lambda: len(receiver.requests) > before)


def end(scheduler, receiver):
    """Let this receiver answer, and record it."""
    receiver.open.set()
    while not scheduler.unrecorded:
        scheduler.wait(1)
    scheduler.exchange(clock.now())


@pytest.fixture
def lapsed(app_key, receiver, receivers, run, at):
    """Two schedulers that try the same event: the first has it no longer, after this lease.

    `lapsed(300)` returns it, the second, and the receiver of the second.
    """

    def claim_twice(lease):
        first, second, other = standing_still(lease), standing_still(lease), receivers()
        at(TUESDAY_NOON)
        cancelled()
        receiver.open.clear()
        begin(first, receiver)
        run("keys", "events", "app", other.url)
        at(TUESDAY_NOON + lease * SECOND)
        other.open.clear()
        begin(second, other)
        return first, second, other

    return claim_twice


def waiting():
    """What the rows say of the events that wait, and of their addresses."""
    columns = Event.tries, Event.next_try_at, Event.last_answer, Event.given_up_at
    addresses = EventAddress.select(EventAddress.failures, EventAddress.off)
    return [*Event.select(*columns).tuples(), *addresses.tuples()]


@pytest.mark.parametrize("lease", [5, 300])
@pytest.mark.parametrize("status", [204, 410, 500])
def test_the_end_of_a_try_changes_nothing_of_what_another_has_claimed(
    lapsed, receiver, lease, status, at, caplog
):
    first, second, other = lapsed(lease)
    before = waiting()
    caplog.clear()
    receiver.answer = Answer(status)
    end(first, receiver)
    assert waiting() == before
    assert caplog.messages == []
    assert len(other.requests) == 1, "nobody tries it once more meanwhile"
    end(second, other)
    assert Event.select().count() == 0
    assert len({*receiver.ids, *other.ids}) == 1


@pytest.mark.parametrize("status", [204, 500])
def test_neither_does_it_once_the_others_try_has_failed(lapsed, receiver, status):
    first, second, other = lapsed(300)
    other.answer = Answer(500)
    end(second, other)
    before = waiting()
    assert before[0][0] == 1
    receiver.answer = Answer(status)
    end(first, receiver)
    assert waiting() == before


@pytest.mark.parametrize(("status", "left"), [(204, []), (500, [1])])
def test_a_try_whose_lease_is_over_counts_while_nobody_else_has_claimed_it(
    app_key, receiver, at, status, left
):
    late = standing_still(5)
    at(TUESDAY_NOON)
    cancelled()
    receiver.answer = Answer(status)
    begin(late, receiver)
    at(TUESDAY_NOON + MINUTE)
    end(late, receiver)
    assert [event.tries for event in Event.select()] == left


def test_an_event_is_not_taken_for_an_earlier_one_that_is_still_under_way(
    app_key, receiver, receivers, run, deliver, at
):
    """Another scheduler has delivered that, and nothing is left of it but a late answer."""
    late, other = standing_still(5), receivers()
    at(TUESDAY_NOON)
    cancelled()
    receiver.open.clear()
    begin(late, receiver)
    at(TUESDAY_NOON + MINUTE)
    run("keys", "events", "app", other.url)
    deliver()
    assert (len(other.events), Event.select().count()) == (1, 0)
    run("keys", "events", "app", receiver.url)
    cancelled()
    begin(late, receiver)
    end(late, receiver)
    while Event.select().count():
        late.wait(1)
        late.exchange(clock.now())
    assert len({*receiver.ids}) == 2


def test_a_try_counts_though_the_clock_was_set_back_meanwhile(app_key, receiver, at):
    scheduler = standing_still(300)
    cancelled()
    at(TUESDAY_NOON + 1000 * DAY)
    receiver.open.clear()
    begin(scheduler, receiver)
    at(TUESDAY_NOON + 900 * DAY)
    assert Event.date_back(clock.now()) == 1
    end(scheduler, receiver)
    assert Event.select().count() == 0
    assert len(receiver.requests) == 1


def test_the_end_of_a_try_from_before_a_retry_counts_for_none_of_its_tries(
    app_key, receiver, run, deliver, at
):
    receiver.answer = Answer(500)
    at(TUESDAY_NOON)
    cancelled()
    deliver()
    at(TUESDAY_NOON + MINUTE)
    scheduler = standing_still(300)
    receiver.open.clear()
    begin(scheduler, receiver)
    run("keys", "events", "app", "--off")
    run("keys", "events", "app", receiver.url)
    run("events", "retry")
    scheduler.stop()  # or it would begin the first of them
    end(scheduler, receiver)
    assert Event.get().tries == 0


# Switched off


@pytest.mark.parametrize(("status", "left"), [(500, 1), (410, 1), (204, 0)])
def test_what_is_under_way_at_a_switch_off_is_given_up_unless_understood(
    app_key, receiver, run, deliver, at, status, left
):
    receiver.answer = Answer(status)
    at(TUESDAY_NOON)
    cancelled()
    with under_way(receiver):
        run("keys", "events", "app", "--off")
    assert Event.backlogs().get(app_key.id, (0, 0))[:2] == (0, left)
    assert "by an operator" in run("keys", "events", "app")
    receiver.answer = Answer(204)
    run("keys", "events", "app", receiver.url)
    at(TUESDAY_NOON + DAY)
    deliver()
    assert len(receiver.requests) == 1, "a new address brings nothing back"
    assert run("events", "retry", "--key", "app").startswith(f"{left} event")
    deliver()
    assert len(receiver.requests) == 1 + left
    assert len({*receiver.ids}) == 1
    assert Event.select().count() == 0


def test_off_on_and_410_twice(app_key, receiver, run, deliver, caplog):
    for times in (1, 2):
        receiver.answer = Answer(410)
        cancelled()
        deliver()
        assert EventAddress.get().off == GONE
        assert caplog.messages[-1].endswith("HTTP 410: the address is switched off")
        assert Event.backlogs()[app_key.id] == (0, times, None)
        receiver.answer = Answer(204)
        run("keys", "events", "app", receiver.url)
        cancelled()
        deliver()
        assert len(receiver.events) == times
        run("keys", "events", "app", "--off")
        cancelled()
        deliver()
        assert len(receiver.requests) == 2 * times, "nothing is told while it is off"
        run("keys", "events", "app", receiver.url)
    assert run("events", "retry") == "2 events to be sent again\n"
    deliver()
    assert len(receiver.events) == 4


# A second round


def test_what_was_given_up_begins_its_ten_tries_anew(app_key, receiver, run, deliver, at):
    assert DELAYS == (5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)
    receiver.answer = Answer(500)
    now = TUESDAY_NOON
    at(now)
    cancelled()
    for times in (1, 2):
        for number, delay in enumerate((*DELAYS, None), start=1):
            deliver()
            event = Event.get()
            assert (event.tries, len(receiver.requests)) == (number, 10 * (times - 1) + number)
            if delay:
                assert delay <= (event.next_try_at - now).total_seconds() <= 1.2 * delay + 0.001
                at(event.next_try_at - SECOND)
                deliver()
                assert Event.get().tries == number, "it was tried too early"
                now = event.next_try_at
                at(now)
        assert (event.next_try_at, event.given_up_at) == (None, now)
        now += 29 * DAY
        at(now)
        assert run("events", "retry") == "1 event to be sent again\n"
    assert len({*receiver.ids}) == 1
    receiver.answer = Answer(204)
    deliver()
    assert receiver.types == ["cancelled"]


def test_what_was_given_up_again_is_kept_thirty_days_from_then(app_key, receiver, run, deliver, at):
    receiver.answer = Answer(410)
    at(TUESDAY_NOON)
    cancelled()
    deliver()
    for days in (29, 58):
        at(TUESDAY_NOON + timedelta(days=days))
        run("keys", "events", "app", receiver.url)
        assert run("events", "retry") == "1 event to be sent again\n"
        deliver()
    given_up_at = TUESDAY_NOON + 58 * DAY
    assert Event.get().given_up_at == given_up_at
    Event.forget(given_up_at + 30 * DAY)
    assert Event.select().count() == 1
    Event.forget(given_up_at + 30 * DAY + SECOND)
    assert Event.select().count() == 0


def test_a_retry_of_everything_leaves_what_is_off_and_is_one_row_of_the_audit(
    app_key, receiver, run, deliver
):
    EventAddress.set(key_named("shop"), receiver.url, clock.now())
    receiver.secret, receiver.answer = None, Answer(410)
    for name in ("app", "shop"):
        cancelled(name)
    deliver()
    run("keys", "events", "shop", receiver.url)
    assert run("events", "retry") == "1 event to be sent again\n"
    assert run("events", "retry") == "0 events to be sent again\n"
    assert run("audit").count("events retried") == 1


def test_a_retry_while_the_last_try_is_under_way_changes_nothing(app_key, receiver, run, deliver):
    """It was not given up."""
    receiver.answer = Answer(500)
    cancelled()
    with under_way(receiver):
        assert run("events", "retry") == "0 events to be sent again\n"
    assert Event.get().tries == 1
