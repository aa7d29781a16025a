"""What carriers and recipients say later, in whatever order and however many at once."""

import time
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from databases import on_both, on_sqlite
from own_threads import at_once, before_commit
from samples import DAY, LONDON, MINUTE, NEW_YORK, TUESDAY_NOON
from stored_messages import (
    FAKE,
    SENDER,
    again,
    claim,
    decide_on,
    held,
    statuses,
    store,
    store_many,
    take_over,
)
from texting.access import do_not_call
from texting.access.do_not_call import DoNotCall, DoNotCallHistory, OptedOut
from texting.carriers import LateAnswer, OptOut, Receipt
from texting.database import clock
from texting.messages import model, receipts, waiting
from texting.messages.attempts import Attempt, Result
from texting.messages.early_receipts import EarlyReceipt
from texting.messages.model import TAKEN, Message, Status
from texting.replies import inbound, opt_outs
from texting.sending import outcomes, retention
from texting.sending.reports import RECORDED_AT_ONCE

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]

LATER = TUESDAY_NOON + 90 * DAY
DELIVERED, UNDELIVERED = ("SM1", True, None), ("SM1", False, "no such number")


def sent(reference="SM1", **columns):
    usual = {"status": Status.SENT, "finished_at": TUESDAY_NOON}
    return store(carrier_reference=reference, **usual | columns)


def report(said, now=LATER, carrier=FAKE):
    receipts.record_receipts([Receipt(*each) for each in said], now, carrier)


def kept():
    """The receipts that wait for a yes: whether each was delivered, by reference."""
    return {row.receipt.reference: row.delivered for row in EarlyReceipt.select()}


# The last word


