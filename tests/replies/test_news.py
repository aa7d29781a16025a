"""What a carrier's session says is recorded before it is forgotten, whatever the database does."""

import itertools

import pytest

import models
from databases import on_both
from fake_carrier import FakeCarrier
from faulty_database import FaultyDatabase
from samples import LONDON, NEIGHBOUR, NEW_YORK, THIRD, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import again, store
from texting import database
from texting.access.do_not_call import OptedOut
from texting.carriers import IncomingText, OptOut, Part, Receipt
from texting.messages.model import Message, Status
from texting.replies.model import Reply
from texting.sending import reports
from texting.sending.reports import ReportRecorder

pytestmark = on_both


class TalkingCarrier(FakeCarrier):
    """Hand over what it has to say once; a call acknowledges what the one before returned."""

    listens = True

    def __init__(self, *batches):
        super().__init__()
        self.batches = list(batches)

    def received(self):
        return self.batches.pop(0) if self.batches else []


@pytest.fixture
def faulty(database_url, monkeypatch):
    return FaultyDatabase(monkeypatch)


def begin_anew():
    for table in (Message, *reversed(models.TABLES)):
        if table._meta.table_name not in ("api_key", "carrier_state"):
            table.delete().execute()
    return [
        store(status=Status.SENT, finished_at=TUESDAY_NOON, carrier_reference=f"SM{n}")
        for n in range(3)
    ]


@pytest.fixture
def collect(settings, faulty, monkeypatch):
    """Have batches collected until all is recorded, each time with another statement that fails.

    `for failing in collect(batch, batch)` comes after each time with the number of that statement.
    The batches have receipts of SM0, SM1 and SM2.
    """
    monkeypatch.setattr(reports, "RECORDED_AT_ONCE", 3)

    def each_statement_fails(*batches, **changes):
        for failing in itertools.count(1):
            messages = begin_anew()
            carrier = TalkingCarrier(*([*batch] for batch in batches))
            news = Scheduler(settings._replace(**changes), carrier).senders[0].reports
            faulty.fail_at(failing)
            refused = 0
            while news.carrier.batches or news.unrecorded:
                try:
                    news.collect()
                except database.ERRORS:
                    refused += 1
            ended = faulty.statements < failing
            faulty.fail_at(0)
            assert {again(message).status for message in messages} == {Status.DELIVERED}, failing
            yield failing
            if ended:
                break
            assert refused == 1

    return each_statement_fails


@pytest.mark.slow
def test_whichever_statement_fails_each_reply_among_receipts_is_recorded_once(collect, at):
    """SMPP has no id for a text: what was recorded must not be handed over again."""
    at(TUESDAY_NOON)
    receipts = [Receipt(f"SM{n}", delivered=True) for n in range(3)]
    words = [receipts[0], IncomingText(NEW_YORK, "Yes"), receipts[1], IncomingText(NEW_YORK, "Yes")]
    words += [
        IncomingText(NEW_YORK, "STOP"),
        IncomingText(LONDON, "a", part=Part("1", 2, 1)),
        receipts[2],
    ]
    later = [IncomingText(LONDON, "b", part=Part("1", 2, 2)), IncomingText(NEIGHBOUR, "stop")]
    later += [OptOut(THIRD, stop=True, source="reply")]
    for failing in collect(words, later, stop_reply="Bye.", help_reply="Ask us."):
        texts = sorted(each.text for each in Reply.select())
        assert texts == ["STOP", "Yes", "Yes", "ab", "stop"], failing
        numbers = {each.number for each in OptedOut.select()}
        assert numbers == {NEW_YORK, NEIGHBOUR, THIRD}, failing
        assert Message.select().where(Message.auto_reply_to == "STOP").count() == 1, failing
    assert failing > 20


def test_a_database_that_fails_in_a_pass_loses_no_stop(settings, at, faulty, monkeypatch):
    at(TUESDAY_NOON)
    carrier = TalkingCarrier([OptOut(NEW_YORK, stop=True, source="reply")], [])
    scheduler = Scheduler(settings, carrier)
    collect = ReportRecorder.collect
    broken = iter([True])

    def break_down(news):
        if next(broken, False):
            faulty.fail_at(1)
        return collect(news)

    monkeypatch.setattr(ReportRecorder, "collect", break_down)
    with pytest.raises(database.ERRORS):
        scheduler.run_pass()
    assert not OptedOut.lists(NEW_YORK)
    scheduler.run_pass()
    assert OptedOut.lists(NEW_YORK)
