"""Reports that name their message: they show that the carrier has it, whatever else is known."""

import uuid
from functools import partial
from itertools import permutations

import pytest

from databases import on_both, on_postgres
from own_threads import at_once, before_commit
from samples import DAY, LONDON, MINUTE, TUESDAY_NOON
from stored_messages import SENDER, again, claim, decide_on, held, store, take_over
from texting.carriers import Receipt, Shown
from texting.carriers.alphabets import count_parts
from texting.messages import doubts, receipts, waiting
from texting.messages.attempts import Attempt, Result
from texting.messages.early_receipts import EarlyReceipt
from texting.messages.model import Message, Status
from texting.replies import inbound

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]

US, EU = "us", "eu"
SOON, LATER = TUESDAY_NOON + MINUTE, TUESDAY_NOON + DAY
CLAIMED = {"claimed_by": SENDER, "claimed_at": TUESDAY_NOON, "claimed_for": "us"}
DOUBTFUL = {"in_doubt": 1, "in_doubt_with": "us", "in_doubt_since": TUESDAY_NOON, "attempts": 1}
WHEREVER = {
    "it waits": DOUBTFUL | {"status": Status.SCHEDULED},
    "it is due": DOUBTFUL | {"status": Status.QUEUED},
    "it was given up": DOUBTFUL | {"status": Status.FAILED, "finished_at": TUESDAY_NOON},
    "it was cancelled": DOUBTFUL | {"status": Status.CANCELLED, "finished_at": TUESDAY_NOON},
    "it is given again": DOUBTFUL | CLAIMED | {"status": Status.SENDING, "carrier": "us"},
    "its answer is not recorded": CLAIMED | {"status": Status.SENDING, "carrier": "us"},
}


def in_doubt(**columns):
    return store(**WHEREVER["it waits"] | columns)


def shown(message, reference="SM1", **more):
    return Shown(reference, str(getattr(message, "id", message)), **more)


def last_word(message, delivered, reference="SM1", **more):
    why = None if delivered else "off"
    return Receipt(reference, delivered, why, message_id=str(message.id), **more)


def report(*said, carrier=US, now=SOON):
    inbound.record_reports(said, now, "asked", carrier)


def became(message):
    found = again(message)
    return found.status, found.carrier_reference


def results(message):
    return [each.result for each in Attempt.of_messages([message.id])[message.id]]


@pytest.mark.parametrize("columns", WHEREVER.values(), ids=WHEREVER)
@pytest.mark.parametrize(
    ("say", "status"),
    [
        (shown, Status.SENT),
        (partial(last_word, delivered=True), Status.DELIVERED),
        (partial(last_word, delivered=False), Status.UNDELIVERED),
    ],
)
def test_a_report_settles_at_once_whether_the_carrier_has_a_text(columns, say, status):
    message = store(**columns)
    for _ in range(2):
        report(say(message))
        assert became(message) == (status, "SM1")
        assert again(message).attempts == 1
        assert Result.TAKEN in results(message)
    assert not EarlyReceipt.select().exists()


def test_what_is_settled_is_not_asked_about_nor_sent_again():
    message = in_doubt()
    assert doubts.to_ask(US, LATER, 9)
    report(shown(message))
    assert not doubts.to_ask(US, LATER, 9)
    waiting.promote(LATER)
    assert claim(9, carrier="us") == []
    assert not decide_on(message).cancel("Ann", LATER)
    assert again(message).in_doubt == 0


@pytest.mark.parametrize(
    "order", [*permutations(["shown", "yes", "delivered", "undelivered"])], ids="-".join
)
def test_in_whatever_order_they_come_the_last_word_counts(order):
    message = store(**WHEREVER["its answer is not recorded"])
    say = {
        "shown": lambda: report(shown(message)),
        "yes": lambda: receipts.record_accepted({message.id: "SM1"}, SOON, US, {message.id: 1}),
        "delivered": lambda: report(last_word(message, True)),
        "undelivered": lambda: report(last_word(message, False)),
    }
    for step in order:
        say[step]()
    assert became(message) == (Status.DELIVERED, "SM1")
    assert again(message).attempts == 1
    assert results(message) == [Result.TAKEN]
    assert not EarlyReceipt.select().exists()