@pytest.mark.parametrize(
    ("said", "status", "reason"),
    [
        ([DELIVERED], Status.DELIVERED, None),
        ([UNDELIVERED], Status.UNDELIVERED, "no such number"),
        ([UNDELIVERED, DELIVERED], Status.DELIVERED, None),
        ([DELIVERED, UNDELIVERED], Status.DELIVERED, None),
        ([UNDELIVERED, ("SM1", False, "expired")], Status.UNDELIVERED, "no such number"),
        ([DELIVERED, DELIVERED], Status.DELIVERED, None),
        ([("SM2", True, None), ("sm1", True, None)], Status.SENT, None),
        ([], Status.SENT, None),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("early", [True, False])
def test_delivered_is_the_last_word_in_any_order(said, status, reason, at_once, early):
    message = held(Status.SENDING)
    if not early:
        receipts.record_accepted({message.id: "SM1"}, TUESDAY_NOON, FAKE)
    for batch in [said] if at_once else [[receipt] for receipt in said]:
        report(batch)
    if early:
        receipts.record_accepted({message.id: "SM1"}, TUESDAY_NOON, FAKE)
    moved = again(message)
    assert (moved.status, moved.last_error) == (status, reason)
    assert moved.finished_at == TUESDAY_NOON
    assert moved.receipt_at == (None if status == Status.SENT else LATER)
    assert Attempt.get().receipt == (None if status == Status.SENT else status)
    assert "SM1" not in kept()


def test_where_a_carrier_uses_a_reference_again_the_latest_message_is_meant():
    old, new = sent("7"), sent("7", finished_at=TUESDAY_NOON + DAY)
    report([("7", True, None)])
    assert (again(old).status, again(new).status) == (Status.SENT, Status.DELIVERED)


def test_an_operator_may_retry_what_did_not_arrive_and_the_old_receipts_count_no_more():
    message = sent()
    report([UNDELIVERED])
    assert decide_on(again(message)).retry(LATER, 3 * DAY)
    waiting.promote(LATER)
    claim(1)
    receipts.record_accepted({message.id: "SM2"}, LATER, FAKE)
    report([DELIVERED])
    assert again(message).status == Status.SENT
    report([("SM2", True, None)])
    assert again(message).status == Status.DELIVERED


def test_a_yes_leaves_nothing_of_what_was_said_of_earlier_tries():
    message = held(Status.SENDING, last_error="busy", last_error_at=TUESDAY_NOON)
    receipts.record_accepted({message.id: "SM1"}, LATER, FAKE)
    found = again(message)
    assert (found.status, found.last_error, found.last_error_at) == (Status.SENT, None, None)


def test_what_an_operator_retries_waits_like_a_new_message():
    tried = {"attempts": 4, "in_doubt": 1, "due_since": TUESDAY_NOON, "cancelled_by": "Ann"}
    message = sent(status=Status.UNDELIVERED, receipt_at=TUESDAY_NOON, **tried)
    assert decide_on(message).retry(LATER, 3 * DAY)
    after, new = again(message), store(send_at=LATER, status=Status.SCHEDULED)
    for name in (*tried, "finished_at", "receipt_at", "status", "send_at"):
        assert getattr(after, name) == getattr(new, name), name


@pytest.mark.parametrize("is_late_yes", [True, False])
@pytest.mark.parametrize("delivered", [True, False])
def test_a_first_text_that_was_taken_after_all_has_its_receipts_though_a_person_retried_it(
    is_late_yes, delivered
):
    message = doubtful(status=Status.FAILED, finished_at=TUESDAY_NOON)
    assert decide_on(message).retry(LATER, 3 * DAY)
    if is_late_yes:
        inbound.record_reports([LateAnswer(str(message.id), "SM1")], LATER, "asked", FAKE)
        assert again(message).status == Status.SENT
    report([("SM1", delivered, None, NEW_YORK)], TUESDAY_NOON + MINUTE)
    assert again(message).status == (Status.DELIVERED if delivered else Status.UNDELIVERED)
    report([("SM1", True, None)])
    assert again(message).status == Status.DELIVERED


# What belongs to nobody here


def test_an_unknown_receipt_is_kept_three_days_however_often_it_is_repeated():
    for days in range(3):
        said = [UNDELIVERED, ("SM2", True, None), ("SM2", False, "x")]
        report(said, TUESDAY_NOON + days * DAY)
    receipts.forget_unmatched(TUESDAY_NOON + 3 * DAY)
    assert kept() == {"SM1": False, "SM2": True}
    receipts.forget_unmatched(TUESDAY_NOON + 3 * DAY + timedelta(milliseconds=1))
    assert not kept()


@on_sqlite
@pytest.mark.timed
@pytest.mark.parametrize("days", [0, 9])
@pytest.mark.parametrize("doubts", [0, 1])
def test_unknown_receipts_of_a_number_with_many_texts_keep_others_waiting_briefly(days, doubts):
    """Some are recorded in one transaction, and no one else can write to SQLite meanwhile."""
    at = TUESDAY_NOON - days * DAY
    store_many(2000, status=Status.SENT, carrier="smpp", finished_at=at)
    Message.update(to=NEW_YORK, carrier_reference=Message.id.cast("text")).execute()
    for _ in range(doubts):
        doubtful()
    said = [Receipt(f"x{n}", False, "why", NEW_YORK) for n in range(RECORDED_AT_ONCE)]
    began = time.monotonic()
    report(said, TUESDAY_NOON + MINUTE, "smpp")
    assert time.monotonic() - began < 1


# At the same moment


@pytest.mark.slow
@pytest.mark.parametrize("first", ["the yes", "the receipt"])
def test_a_receipt_finds_the_yes_that_another_is_recording(first):
    """Also where one of them is recorded in a transaction of its caller's."""
    message = held(Status.SENDING)
    recorded = [
        lambda: receipts.record_accepted({message.id: "SM1"}, TUESDAY_NOON, FAKE),
        lambda: report([DELIVERED]),
    ]
    if first == "the receipt":
        recorded.reverse()
    before_commit(*recorded)
    assert again(message).status == Status.DELIVERED
    assert not kept()


# Any order of events, beside a model of a few lines


class Model:
    """What is expected of one message, and of the receipts that wait for a yes."""

    def __init__(self):
        self.status, self.reference, self.kept = Status.SENDING, None, {}
        self.former = set()  # references of before a retry
        self.gone = self.redacted = False

    def yes(self, reference):
        recorded = self.status != Status.SENDING and reference == self.reference
        if not self.gone and self.status not in TAKEN and not recorded:
            self.former.add(self.reference)
            self.status, self.reference = Status.SENT, reference
            if reference in self.kept:
                self.receipt(reference, self.kept.pop(reference))

    def receipt(self, reference, delivered):
        if reference != self.reference and reference in self.former and not self.gone:
            return
        if self.gone or reference != self.reference:
            self.kept[reference] = delivered or self.kept.get(reference, False)
        elif delivered and self.status in TAKEN:
            self.status = Status.DELIVERED
        elif self.status == Status.SENT:
            self.status = Status.UNDELIVERED

    def retry(self):
        if self.status == Status.UNDELIVERED and not self.redacted:
            self.status = Status.SCHEDULED

    def take_over(self):
        if self.status == Status.SENDING:
            self.status = Status.QUEUED

    def purge(self):
        self.gone |= self.status in TAKEN

    def redact(self):
        self.redacted |= self.status in TAKEN

    def forget(self):
        self.kept.clear()


references = st.sampled_from(["SM1", "SM2"])
several = st.lists(st.tuples(references, st.booleans()), min_size=1, max_size=3)
events = st.lists(
    st.tuples(st.just("yes"), references)
    | st.tuples(st.just("receipts"), several)
    | st.tuples(st.sampled_from(["retry", "take_over", "purge", "redact", "forget"])),
    max_size=12,
)


@pytest.mark.slow
@settings(max_examples=50)
@given(events)
def test_whatever_happens_in_whatever_order_the_last_word_counts(events):
    EarlyReceipt.delete().execute()
    Message.delete().execute()
    message, model = held(Status.SENDING), Model()
    for event, *arguments in events:
        match event:
            case "yes":
                receipts.record_accepted({message.id: arguments[0]}, TUESDAY_NOON, FAKE)
                model.yes(*arguments)
            case "receipts":
                (pairs,) = arguments
                report([(name, good, f"{good}") for name, good in pairs])
                for pair in pairs:
                    model.receipt(*pair)
            case "take_over":
                take_over(LATER)
                model.take_over()
            case "forget":
                receipts.forget_unmatched(LATER + 4 * DAY)
                model.forget()
            case "retry":
                if decide_on(message).retry(LATER, 3 * DAY):  # and it is given to its carrier again
                    number = again(message).claim_number + 1
                    Message.update(claim_number=number).execute()
                    new = {"claim_number": number, "carrier": FAKE, "begun_at": LATER}
                    Attempt.create(message=message, **new)
                model.retry()
            case _:
                getattr(retention, event)(LATER, LATER)
                getattr(model, event)()
        found = Message.get_or_none(Message.id == message.id)
        assert (found is None) == model.gone
        if found:
            assert (found.status, found.carrier_reference) == (model.status, model.reference)
            assert (found.to is None) == model.redacted
        assert kept() == model.kept


# A yes that comes late, and receipts of texts in doubt


def doubtful(**columns):
    usual = {"status": Status.SCHEDULED, "in_doubt": 1, "in_doubt_since": TUESDAY_NOON}
    return store(**usual | {"attempts": 1} | columns)


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"status": Status.QUEUED},
        {"status": Status.SENDING, "claimed_by": SENDER, "claimed_at": TUESDAY_NOON},
        {"status": Status.FAILED, "in_doubt": 2, "attempts": 2, "finished_at": TUESDAY_NOON},
        {"status": Status.CANCELLED, "finished_at": TUESDAY_NOON},
    ],
)
def test_a_late_yes_settles_a_doubt_whatever_became_of_the_message(columns):
    message = doubtful(**columns)
    report([UNDELIVERED], TUESDAY_NOON)
    inbound.record_reports([LateAnswer(str(message.id), "SM1")], LATER, "asked", FAKE)
    moved = again(message)
    assert (moved.status, moved.carrier_reference) == (Status.UNDELIVERED, "SM1")
    assert (moved.last_error, moved.attempts) == ("no such number", message.attempts)
    assert not moved.apply(outcomes.Outcome(Status.SCHEDULED, "no answer", LATER), LATER)


