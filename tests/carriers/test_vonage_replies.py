"""What Vonage tells beside a text: when it was said, and whether it is a part of a longer one."""

from datetime import UTC, datetime

import pytest

from carriers import Reply
from test_vonage import NUMBER, STATUS, carrier, signed  # noqa: F401  a fixture


@pytest.mark.parametrize(
    ("timestamp", "at"),
    [
        ("2020-01-01 12:00:00 +0000", datetime(2020, 1, 1, 12, tzinfo=UTC)),  # as Vonage writes it
        ("2020-01-01 12:00:00 +0530", datetime(2020, 1, 1, 6, 30, tzinfo=UTC)),
        ("2020-01-01 12:00:00 -0100", datetime(2020, 1, 1, 13, tzinfo=UTC)),
        ("2020-01-01 12:00:00 0000", None),
        ("2020-01-01 12:00:00 +9900", None),
        ("2020-01-01 12:00:00 +00:00", None),
        ("0001-01-01 00:00:00 +0100", None),
    ],
)
@pytest.mark.parametrize("how", ["query", "form", "json"])
def test_a_stop_has_the_time_that_vonage_tells_with_its_offset(
    carrier,  # noqa: F811
    timestamp,
    at,
    how,
):
    said = {"msisdn": NUMBER[1:], "message-timestamp": timestamp, "text": "STOP"}
    (event,) = carrier.callback(signed(said, how=how, kind="inbound"))
    assert event == Reply(NUMBER, "STOP", at)
    if at:
        assert event.at.tzinfo is UTC


@pytest.mark.parametrize("concat", ["false", "False", "0", ""])
@pytest.mark.parametrize("how", ["query", "form", "json"])
def test_a_reply_of_which_vonage_says_that_it_is_no_part_is_whole(carrier, concat, how):  # noqa: F811
    fields = {"msisdn": NUMBER[1:], "text": "STOP", "concat": concat}
    (event,) = carrier.callback(signed(fields, how=how, kind="inbound"))
    assert event == Reply(NUMBER, "STOP")


def test_a_receipt_repeats_the_id_that_the_text_was_sent_with(carrier):  # noqa: F811
    status = STATUS | {"status": "delivered", "client-ref": "019cb4b5-0000-7000-8000-000000000000"}
    (receipt,) = carrier.callback(signed(status))
    assert receipt.message_id == status["client-ref"]