def test_a_scheduler_that_dies_afterwards_puts_nothing_in_doubt():
    message = store(**WHEREVER["its answer is not recorded"])
    report(shown(message))
    take_over(SOON)
    assert became(message) == (Status.SENT, "SM1")
    assert again(message).in_doubt == 0


# What a report must not do


@pytest.mark.parametrize("status", [Status.QUEUED, Status.SCHEDULED, Status.FAILED])
@pytest.mark.parametrize("say", [shown, partial(last_word, delivered=True)])
def test_a_message_that_was_given_to_no_carrier_is_not_sent(status, say):
    message = held(status, finished_at=TUESDAY_NOON if status == Status.FAILED else None)
    report(say(message))
    assert became(message) == (status, None)


@pytest.mark.parametrize("columns", WHEREVER.values(), ids=WHEREVER)
@pytest.mark.parametrize("say", [shown, partial(last_word, delivered=True)])
def test_a_message_of_another_carrier_is_not_its(columns, say):
    message = store(**columns)
    before = results(message)
    report(say(message), carrier=EU)
    assert became(message) == (columns["status"], None)
    assert results(message) == before


@pytest.mark.parametrize("say", [shown, partial(last_word, delivered=True)])
def test_a_reference_that_is_another_texts_settles_no_doubt(say):
    """It is that one's report, whatever message is named."""
    message, of = in_doubt(), {"status": Status.SENT, "finished_at": TUESDAY_NOON}
    other = store(carrier_reference="SM1", carrier="us", to=LONDON, **of)
    report(say(message))
    assert became(message) == (Status.SCHEDULED, None)
    assert became(other) == (Status.SENT if say is shown else Status.DELIVERED, "SM1")


@pytest.mark.parametrize("say", [shown, partial(last_word, delivered=False)])
def test_a_message_that_was_sent_keeps_its_reference(say):
    of = {"status": Status.SENT, "finished_at": TUESDAY_NOON}
    message = store(carrier_reference="SM1", carrier="us", **of)
    report(say(message, reference="SM2"))
    assert became(message) == (Status.SENT, "SM1")
    assert results(message) == [Result.TAKEN]
    assert not EarlyReceipt.select().exists()


@pytest.mark.parametrize("say", [shown, partial(last_word, delivered=True)])
def test_a_report_on_the_text_before_a_retry_is_not_of_the_one_after_it(say):
    of = {"status": Status.UNDELIVERED, "finished_at": TUESDAY_NOON}
    message = store(carrier_reference="SM1", carrier="us", **of)
    assert decide_on(message).retry(TUESDAY_NOON, 3 * DAY)
    report(say(message))
    assert became(message)[0] == Status.SCHEDULED
    Message.update(status=Status.SENDING, claim_number=2).execute()
    Attempt.create(message=message, claim_number=2, begun_at=TUESDAY_NOON, carrier="us")
    report(say(message))
    assert became(message)[0] == Status.SENDING
    assert results(message) == [Result.TAKEN, None]
    report(shown(message, "SM2"))
    assert became(message) == (Status.SENT, "SM2")


def test_a_first_text_that_was_in_doubt_counts_though_a_person_retried_it():
    message = store(**WHEREVER["it was given up"])
    assert decide_on(message).retry(TUESDAY_NOON, 3 * DAY)
    report(shown(message))
    assert became(message) == (Status.SENT, "SM1")
    report(last_word(message, True))
    assert became(message) == (Status.DELIVERED, "SM1")