@pytest.mark.parametrize(
    ("reference", "told"),
    [("1a2b", "6699"), ("1A2B", "1a2b"), ("16", "0016"), ("SM1", "1"), (None, "1")],
)
def test_a_receipt_with_another_reference_is_kept(reference, told):
    sent(reference)
    report([(told, True, None, NEW_YORK)])
    assert statuses() == {Status.SENT: 1}
    assert kept() == {told: True}


@pytest.mark.parametrize("delivered", [True, False])
@pytest.mark.parametrize("early", [True, False])
def test_a_receipt_settles_the_doubt_of_the_only_text_to_its_number(delivered, early):
    message = store(status=Status.SENDING) if early else doubtful()
    sent("SM9", to=LONDON)
    sent("SM8", finished_at=TUESDAY_NOON - 4 * DAY)
    store()  # which no carrier has
    report([("SM1", delivered, None, NEW_YORK)], TUESDAY_NOON + MINUTE)
    if early:
        assert kept() == {"SM1": delivered}
        take_over(TUESDAY_NOON)
        ended = Message.update(status=Status.FAILED, finished_at=TUESDAY_NOON)
        ended.where(Message.id == message.id).execute()
        assert receipts.look_again(NEW_YORK, LATER) == {message.id}
    moved = again(message)
    assert moved.status == (Status.DELIVERED if delivered else Status.UNDELIVERED)
    assert (moved.carrier_reference, moved.receipt_at) == ("SM1", TUESDAY_NOON + MINUTE)
    assert not kept()


