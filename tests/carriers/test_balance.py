"""What carriers say is left on an account, when people ask for it."""

import pytest

from carrier_errors import connect
from carrier_servers import Answer
from kits.twilio import refusal

ODD = [
    *("NaN", "Infinity", "-Infinity", "1e999", "", "free", "0,05", "0.05 EUR", "9" * 10_000),
    *("x" * 10_000, "\0", "٣٫٥", None, True, [], ["0.05"], {"amount": "0.05"}, 10**30),
]


@pytest.mark.parametrize(
    ("value", "balance"),
    [(10.28, "10.28 EUR"), ("-3.5", "-3.5 EUR"), (1_000_000, "1000000 EUR"), (0, "0 EUR")],
)
def test_vonage_is_asked_once(vonage_server, value, balance):
    vonage_server.answer = Answer(200, {"value": value, "autoReload": False})
    assert connect(vonage_server.url).balance() == balance
    assert len(vonage_server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "balance"),
    [
        (Answer(200, {"currency": "USD", "balance": "12.340"}), "12.340 USD"),
        (Answer(200, {"currency": "USD", "balance": "-1"}), "-1 USD"),
        (Answer(200, {"currency": ["USD"], "balance": "5"}), None),
        (Answer(200, {}), None),
        (Answer(200, b"<html>"), None),
        (Answer(200, b'{"balance": 1e999, "currency": "USD"}'), None),
        (refusal(20003, 403), None),
        (refusal(20404, 404), None),
        (Answer(500), None),
        *((Answer(200, {"currency": "USD", "balance": odd}), None) for odd in ODD),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_what_cannot_be_read_of_twilios_balance_is_none(
    twilio_server, monkeypatch, answer, balance
):
    usual, path = twilio_server.told, f"/{twilio_server.sid}/Balance.json"
    told = lambda request: answer if request.path.endswith(path) else usual(request)  # noqa: E731
    monkeypatch.setattr(twilio_server, "told", told)
    assert connect(twilio_server.url).balance() == balance