def test_two_copies_have_a_report_each():
    message = store(**WHEREVER["it was given up"] | {"in_doubt": 2, "in_doubt_with": "us us"})
    report(shown(message))
    report(last_word(message, True, "SM2"))
    assert became(message) == (Status.DELIVERED, "SM1")
    assert results(message) == [Result.TAKEN, Result.TAKEN]


@pytest.mark.parametrize("say", [shown, partial(last_word, delivered=True)])
def test_a_message_that_there_is_none_of_changes_nothing(say):
    message = in_doubt()
    nobody = Message(id=uuid.UUID("019cb4b5-0000-7000-8000-000000000000"))
    report(say(nobody))
    assert became(message) == (Status.SCHEDULED, None)


def test_a_refusal_that_is_recorded_meanwhile_counts(monkeypatch):
    message = store(**WHEREVER["its answer is not recorded"])
    lock_texts = receipts.lock_texts

    def refuse_first(texts):
        Attempt.end(message, SOON, Result.REFUSED, words="no")
        lock_texts(texts)

    monkeypatch.setattr(receipts, "lock_texts", refuse_first)
    report(shown(message))
    assert became(message) == (Status.SENDING, None)
    assert results(message) == [Result.REFUSED]


# One part of several


LONG = "x" * 200


@pytest.mark.parametrize("columns", WHEREVER.values(), ids=WHEREVER)
@pytest.mark.parametrize("say", [shown, partial(last_word, delivered=True)])
@pytest.mark.parametrize("text", ["Hello", LONG])
def test_a_report_on_one_part_shows_nothing_of_the_others(columns, say, text):
    message = store(**columns, message=text)
    before = results(message)
    report(say(message, of_part=True))
    whole = count_parts(text) == 1
    assert (again(message).status in (Status.SENT, Status.DELIVERED)) == whole
    assert whole or results(message) == before
    report(say(message, reference="SM2"))  # of a carrier that counts it as one
    assert again(message).status in (Status.SENT, Status.DELIVERED)


# At once


@on_postgres
def test_many_reports_and_the_yes_at_once_are_one_text():
    """The carrier calls several web workers while the scheduler records its answer."""
    for number in range(10):
        message, reference = store(**WHEREVER["its answer is not recorded"]), f"SM{number}"
        said = [shown(message, reference), last_word(message, False, reference)]
        said += [shown(message, reference), last_word(message, True, reference)]
        yes = partial(receipts.record_accepted, {message.id: reference}, SOON, US, {message.id: 1})
        at_once(yes, *(partial(report, each) for each in said))
        assert became(message) == (Status.DELIVERED, reference)
        assert again(message).attempts == 1
    assert not EarlyReceipt.select().exists()


@on_postgres
def test_the_report_on_another_part_waits_for_the_yes_that_is_being_recorded():
    """It says nothing of the text, whose own report has the reference of the yes."""
    message = store(**WHEREVER["its answer is not recorded"])
    yes = partial(receipts.record_accepted, {message.id: "SM1"}, SOON, US, {message.id: 1})
    before_commit(yes, partial(report, last_word(message, False, "SM2")))
    assert became(message) == (Status.SENT, "SM1")


@on_postgres
def test_two_schedulers_yes_to_many_and_reports_on_them_are_no_deadlock():
    for number in range(5):
        messages = [store(**WHEREVER["its answer is not recorded"]) for _ in range(20)]
        said = {each.id: f"R{number}-{n}" for n, each in enumerate(messages)}
        copies = {each.id: 1 for each in messages}
        reports = [shown(each, said[each.id]) for each in reversed(messages)]
        yes = partial(receipts.record_accepted, said, SOON, US, copies)
        half = dict([*said.items()][10:])
        at_once(
            yes,
            partial(report, *reports),
            partial(receipts.record_accepted, half, SOON, US, copies),
            *(partial(report, each) for each in reports),
        )
        assert {became(each) for each in messages} == {
            (Status.SENT, reference) for reference in said.values()
        }
