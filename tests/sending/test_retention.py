"""KEEP_TEXTS and KEEP_MESSAGES: what is old is forgotten within the passes, a little at a time."""

from collections import Counter
from datetime import timedelta
from functools import partial

import pytest

from databases import on_both, on_sqlite
from own_threads import at_once
from query_plans import reads_whole, steps
from samples import DAY, LONDON, MILLISECOND, MINUTE, NEIGHBOUR, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import again, decide_on, key_named, store, store_many, take_over
from texting import carriers
from texting.access.audit import Audit
from texting.access.do_not_call import LastReply
from texting.carriers import Receipt
from texting.database import PAGE, db
from texting.events.outbox import Event, EventAddress
from texting.messages import receipts
from texting.messages.model import Message, Status
from texting.replies import inbound
from texting.replies.model import Reply
from texting.replies.opt_outs import OptOutMessage
from texting.sending import retention
from texting.sending.retention import PURGE, REDACT, Retention, by_age

pytestmark = on_both

KEPT = 90 * DAY
ENDED = (
    *(Status.SENT, Status.DELIVERED, Status.UNDELIVERED, Status.FAILED),
    *(Status.BLOCKED, Status.CANCELLED, Status.EXPIRED),
)


@pytest.fixture
def run_pass(settings, at):
    """Make a pass at an instant with these settings, without a carrier."""

    def once(now=TUESDAY_NOON, **kept):
        at(now)
        return Scheduler(settings._replace(**kept), None).run_pass()

    return once


def ended(age, status=Status.SENT, **columns):
    finished_at = TUESDAY_NOON - age
    return store(status=status, finished_at=finished_at, now=finished_at - DAY, **columns)


def texts():
    return Message.select().where(Message.message.is_null(False)).count()


@pytest.mark.parametrize("status", ENDED)
def test_what_ended_loses_its_text_and_then_goes_when_it_is_too_old_and_not_before(
    run_pass, status
):
    gone, at_edge, old, new = (
        ended(age, status) for age in (2 * KEPT + MILLISECOND, 2 * KEPT, KEPT + MILLISECOND, KEPT)
    )
    run_pass(keep_texts=KEPT, keep_messages=2 * KEPT)
    texts = {message.id: message.message for message in Message.select()}
    assert texts == {at_edge.id: None, old.id: None, new.id: "Hello"}
    assert gone.id not in texts
    stored = again(old)
    assert (stored.to, stored.response, stored.request_digest) == (None,) * 3
    assert (stored.status, stored.finished_at) == (status, old.finished_at)


def test_by_default_everything_is_kept(run_pass):
    ended(10_000 * DAY)
    run_pass()
    assert texts() == 1
    assert Retention.select().count() == 0


def test_an_event_that_waits_stays_and_nothing_is_in_the_audit(run_pass):
    key = key_named("app")
    EventAddress.set(key, "http://127.0.0.1:1/", TUESDAY_NOON)
    message = store(key=key, now=TUESDAY_NOON - 100 * DAY)
    assert decide_on(message).cancel("shell", TUESDAY_NOON - 100 * DAY)
    before = Audit.select().count()
    run_pass(keep_texts=DAY, keep_messages=2 * DAY)
    assert Message.select().count() == 0
    assert [event.message_id for event in Event.select()] == [message.id]
    assert Audit.select().count() == before


def test_replies_go_with_the_shorter_of_both(run_pass):
    for n, age in enumerate((KEPT + MINUTE, KEPT)):
        at = TUESDAY_NOON - age
        Reply.create(id=f"{n:032x}", carrier="x", number=LONDON, text="Hi", at=at, received_at=at)
    before = Audit.select().count()
    run_pass(keep_messages=2 * KEPT)
    assert Reply.select().count() == 2
    run_pass(TUESDAY_NOON + MINUTE / 2, keep_texts=2 * KEPT, keep_messages=2 * KEPT)
    assert Reply.select().count() == 2
    run_pass(TUESDAY_NOON + MINUTE, keep_texts=KEPT + MINUTE, keep_messages=2 * KEPT)
    assert [reply.at for reply in Reply.select()] == [TUESDAY_NOON - KEPT]
    assert Audit.select().count() == before


