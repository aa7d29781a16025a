"""Carriers whose reports show within minutes that they have a text: no second copy before."""

import pytest

from fake_carrier import FakeCarrier
from samples import ALWAYS_OPEN, MINUTE, TUESDAY_NOON
from stored_messages import again, store
from texting.carriers import CarrierError, Shown
from texting.messages.model import Status
from texting.replies import inbound

LOST = CarrierError("no answer", in_doubt=True, silent=True)


class ReportingCarrier(FakeCarrier):
    """A carrier that tells what it has."""

    shows_within, tells_receipts = 5 * MINUTE, True


@pytest.fixture
def passes(run_pass):
    """Make passes at these minutes; the carrier loses the first text or its answer."""

    def make(carrier, *minutes, **changes):
        for minute in minutes:
            carrier.answer = LOST if minute == 0 else None
            run_pass(TUESDAY_NOON + minute * MINUTE, carrier, **ALWAYS_OPEN | changes)

    return make


@pytest.mark.parametrize(
    ("tells", "delay", "before", "after"),
    [(True, 60, 4.9, 5.1), (True, 600, 8.9, 11.1), (False, 60, 0.8, 1.2)],
)
def test_a_second_copy_goes_once_no_report_has_shown_the_first(passes, tells, delay, before, after):
    message, carrier = store(), ReportingCarrier()
    carrier.tells_receipts = tells
    passes(carrier, 0, before, retry_delay=delay)
    assert (len(carrier.texts), again(message).in_doubt) == (1, 1)
    passes(carrier, after, retry_delay=delay)
    assert (len(carrier.texts), again(message).status, again(message).attempts) == (
        2,
        Status.SENT,
        2,
    )


def test_a_report_in_time_spares_the_second_copy(passes):
    message, carrier = store(), ReportingCarrier()
    passes(carrier, 0)
    shown = Shown("ref", str(message.id))
    inbound.record_reports([shown], TUESDAY_NOON + MINUTE, "opted-out", carrier.name)
    passes(carrier, 4, 6, 60)
    assert (len(carrier.texts), again(message).status) == (1, Status.SENT)


def test_a_refusal_is_not_waited_for(passes, run_pass):
    carrier = ReportingCarrier()
    store()
    carrier.answer = CarrierError("no")
    run_pass(TUESDAY_NOON, carrier, **ALWAYS_OPEN)
    passes(carrier, 1.2)
    assert len(carrier.texts) == 2