def test_where_there_may_be_two_copies_only_a_delivered_one_settles_the_doubt():
    message = doubtful(status=Status.SENDING, claimed_by=SENDER, claimed_at=TUESDAY_NOON)
    said = [("SM1", False, "why", NEW_YORK)]
    report(said, TUESDAY_NOON + MINUTE)
    assert (again(message).status, kept()) == (Status.SENDING, {"SM1": False})
    said += [("SM2", True, None, NEW_YORK)]
    report(said, TUESDAY_NOON + MINUTE)
    assert (again(message).status, again(message).carrier_reference) == ("delivered", "SM2")


@pytest.mark.parametrize("first", [True, False])
def test_of_two_receipts_at_once_one_settles_the_doubt_and_the_other_waits(first):
    message = doubtful()
    said = [("SM1", first, None, NEW_YORK), ("SM2", True, None, NEW_YORK)]
    report(said, TUESDAY_NOON + MINUTE)
    assert again(message).status == Status.DELIVERED
    assert again(message).carrier_reference == ("SM1" if first else "SM2")
    assert kept() == ({"SM2": True} if first else {"SM1": False})


@pytest.mark.parametrize(
    ("others", "carrier"),
    [(1, "us"), (19, "us"), (20, "us"), (21, "us"), (40, "us"), (19, "eu"), (40, "eu")],
)
def test_a_receipt_settles_a_doubt_unless_it_may_be_of_one_of_many_texts(others, carrier):
    """Whichever of them the database finds first, and not of those that another carrier has."""
    message = doubtful(in_doubt_with="us")
    store_many(others, status=Status.SENT, finished_at=TUESDAY_NOON, carrier=carrier)
    Message.update(to=NEW_YORK, carrier_reference=Message.id.cast("text")).where(
        Message.status == Status.SENT
    ).execute()
    report([("SM1", True, None, NEW_YORK)], TUESDAY_NOON + MINUTE, "us")
    assert (again(message).status == Status.DELIVERED) == (carrier == "eu")
    assert kept() == ({} if carrier == "eu" else {"SM1": True})


def test_one_of_many_texts_that_another_carrier_may_have_hides_none_of_its_own():
    doubtful(in_doubt_with="us", id=model.new_id(TUESDAY_NOON - DAY))
    for _ in range(30):
        doubtful(in_doubt_with="eu", carrier="eu")
    sent("SM8", carrier="us", id=model.new_id(LATER))
    report([("SM1", True, None, NEW_YORK)], TUESDAY_NOON + MINUTE, "us")
    assert kept() == {"SM1": True}