@pytest.mark.parametrize("how", ["a pass", "purge", "redact"])
def test_what_a_callback_is_known_by_is_forgotten_with_the_replies_of_its_time(
    run_pass, run, at, how
):
    for n, age in enumerate((KEPT + MINUTE, KEPT)):
        with db.atomic():
            OptOutMessage.note([f"fake {n}", f"fake signature {n}"], TUESDAY_NOON - age)
    at(TUESDAY_NOON + SECOND)
    if how == "a pass":
        run_pass()
        assert OptOutMessage.select().count() == 4
        run_pass(keep_texts=KEPT + SECOND, keep_messages=2 * KEPT)
    else:
        at(TUESDAY_NOON + SECOND)
        run("messages", how, "--older-than", str(KEPT.days + 1))
        assert OptOutMessage.select().count() == 4
        at(TUESDAY_NOON)
        run("messages", how, "--older-than", str(KEPT.days))
    assert sorted(each.id for each in OptOutMessage.select()) == ["fake 1", "fake signature 1"]


def test_what_callbacks_are_known_by_goes_in_batches_too(run_pass, monkeypatch):
    monkeypatch.setattr("texting.database.tables.FEW", 2)
    with db.atomic():
        OptOutMessage.note([f"fake {n}" for n in range(5)], TUESDAY_NOON - 2 * KEPT)
    for seconds in (0, 5, 10):
        run_pass(TUESDAY_NOON + seconds * SECOND, keep_texts=KEPT)
    assert OptOutMessage.select().count() == 0


def test_many_go_in_batches_and_none_is_left(run_pass):
    store_many(2 * PAGE + 7, status=Status.SENT, finished_at=TUESDAY_NOON - 100 * DAY)
    store_many(PAGE, status=Status.FAILED, finished_at=TUESDAY_NOON - 200 * DAY)
    store_many(3, status=Status.FAILED, finished_at=TUESDAY_NOON - DAY)
    run_pass(keep_texts=KEPT)
    assert texts() == 3
    run_pass(TUESDAY_NOON + MINUTE, keep_messages=KEPT)
    assert Message.select().count() == 3


def test_once_all_is_gone_somebody_looks_again_after_a_minute(run_pass):
    run_pass(keep_texts=KEPT)
    ended(KEPT - MINUTE / 2)
    run_pass(TUESDAY_NOON + MINUTE - timedelta(milliseconds=1), keep_texts=KEPT)
    assert texts() == 1
    run_pass(TUESDAY_NOON + MINUTE, keep_texts=KEPT)
    assert texts() == 0


def test_what_ended_by_a_receipt_that_was_kept_is_forgotten_though_that_came_long_before(
    run_pass, without_waiting
):
    """The scheduler died with the text in hand, and none ran for two days."""
    message = store(status=Status.SENDING, carrier="us")
    taken = [Receipt("1", True, None, NEW_YORK)]
    receipts.record_receipts(taken, TUESDAY_NOON + MINUTE, "us")
    now = TUESDAY_NOON + 2 * DAY
    take_over(now)
    run_pass(now, keep_texts=DAY)
    assert receipts.look_again(NEW_YORK, now)
    run_pass(now + DAY, keep_texts=DAY)
    assert again(message).message == "Hello"
    run_pass(now + DAY + MINUTE, keep_texts=DAY)
    assert again(message).message is None


def test_with_its_replies_a_number_that_was_never_listed_is_forgotten_whole(run_pass):
    """That it said START last is kept beside them; not its number for ever."""
    rules = inbound.ReplyRules("fake", "asked", None, None)
    said = (NEW_YORK, "START", KEPT + MILLISECOND), (LONDON, "START", KEPT + DAY)
    said += (LONDON, "START", KEPT), (NEIGHBOUR, "STOP", KEPT + DAY)
    for number, word, age in said:
        inbound.record([carriers.IncomingText(number, word, None)], TUESDAY_NOON - age, rules)
    run_pass(keep_texts=KEPT)
    assert [reply.number for reply in Reply.select()] == [LONDON]
    assert {each.number for each in LastReply.select()} == {LONDON, NEIGHBOUR}


