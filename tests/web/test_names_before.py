"""A carrier that has another name than before: callbacks at its old address, and what is kept."""

import pytest

from access.do_not_call import OptedOut
from answers import refusal
from carriers.ways import Way
from database import clock
from models import Message, Status
from samples import NEW_YORK, SECOND, TUESDAY_NOON
from sending.receipts import EarlyReceipt
from sending.replies import Reply
from signed_callbacks import PUBLIC_URL, SECRET, TWILIO, VONAGE, call_twilio, of_vonage
from stored_messages import again, store

SID, VONAGE_ID = "SM" + "1" * 32, "0A0000000123ABCD1"
RENAMED = f"{TWILIO}#name=us&was=older,twilio"


@pytest.fixture
def twilio(open_client):
    """Let Twilio call: `twilio("us", "status", {…}, carrier_url=…)` returns the response."""

    def call(name, kind, fields, carrier_url=RENAMED, **changes):
        client, fields = open_client(carrier_url, **changes), {"MessageSid": SID} | fields
        return call_twilio(client, f"/carriers/{name}/{kind}", {"To": NEW_YORK} | fields)

    return call


def given(carrier, **columns):
    """A text that a carrier has taken."""
    columns = {"finished_at": clock.now(), "carrier_reference": SID} | columns
    return store(status=Status.SENT, carrier=carrier, **columns)


DELIVERED = {"MessageStatus": "delivered"}
STOP = {"From": NEW_YORK, "Body": "STOP", "To": "+15005550006"}
START = STOP | {"Body": "START"}


@pytest.mark.parametrize("address", ["older", "us"])
@pytest.mark.parametrize("given_as", ["older", "twilio", "us", None])
def test_a_receipt_at_each_of_its_addresses_is_of_each_of_its_texts(twilio, address, given_as):
    message = given(given_as)
    assert twilio(address, "status", DELIVERED).status_code == 204
    assert again(message).status == Status.DELIVERED
    assert not EarlyReceipt.select().exists()


@pytest.mark.parametrize("address", ["twilio", "us"])
def test_a_receipt_is_of_no_text_of_another_carrier(twilio, address):
    message = given("vonage")
    assert twilio(address, "status", DELIVERED).status_code == 204
    assert again(message).status == Status.SENT


@pytest.mark.parametrize("address", ["twilio", "us"])
@pytest.mark.parametrize("given_as", ["older", "us", "vonage"])
def test_a_stop_counts_at_each_of_its_addresses_and_belongs_to_its_text(twilio, address, given_as):
    message = given(given_as)
    assert twilio(address, "inbound", STOP, stop_reply="Bye.").status_code == 204
    assert OptedOut.lists(NEW_YORK)
    reply = Reply.get()
    assert reply.carrier == "us"
    assert reply.message_id == (None if given_as == "vonage" else message.id)


def test_without_names_before_an_old_address_is_nobodys(twilio):
    message = given("twilio")
    refusal(twilio("asia", "status", DELIVERED), 404)
    for kind, fields in (("status", DELIVERED), ("inbound", STOP)):
        refusal(twilio("twilio", kind, fields, f"{TWILIO}#name=us"), 403)
    assert again(message).status == Status.SENT
    assert not OptedOut.lists(NEW_YORK)
    assert twilio("us", "status", DELIVERED, f"{TWILIO}#name=us").status_code == 204
    assert again(message).status == Status.SENT, "it is another carrier's"


def test_what_is_signed_for_one_address_counts_at_no_other(open_client):
    client, url = open_client(RENAMED), f"{PUBLIC_URL}/carriers/us/inbound"
    refusal(call_twilio(client, "/carriers/twilio/inbound", {"MessageSid": SID} | STOP, url), 403)
    assert not OptedOut.lists(NEW_YORK)


def test_what_was_captured_before_it_was_renamed_does_not_count_again(twilio):
    sid = "SM" + "2" * 32
    for text, fields in (("STOP", STOP), ("START", START | {"MessageSid": sid})):
        twilio("twilio", "inbound", fields, TWILIO)
        assert OptedOut.lists(NEW_YORK) == (text == "STOP")
    assert twilio("twilio", "inbound", STOP | {"MessageSid": "SM" + "3" * 32}).status_code == 204
    assert OptedOut.lists(NEW_YORK)
    assert twilio("twilio", "inbound", START | {"MessageSid": sid}).status_code == 204
    assert OptedOut.lists(NEW_YORK), "this START was heard before"


@pytest.fixture
def vonage(open_client):
    """Let Vonage call: `vonage("eu", "status", {…}, how="query")` returns the status of HTTP."""

    def call(name, kind, fields, how="form", carrier_url=f"{VONAGE}#name=eu&was=vonage,nexmo-2"):
        signed = of_vonage({"msisdn": NEW_YORK[1:], "to": "ACME"} | fields, SECRET, how)
        return open_client(carrier_url).open(f"/carriers/{name}/{kind}", **signed).status_code

    return call


VONAGE_DELIVERED = {"messageId": VONAGE_ID, "status": "delivered"}


@pytest.mark.parametrize("how", ["form", "json", "query"])
def test_vonage_calls_back_at_its_old_address_in_each_of_its_ways(vonage, how):
    for name in ("vonage", "nexmo-2", "eu"):
        message = given("vonage", carrier_reference=VONAGE_ID)
        assert vonage(name, "status", VONAGE_DELIVERED, how) == 204
        assert again(message).status == Status.DELIVERED
        Message.delete().execute()


@pytest.mark.parametrize("first_at", [VONAGE, f"{VONAGE}#name=eu&was=vonage"])
def test_parts_of_a_reply_that_came_before_it_was_renamed_are_of_the_reply(vonage, first_at):
    given("vonage")
    part = {"concat": "true", "concat-ref": "7", "concat-total": "2"}
    first = part | {"text": "ST", "concat-part": "1", "messageId": "A"}
    assert vonage("vonage", "inbound", first, carrier_url=first_at) == 204
    second = part | {"text": "OP", "concat-part": "2", "messageId": "B"}
    assert vonage("eu", "inbound", second) == 204
    assert [reply.text for reply in Reply.select()] == ["STOP"]
    assert OptedOut.lists(NEW_YORK)


@pytest.mark.parametrize(("was", "counts"), [(("twilio",), True), ((), False)])
def test_a_receipt_that_was_kept_under_the_old_name_is_of_a_yes_that_comes_later(
    twilio, run_both, us, at, was, counts
):
    at(TUESDAY_NOON)
    twilio("twilio", "status", DELIVERED, TWILIO)
    assert EarlyReceipt.get().carrier == "twilio"
    us.answer = SID
    store()
    run_both(TUESDAY_NOON + SECOND, [Way("us", was=was)], [us])
    assert Message.get().status == (Status.DELIVERED if counts else Status.SENT)
    assert EarlyReceipt.select().exists() != counts