@pytest.mark.parametrize(
    "columns",
    [
        {"status": Status.SENT, "carrier_reference": "SM7", "finished_at": TUESDAY_NOON - DAY},
        {"status": Status.DELIVERED, "carrier_reference": "SM7", "finished_at": TUESDAY_NOON},
        {"status": Status.SENDING},
        {"status": Status.SENDING, "carrier": "eu"},
        {"status": Status.QUEUED, "carrier": "eu", "in_doubt": 1, "in_doubt_since": TUESDAY_NOON},
    ],
    ids=str,
)
def test_a_receipt_that_may_be_of_another_text_settles_no_doubt(columns):
    message = doubtful(in_doubt_with="us")
    if columns["status"] in TAKEN:
        store(**columns, carrier="us")
    elif columns["status"] == Status.SENDING:
        store(**columns, claimed_for="us")
    else:
        store(**columns, in_doubt_with="us")
    report([("SM1", True, None, NEW_YORK)], TUESDAY_NOON + MINUTE, "us")
    assert again(message).status == Status.SCHEDULED
    assert kept() == {"SM1": True}


@pytest.mark.parametrize(
    "columns", [{"in_doubt_since": TUESDAY_NOON + 2 * MINUTE}, {"in_doubt": 0}, {"to": LONDON}]
)
def test_a_receipt_that_cannot_be_of_this_text_settles_no_doubt(columns):
    message = doubtful(**columns)
    report([("SM1", True, None, NEW_YORK)], TUESDAY_NOON + MINUTE)
    assert receipts.look_again(NEW_YORK, LATER) == set()
    assert again(message).status == Status.SCHEDULED


# STOP and START


@pytest.mark.parametrize("texted", [True, False])
def test_a_number_that_may_be_national_counts_only_if_it_was_texted(caplog, texted):
    stop, start = (OptOut(NEW_YORK, each, "reply", certain=False) for each in (True, False))
    message = store(check_dnc=True, to=NEW_YORK if texted else LONDON)
    assert opt_outs.record_opt_out(stop, LATER, "asked") == texted
    assert OptedOut.lists(NEW_YORK) == texted
    assert (again(message).status == Status.BLOCKED) == texted
    OptedOut.add([NEW_YORK], LATER, "reply")
    opt_outs.record_opt_out(start, LATER, "asked")
    assert OptedOut.lists(NEW_YORK) != texted
    words = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [word.split()[1] for word in words] == ([] if texted else ["STOP", "START"])
    assert "2125550" not in caplog.text


@pytest.mark.parametrize("source", ["operator", "import", "reply", "carrier"])
def test_a_number_joins_once_and_keeps_the_instant(source):
    assert OptedOut.add([NEW_YORK], TUESDAY_NOON, "reply") == 1
    assert OptedOut.add([NEW_YORK, LONDON], LATER, source) == 1
    first = OptedOut.entry(NEW_YORK)
    assert (first.source, first.added_at) == ("reply", TUESDAY_NOON)


STOP, START = True, False


@pytest.mark.parametrize("stop_from", ["reply", "carrier"])
@pytest.mark.parametrize(
    ("words", "listed"),
    [
        ([(STOP, 5), (START, 3)], True),
        ([(START, 5), (STOP, 3)], False),
        ([(STOP, 1), (START, 5), (STOP, 3)], False),
        ([(STOP, 1), (STOP, 5), (START, 3)], True),  # though the second STOP changed nothing
        ([(STOP, 5), (START, 5)], False),
        ([(START, 5), (STOP, 5)], True),
        ([(STOP, 5), (START, None)], False),
        ([(STOP, None), (START, 5)], True),  # written before the STOP, which came at 60
        ([(STOP, None), (START, 70)], False),
        ([(START, 5), (STOP, None)], True),
    ],
)
def test_an_older_word_that_comes_late_undoes_no_newer_one(words, listed, stop_from):
    """By the carrier's time in minutes after noon; all arrive an hour after noon."""
    waiting = store(check_dnc=True)
    arrival = TUESDAY_NOON + 60 * MINUTE
    for stop, minute in words:
        at = None if minute is None else TUESDAY_NOON + minute * MINUTE
        said = OptOut(NEW_YORK, stop, stop_from if stop else "reply", at)
        opt_outs.record_opt_out(said, arrival, "asked")
    assert OptedOut.lists(NEW_YORK) == listed
    if not any(each.what == "joined" for each in DoNotCallHistory.of(NEW_YORK)):
        assert again(waiting).status == Status.QUEUED