def test_a_longer_time_and_then_a_shorter_one_forget_what_they_say(run_pass):
    ended(100 * DAY)
    second = ended(50 * DAY)
    run_pass(keep_texts=KEPT)
    run_pass(TUESDAY_NOON + MINUTE, keep_texts=2 * KEPT)
    run_pass(TUESDAY_NOON + 2 * MINUTE, keep_texts=KEPT)
    assert again(second).message == "Hello"
    run_pass(TUESDAY_NOON + 3 * MINUTE, keep_texts=40 * DAY)
    assert again(second).message is None


def test_schedulers_at_once_do_not_stand_in_each_others_way(settings, at):
    at(TUESDAY_NOON)
    store_many(3 * PAGE, status=Status.SENT, finished_at=TUESDAY_NOON - 100 * DAY)
    kept = settings._replace(keep_texts=KEPT, keep_messages=2 * KEPT)

    done = Counter()
    while some := sum(
        at_once(*[partial(retention.redact_and_purge, kept, TUESDAY_NOON)] * 4), Counter()
    ):
        done += some
    assert done == {"redacted": 3 * PAGE}
    assert texts() == 0


def test_a_batch_is_redacted_at_a_time(settings, at):
    at(TUESDAY_NOON)
    store_many(PAGE + 7, status=Status.SENT, finished_at=TUESDAY_NOON - 100 * DAY)
    kept = settings._replace(keep_texts=KEPT)
    done = [retention.redact_and_purge(kept, TUESDAY_NOON) for _ in range(3)]
    assert done == [{"redacted": PAGE}, {"redacted": 7}, {}]


def test_what_was_redacted_before_is_not_read_again(run_pass):
    """In a year, that is most of the table."""
    store_many(20, status=Status.SENT, finished_at=TUESDAY_NOON - 100 * DAY)
    run_pass(keep_texts=KEPT)
    assert Retention.get().redacted_until == TUESDAY_NOON - KEPT
    since = Retention.get().redacted_until
    assert reads_whole(lambda: by_age(REDACT, since, TUESDAY_NOON - KEPT + DAY)) == []
    assert reads_whole(lambda: by_age(PURGE, None, TUESDAY_NOON - 2 * KEPT)) == []


LIMIT = TUESDAY_NOON - KEPT
FORGET = {
    "KEEP_TEXTS": lambda: by_age(REDACT, None, LIMIT),
    "KEEP_MESSAGES": lambda: by_age(PURGE, None, LIMIT),
    "redact": lambda: retention.redact(LIMIT, TUESDAY_NOON),
    "purge": lambda: retention.purge(LIMIT, TUESDAY_NOON),
}


@on_sqlite
@pytest.mark.parametrize("forget", FORGET)
def test_forgetting_texts_looks_at_no_others_to_their_number(database_url, forget):
    """A service that watches itself sends thousands to one."""
    taken = []
    for others in (20, 2000):
        store_many(others, status=Status.SENT, finished_at=TUESDAY_NOON)
        store_many(20, status=Status.SENT, finished_at=TUESDAY_NOON - 100 * DAY)
        Message.update(to=NEW_YORK).where(Message.to.is_null(False)).execute()
        taken.append(steps(FORGET[forget]))
    assert taken[1] < 2 * taken[0]


def test_usage_is_the_same_without_texts(run_pass, run):
    ended(100 * DAY, to=NEW_YORK, parts=2, country="US")
    before = run("usage", "--month", "2025-11", "--json")
    assert '"parts": 2' in before
    run_pass(keep_texts=KEPT)
    assert run("usage", "--month", "2025-11", "--json") == before
