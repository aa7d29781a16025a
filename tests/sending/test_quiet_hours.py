"""Quiet hours: no text leaves then, whatever was asked for and whatever happened before."""

from collections import Counter
from datetime import UTC, datetime
from urllib.parse import parse_qs

import pytest

from databases import on_both
from own_threads import thread_after
from samples import ALWAYS_OPEN, HOUR, MINUTE, SECOND
from stored_messages import again, store
from texting import carriers
from texting.messages.model import Status
from texting.sending.runtime import Runtime

pytestmark = on_both

NIGHT = {"quiet_hours": (21 * 60, 8 * 60)}
NINE_PM = datetime(2026, 3, 4, 2, tzinfo=UTC)  # a Tuesday in New York
EIGHT_AM = datetime(2026, 3, 4, 13, tzinfo=UTC)


# At the call


@pytest.mark.parametrize("by_key", [False, True], ids=["of the setting", "of the key"])
@pytest.mark.parametrize("send_date", [None, NINE_PM - SECOND])
def test_quiet_hours_that_begin_after_the_claim_hold_a_text_back(
    send_date, by_key, run_pass, carrier, at
):
    message = store(now=NINE_PM - SECOND, send_date=send_date)
    if by_key:
        rules = {"hours": "00:00-24:00", "quiet_hours": "21:00-08:00"}
        message.key.rule(rules, NINE_PM - HOUR)
    run_pass.runtime = Runtime(submit=thread_after(lambda: at(NINE_PM)))
    changes = {} if by_key else NIGHT | ALWAYS_OPEN
    assert +run_pass(NINE_PM - SECOND, **changes) == Counter({"rescheduled": 1})
    assert carrier.texts == []
    held = again(message)
    assert (held.status, held.send_at, held.attempts) == (Status.SCHEDULED, EIGHT_AM, 0)
    assert (held.in_doubt, held.last_error) == (0, None)


# At the carrier's door


@pytest.mark.parametrize(
    ("now", "expires", "columns", "changes", "lasts"),
    [
        (NINE_PM - 3 * HOUR, 72 * HOUR, {}, {}, 3 * HOUR),
        (NINE_PM - 3 * HOUR, 2 * HOUR, {}, {}, 2 * HOUR),
        (NINE_PM - SECOND, 72 * HOUR, {}, {}, MINUTE),
        (NINE_PM - 3 * HOUR, 72 * HOUR, {}, {"quiet_hours": None}, 72 * HOUR),
        (NINE_PM - 26 * HOUR, 72 * HOUR, {}, {}, 2 * HOUR),
        (NINE_PM - SECOND, 2 * MINUTE, {"auto_reply_to": "STOP"}, {}, 2 * MINUTE),
    ],
    ids=[
        *("quiet hours", "expiry", "at least a minute", "no quiet hours", "another evening"),
        "an answer to a STOP is not cut short",
    ],
)
def test_the_carrier_gives_a_text_up_when_quiet_hours_begin_or_it_expires(
    run_pass, twilio_server, now, expires, columns, changes, lasts
):
    """Its own queue is no way round the night."""
    store(now=now, first_send_at=now, expires_at=now + expires, **columns)
    twilio = carriers.connect(twilio_server.url)
    run_pass(now, twilio, **NIGHT | ALWAYS_OPEN | changes)
    (form,) = (parse_qs(request.body.decode()) for request in twilio_server.requests)
    assert form["ValidityPeriod"] == [str(min(36_000, int(lasts.total_seconds())))]
