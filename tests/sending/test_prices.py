"""What texts cost: carriers say it with their yes and in receipts, and `flask usage` sums it."""

import csv
import io
import json
import random
from decimal import Decimal
from urllib.parse import quote

import pytest

import carriers
from app import create_app
from carrier_servers import HANG_UP, Answer, verdict
from carriers import Receipt
from carriers.money import Money, Priced
from carriers.ways import Way
from databases import on_both
from models import Message, Status
from samples import ALWAYS_OPEN, DAY, HOUR, LONDON, NEW_YORK, TUESDAY_NOON
from sending import receipts, retention, waiting
from sending.attempts import Attempt
from signed_callbacks import SECRET, of_vonage
from stored_messages import again, claim, decide_on, held, key_named, store

pytestmark = pytest.mark.usefixtures("database_url")

LATER = TUESDAY_NOON + HOUR
PUBLIC = "https://sms.example.com"
TWO_PARTS = "x" * 161


def euros(amount):
    return Money(Decimal(amount), "EUR")


@pytest.fixture
def billed(run, at):
    """Run `flask usage --by carrier` in March: texts and price by carrier and currency."""

    def usage(*words):
        at(TUESDAY_NOON)
        rows = json.loads(run("usage", "--by", "carrier", "--json", *words))
        return [(row["carrier"], row["texts"], row["price"], row["currency"]) for row in rows]

    return usage


def take(price=None, reference="R1", carrier="vonage", **columns):
    """Have a carrier take a text at a price."""
    message = held(Status.SENDING, carrier=carrier, **columns)
    said = Priced.of(reference, price)
    numbers = {message.id: message.claim_number}
    receipts.sent({message.id: said}, TUESDAY_NOON, Way(carrier), numbers)
    return message


def report(price=None, reference="R1", delivered=True, message=None, carrier="vonage"):
    """Record a carrier's receipt."""
    given = message and str(message.id)
    said = Receipt(reference, delivered, None, message_id=given, price=price)
    receipts.record_receipts([said], LATER, Way(carrier))


# From the carrier to the bill


def test_a_price_is_billed_from_vonages_answer_and_then_by_its_receipt(
    run_pass, vonage_server, settings, billed
):
    url = vonage_server.url + f"&signature_secret={quote(SECRET)}"
    carrier = carriers.connect(url)
    vonage_server.answer = verdict({"status": "0", "message-id": "0A1", "message-price": "0.05"})
    store()
    run_pass(TUESDAY_NOON, carrier, **ALWAYS_OPEN)
    assert billed() == [("vonage", 1, "0.05", "EUR")]
    client = create_app(settings._replace(carrier_url=url, public_url=PUBLIC)).test_client()
    fields = {"messageId": "0A1", "to": vonage_server.sender, "status": "delivered"}
    for price in ("0.04000000", "0.04000000"):
        callback = of_vonage(fields | {"price": price}, SECRET)
        assert client.open("/carriers/vonage/status", **callback).status_code == 204
        assert billed() == [("vonage", 1, "0.04", "EUR")]
    carrier.close()


@on_both
@pytest.mark.parametrize("reference", [{"reference": "r"}, {}], ids=["r", "none"])
def test_a_webhooks_price_is_billed_with_a_reference_and_without(
    run_pass, webhook_server, billed, reference
):
    webhook_server.answer = Answer(200, {"price": 0.0333, "currency": "CHF"} | reference)
    carrier, message = carriers.connect(webhook_server.url), store()
    run_pass(TUESDAY_NOON, carrier, **ALWAYS_OPEN)
    assert again(message).carrier_reference == reference.get("reference")
    assert billed() == [("webhook", 1, "0.0333", "CHF")]
    carrier.close()