def test_the_history_keeps_the_carriers_time_of_a_reply():
    said_at = TUESDAY_NOON - MINUTE
    opt_outs.record_opt_out(OptOut(NEW_YORK, True, "reply", said_at), TUESDAY_NOON, "asked")
    opt_outs.record_opt_out(OptOut(NEW_YORK, False, "reply"), TUESDAY_NOON, "asked")
    rows = [(row.at, row.what, row.said_at) for row in DoNotCallHistory.of(NEW_YORK)]
    assert rows == [(TUESDAY_NOON, "joined", said_at), (TUESDAY_NOON, "left", None)]


@pytest.mark.slow
def test_an_operators_add_beside_many_starts_and_stops_is_never_lost():
    def reply():
        for stop in [True, False] * 30:
            opt_outs.record_opt_out(OptOut(NEW_YORK, stop, "reply"), clock.now(), "asked")

    def change_list():
        for _ in range(30):
            DoNotCall.add([NEW_YORK], clock.now(), "operator")
            assert DoNotCall.get_by_id(NEW_YORK).source == "operator", "it was lost"
            do_not_call.remove([NEW_YORK], clock.now(), "shell", opted_out=True)

    at_once(reply, reply, change_list)


def test_a_stop_blocks_what_waits_and_nothing_else():
    asked = {status: held(status, check_dnc=True) for status in Status}
    store(check_dnc=False)
    store(check_dnc=True, to=LONDON)
    assert opt_outs.record_opt_out(OptOut(NEW_YORK, True, "reply"), LATER, "asked") == 2
    for status, message in asked.items():
        assert again(message).status == (Status.BLOCKED if status in model.WAITING else status)
    assert again(asked[Status.QUEUED]).finished_at == LATER
    assert opt_outs.record_opt_out(OptOut(NEW_YORK, True, "reply"), LATER, "asked") == 0
    assert opt_outs.record_opt_out(OptOut(NEW_YORK, True, "reply"), LATER, "always") == 1


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("number", ["+6172091009", "+02125550123", "+2125550123"])
def test_an_invalid_number_joins_no_list_and_leaves_a_trace_without_it(number, stop, caplog):
    OptedOut.add([number], TUESDAY_NOON - DAY, "reply")
    if stop:
        do_not_call.remove([number], TUESDAY_NOON - DAY, "shell", opted_out=True)
    inbound.record_reports([OptOut(number, stop, "reply")], TUESDAY_NOON, "asked", FAKE)
    assert OptedOut.lists(number) is not stop
    assert "its number is not valid" in caplog.text
    assert number[1:] not in caplog.text
    assert opt_outs.ignored_opt_outs(TUESDAY_NOON) == 1
    opt_outs.forget_ignored(TUESDAY_NOON + 4 * DAY)
    assert opt_outs.ignored_opt_outs(TUESDAY_NOON) == 0


def test_a_number_that_was_texted_joins_the_list_whatever_libphonenumber_holds():
    store(to="+6172091009")
    inbound.record_reports(
        [OptOut("+6172091009", True, "reply", certain=False)], TUESDAY_NOON, "asked", FAKE
    )
    assert OptedOut.lists("+6172091009")


def test_a_retried_text_is_accepted_though_its_copy_is_called_as_the_one_before(database_url):
    """As by a webhook that answers a constant."""
    message = store(status=Status.SENDING, claim_number=2, claims_before_retry=1)
    earlier = {"result": Result.TAKEN, "reference": "ok", "carrier": FAKE}
    Attempt.create(message=message, claim_number=1, begun_at=TUESDAY_NOON, **earlier)
    said = {message.id: "ok"}
    assert receipts.record_accepted(said, TUESDAY_NOON, FAKE, {message.id: 2}) == 1
    assert again(message).status == Status.SENT
