"""Replies among receipts of a session are recorded once, whatever the database does."""

import itertools

import database
from access.do_not_call import DoNotCall
from carriers import Part, Receipt
from carriers import Reply as Said
from models import Message, Status
from samples import LONDON, NEW_YORK, TUESDAY_NOON
from scheduler import Scheduler
from sending import recorder
from sending.replies import Reply
from stored_messages import again
from test_inbox import TalkingCarrier, begin_anew, fail_at  # noqa: F401  a fixture

NUMBERS = ["+12125550188", "+12125550199"]


def test_whichever_statement_fails_each_reply_is_recorded_once(
    settings,
    at,
    fail_at,  # noqa: F811
    monkeypatch,
):
    """SMPP has no id for a text: what was recorded must not be handed over again."""
    at(TUESDAY_NOON)
    monkeypatch.setattr(recorder, "RECORDED_AT_ONCE", 3)
    settings = settings._replace(stop_reply="Bye.", help_reply="Ask us.")
    for failing in itertools.count(1):
        fail_at(0)
        messages = begin_anew()
        receipts = [Receipt(f"SM{n}", delivered=True) for n in range(3)]
        words = [receipts[0], Said(NEW_YORK, "Yes"), receipts[1], Said(NEW_YORK, "Yes")]
        words += [Said(NEW_YORK, "STOP"), Said(LONDON, "a", part=Part("1", 2, 1)), receipts[2]]
        later = [Said(LONDON, "b", part=Part("1", 2, 2)), *(Said(n, "stop") for n in NUMBERS)]
        (sender,) = Scheduler(settings, TalkingCarrier(words, later)).senders
        inbox = sender.inbox
        state = fail_at(failing)
        refused = 0
        while inbox.carrier.batches or inbox.unrecorded:
            try:
                inbox.collect()
            except database.ERRORS:
                refused += 1
        ended = state["seen"] < failing
        fail_at(0)
        assert {again(message).status for message in messages} == {Status.DELIVERED}, failing
        texts = sorted(each.text for each in Reply.select())
        assert texts == ["STOP", "Yes", "Yes", "ab", "stop", "stop"], failing
        assert {each.number for each in DoNotCall.select()} == {NEW_YORK, *NUMBERS}, failing
        assert Message.select().where(Message.answers == "STOP").count() == 1, failing
        if ended:
            break
        assert refused == 1
    assert failing > 20