def test_parts_that_a_carrier_took_of_a_text_in_doubt_are_billed(run_pass, vonage_server, billed):
    vonage_server.answer = verdict(
        {"status": "0", "message-price": "0.05"}, {"status": "5", "message-price": "0.05"}
    )
    carrier = carriers.connect(vonage_server.url)
    store(message=TWO_PARTS)
    run_pass(TUESDAY_NOON, carrier, **ALWAYS_OPEN)
    assert billed() == [("vonage", 0, "0.05", "EUR")]
    vonage_server.answer = verdict(*[{"status": "0", "message-price": "0.05"}] * 2)
    run_pass(LATER, carrier, **ALWAYS_OPEN)
    assert billed() == [("vonage", 1, "0.15", "EUR")]
    carrier.close()


@on_both
def test_what_twilio_lists_of_a_text_in_doubt_is_billed(run_pass, twilio_server, billed):
    carrier = carriers.connect(twilio_server.url)
    twilio_server.answer = HANG_UP
    store()
    run_pass(TUESDAY_NOON, carrier, **ALWAYS_OPEN)
    twilio_server.answer = None
    listed = {"to": NEW_YORK, "body": "Hello", "from": twilio_server.sender, "status": "sent"}
    listed |= {"sid": "SM1", "price": "-0.00750", "price_unit": "USD"}
    twilio_server.messages.append(listed | {"date_created": "Sun, 03 Mar 2080 17:00:00 GMT"})
    run_pass(LATER, carrier, **ALWAYS_OPEN)
    assert len(twilio_server.texts) == 1
    assert billed() == [("twilio", 1, "0.0075", "USD")]
    carrier.close()


# Which word counts


@on_both
@pytest.mark.parametrize(
    ("answered", "reported", "price"),
    [
        ("0.05", ["0.04"], "0.04"),
        ("0.05", [None], "0.05"),
        (None, ["0.04"], "0.04"),
        (None, [None], None),
        ("0.05", ["0"], "0"),
        ("0.05", ["0.04", "0.04", "0.04"], "0.04"),
    ],
)
@pytest.mark.parametrize("early", [True, False])
def test_the_receipts_price_replaces_the_answers(billed, answered, reported, price, early):
    message = held(Status.SENDING, carrier="vonage")
    said = [Receipt("R1", True, price=each and euros(each)) for each in reported]
    numbers = {message.id: message.claim_number}
    yes = {message.id: Priced.of("R1", answered and euros(answered))}
    if not early:
        receipts.sent(yes, TUESDAY_NOON, Way("vonage"), numbers)
    for each in said:
        receipts.record_receipts([each], LATER, Way("vonage"))
    if early:
        receipts.sent(yes, TUESDAY_NOON, Way("vonage"), numbers)
    assert billed() == [("vonage", 1, price, "EUR" if price else None)]


@on_both
@pytest.mark.parametrize("order", [("P1", "P2"), ("P2", "P1"), ("P2", "P2", "P1", "P1")])
@pytest.mark.parametrize("early", [True, False])
def test_the_answers_price_of_all_parts_outlasts_the_receipts_of_each(billed, order, early):
    message = held(Status.SENDING, carrier="vonage", message=TWO_PARTS)
    yes = {message.id: Priced.of("P2", euros("0.10"))}
    said = [Receipt(each, True, message_id=str(message.id), price=euros("0.05")) for each in order]
    steps = [lambda: [receipts.record_receipts([each], LATER, Way("vonage")) for each in said]]
    steps.insert(early, lambda: receipts.sent(yes, TUESDAY_NOON, Way("vonage")))
    for step in steps:
        step()
    assert again(message).status == Status.DELIVERED
    assert billed() == [("vonage", 1, "0.1", "EUR")]


@on_both
def test_receipts_recorded_at_once_keep_their_own_prices(billed):
    for number, reference in enumerate("ABC"):
        take(euros("1"), reference, country=["US", "GB", "FR"][number])
    said = [Receipt(each, True, price=euros(f"0.{n}")) for n, each in enumerate("ABC", 1)]
    receipts.record_receipts(said, LATER, Way("vonage"))
    assert [price for _, _, price, _ in billed()] == ["0.3", "0.2", "0.1"]


