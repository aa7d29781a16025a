"""What carriers say of money: in answers, receipts and lists, and when they are asked."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from callbacks import FIELDS, connected, of_vonage
from carrier_errors import NUMBER, TEXT, connect, send
from carrier_servers import Answer, refusal, verdict
from carriers import Receipt
from carriers.money import money

ODD = [
    *("NaN", "sNaN", "Infinity", "-Infinity", "1e999", "-1e999", "1e99999999999999999999"),
    *("", "free", "0,05", "0.05 EUR", "9" * 10_000, "x" * 10_000, "\0", "٣٫٥"),
    *(None, True, [], ["0.05"], {"amount": "0.05"}, 10**30, float("nan"), float("inf")),
]
NO_CODES = ["", "US", "DOLLAR", "€€€", "U$D", "x" * 10_000, "\0\0\0", 840, True, None, ["USD"]]


def priced(carrier):
    """Send a text; return the reference, and the amount and the currency that were told."""
    said = send(carrier)
    return str(said or ""), *getattr(said, "price", (None, None))


def part(price, status="0"):
    return {"status": status, "message-id": "0A1", "message-price": price}


@pytest.mark.parametrize(
    ("prices", "total"),
    [
        (["0.03330000"], "0.0333"),
        ([0.0333], "0.0333"),
        (["0.1", "0.1", "0.1"], "0.3"),
        (["0.00000001"], "0.00000001"),
        (["0"], "0"),
        (["0.0333", None], None),
        (["0.0333", "NaN"], None),
        (["100000"], None),
        (["99999"] * 2, None),
        *([[odd], None] for odd in ODD),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_vonages_price_is_the_sum_over_all_parts_in_euros(vonage_server, prices, total):
    vonage_server.answer = verdict(*map(part, prices))
    told = (Decimal(total), "EUR") if total else (None, None)
    assert priced(connect(vonage_server.url)) == ("0A1", *told)


@pytest.mark.parametrize(
    ("told", "amount", "currency"),
    [
        ({"price": "0.0333", "currency": "USD"}, "0.0333", "USD"),
        ({"price": 0.0333, "currency": "usd"}, "0.0333", "USD"),
        ({"price": 2, "currency": None}, "2", None),
        ({"price": "2"}, "2", None),
        ({"currency": "USD"}, None, None),
        *(({"price": "2", "currency": odd}, "2", None) for odd in NO_CODES),
        *(({"price": odd, "currency": "USD"}, None, None) for odd in ODD),
    ],
    ids=lambda value: repr(value)[:60],
)
@pytest.mark.parametrize("reference", [{"reference": "r1"}, {}], ids=["r1", "none"])
def test_a_webhook_tells_price_and_currency_beside_a_reference_or_alone(
    webhook_server, told, amount, currency, reference
):
    webhook_server.answer = Answer(200, told | reference)
    amount = amount and Decimal(amount)
    said = reference.get("reference", "")
    assert priced(connect(webhook_server.url)) == (said, amount, currency)


@pytest.mark.parametrize(
    ("price", "amount"),
    [("-0.00750", "0.0075"), (None, None), *((odd, None) for odd in ODD)],
    ids=lambda value: repr(value)[:40],
)
def test_twilios_price_is_negative_and_told_once_the_text_was_sent(twilio_server, price, amount):
    told = {"price": price, "price_unit": "USD"}
    expected = (Decimal(amount), "USD") if amount else (None, None)
    twilio_server.answer = Answer(201, {"sid": "SM1"} | told)
    carrier = connect(twilio_server.url)
    assert priced(carrier) == ("SM1", *expected)
    twilio_server.answer = None
    twilio_server.messages[0] |= told
    (found,) = carrier.find(NUMBER, TEXT, datetime.now(UTC) - timedelta(minutes=1))
    assert (found, *getattr(found, "price", (None, None))) == ("SM1", *expected)


@pytest.mark.parametrize("status", ["delivered", "failed"])
@pytest.mark.parametrize("how", ["form", "json", "query"])
def test_vonages_receipt_has_a_price(status, how):
    assert receipt(how, status=status, price="0.03330000").price == (Decimal("0.0333"), "EUR")
    assert receipt(how, status=status).price is None


@pytest.mark.parametrize("price", [o for o in ODD if isinstance(o, str)], ids=lambda v: v[:20])
def test_an_odd_price_in_a_receipt_is_none(price):
    assert receipt("form", status="delivered", price=price) == Receipt("0A1", True)


def receipt(how, **fields):
    fields = FIELDS["vonage"] | {"messageId": "0A1"} | fields
    (said,) = connected("vonage").callback(of_vonage(fields, how=how))
    return said


# The balance


@pytest.mark.parametrize(
    ("value", "balance"),
    [(10.28, "10.28 EUR"), ("-3.5", "-3.5 EUR"), (1_000_000, "1000000 EUR"), (0, "0 EUR")],
)
def test_vonage_is_asked_once(vonage_server, value, balance):
    vonage_server.answer = Answer(200, {"value": value, "autoReload": False})
    assert str(connect(vonage_server.url).balance()) == balance
    assert len(vonage_server.asked) == 1


def balance_of(server, monkeypatch, answer):
    """What Twilio's account has left, if Balance.json is answered so."""
    usual = server.told
    is_asked = lambda request: request.path.endswith(f"/{server.sid}/Balance.json")  # noqa: E731
    monkeypatch.setattr(server, "told", lambda r: answer if is_asked(r) else usual(r))
    told = connect(server.url).balance()
    return told and str(told)


@pytest.mark.parametrize(
    ("answer", "balance"),
    [
        (Answer(200, {"currency": "USD", "balance": "12.340"}), "12.34 USD"),
        (Answer(200, {"currency": "USD", "balance": "-1"}), "-1 USD"),
        (Answer(200, {"currency": ["USD"], "balance": "5"}), "5"),
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
    assert balance_of(twilio_server, monkeypatch, answer) == balance


def test_an_amount_is_written_without_needless_digits():
    told = ["12.50", "100", "0.10000000", "0.123456789", "0"]
    assert [str(money(each, "USD")) for each in told] == [
        *("12.5 USD", "100 USD", "0.1 USD", "0.12345679 USD", "0 USD")
    ]