@on_both
def test_each_copy_is_billed_where_it_was_given(billed):
    message = take(euros("0.05"))
    report(euros("0.05"), delivered=False)
    assert decide_on(again(message)).retry(LATER, 3 * DAY)
    assert billed() == [("vonage", 0, "0.05", "EUR")]
    waiting.promote(LATER)
    (second,) = claim(1)
    said = {message.id: Priced.of("R2", euros("0.07"))}
    receipts.sent(said, LATER, Way("fake"), {message.id: second.claim_number})
    report(euros("0.06"))  # of the first one, once more
    assert billed() == [("fake", 1, "0.07", "EUR"), ("vonage", 0, "0.06", "EUR")]


# The sums


@on_both
def test_sums_are_exact(billed):
    chance = random.Random(1)
    prices = [Decimal(chance.randrange(10**12)).scaleb(-8) for _ in range(100)]
    for number, price in enumerate([*prices, Decimal("0.1"), Decimal("0.2")]):
        take(Money(price, "USD"), f"R{number}")
    ((_, texts, price, _),) = billed()
    assert (texts, Decimal(price)) == (102, sum(prices) + Decimal("0.3"))


def test_nothing_said_is_a_dash_null_or_an_empty_cell_and_a_currency_has_its_row(run, billed):
    take(None, "A")
    take(Money(Decimal("0.02"), "USD"), "B", "webhook")
    take(Money(Decimal("0.03"), "CHF"), "C", "webhook")
    take(Money(Decimal("0.04"), None), "D", "webhook")
    assert billed() == [
        ("vonage", 1, None, None),
        ("webhook", 3, "0.04", None),
        ("webhook", 0, "0.03", "CHF"),
        ("webhook", 0, "0.02", "USD"),
    ]
    rows = [*csv.DictReader(io.StringIO(run("usage", "--by", "carrier", "--csv")))]
    assert [(row["price"], row["currency"]) for row in rows] == [
        *(("", ""), ("0.04", ""), ("0.03", "CHF"), ("0.02", "USD"))
    ]
    lines = run("usage", "--by", "carrier").splitlines()
    assert [line.split()[-3:] for line in lines] == [
        ["carrier", "price", "currency"],
        ["vonage", "-", "-"],
        ["webhook", "0.04", "-"],
        ["webhook", "0.03", "CHF"],
        ["webhook", "0.02", "USD"],
    ]


def test_prices_are_those_of_a_key_and_of_the_month_in_which_a_text_was_accepted(billed):
    take(euros("0.05"), "A")
    take(euros("0.06"), "B", key=key_named("shop"))
    message = take(euros("0.07"), "C", now=TUESDAY_NOON - 30 * DAY)
    assert again(message).created_at < TUESDAY_NOON - DAY
    assert billed("--key", "app") == [("vonage", 1, "0.05", "EUR")]
    assert billed("--month", "2026-02") == [("vonage", 1, "0.07", "EUR")]


@on_both
def test_redaction_changes_no_price_and_what_is_purged_is_no_more_in_the_sums(billed, run):
    take(euros("0.05"), "A")
    take(euros("0.06"), "B", to=LONDON)
    Message.update(finished_at=TUESDAY_NOON - DAY).execute()
    retention.redact(TUESDAY_NOON, TUESDAY_NOON)
    assert billed() == [("vonage", 2, "0.11", "EUR")]
    retention.purge(TUESDAY_NOON, TUESDAY_NOON)
    assert billed() == []


@on_both
def test_a_month_is_summed_in_the_database():
    """However many attempts it has, one row comes back for each country, carrier and currency."""
    for number in range(50):
        take(euros(number), f"R{number}")
    ((_, *of, total),) = Attempt.prices(Message.created_at == TUESDAY_NOON)
    assert (of, total) == (["US", "vonage", "EUR"], sum(range(50)))
