"""Callbacks are believed once: no captured one counts again, whole or divided in another way."""

import base64
import hashlib
import hmac
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qsl, quote, urlencode

import pytest

from samples import LONDON, NEW_YORK
from signed_callbacks import (
    FORM,
    PUBLIC_URL,
    SECRET,
    TOKEN,
    TWILIO,
    VONAGE,
    of_twilio,
    of_vonage,
)
from stored_messages import again, store
from texting import carriers
from texting.access import do_not_call
from texting.access.do_not_call import OptedOut
from texting.database import clock, db
from texting.messages.model import Status
from texting.replies.opt_outs import OptOutMessage

INBOUND, STATUS = f"{PUBLIC_URL}/carriers/twilio/inbound", f"{PUBLIC_URL}/carriers/twilio/status"
SENDERS = {"FromCity": "NEW YORK", "FromCountry": "US", "FromState": "NY", "FromZip": "10001"}
REST = {"NumMedia": "0", "NumSegments": "1", "ToCountry": "US"}


@pytest.fixture
def twilio(open_client):
    return open_client(TWILIO)


def sid(number):
    return f"SMcccccccc{number:024x}"


def reply(text, number=1, sender=NEW_YORK):
    """A reply as Twilio sends it."""
    id = {"MessageSid": sid(number), "SmsMessageSid": sid(number), "SmsSid": sid(number)}
    fields = {"AccountSid": "AC1", "Body": text, "From": sender, "To": "+15005550006"}
    return of_twilio(INBOUND, fields | SENDERS | REST | id, TOKEN)


def say(client, callback, path="/carriers/twilio/inbound"):
    return client.open(path, **callback).status_code


def divided(callback, fields):
    """A captured callback with its names and values divided in another way."""
    return callback | {"data": urlencode(fields).encode()}


@pytest.mark.parametrize(
    ("said", "is_listed"),
    [
        ([("STOP", 1), ("START", 2)], False),
        ([("STOP", 1), ("START", 2), ("STOP", 3), ("START", 2)], True),
        ([("STOP", 1), ("START", 2), ("STOP", 3), ("START", 2), ("START", 4)], False),
        ([("STOP", 1), ("START", 2), ("STOP", 1)], False),
        # A SID counts once, whatever else is signed
        ([("STOP", 1), ("START", 1), ("START", 1)], True),
    ],
)
def test_a_captured_reply_counts_once(twilio, said, is_listed):
    for text, number in said:
        assert say(twilio, reply(text, number)) == 204
    assert OptedOut.lists(NEW_YORK) == is_listed


def test_a_captured_report_of_an_opt_out_counts_once(twilio):
    fields = {"MessageSid": sid(1), "MessageStatus": "failed", "ErrorCode": "21610", "To": LONDON}
    report = of_twilio(STATUS, fields, TOKEN)
    assert say(twilio, report, "/carriers/twilio/status") == 204
    assert do_not_call.remove([LONDON], clock.now(), "shell", opted_out=True) == 1
    assert say(twilio, report, "/carriers/twilio/status") == 204
    assert not OptedOut.lists(LONDON)


def test_of_two_at_once_one_counts(twilio, database_url):
    """Carriers repeat a callback while the first one is still being recorded."""
    with ThreadPoolExecutor(8) as pool:
        for number in range(5):
            ids = (f"twilio {sid(number)}", f"twilio signature {number}")
            noted = pool.map(note, [ids] * 8)
            assert sum(noted) == 1


def note(ids):
    try:
        with db.atomic():
            return OptOutMessage.note(ids, clock.now())
    finally:
        db.close()


START = {"Body": "START", "From": LONDON}


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        # From twice
        (f"STARTFrom{LONDON}", [*START.items(), ("From", NEW_YORK), "FromCity"]),
        (f"STARTFrom{LONDON}FromA", [*START.items(), ("FromA", f"From{NEW_YORK}"), "FromCity"]),
        (f"STARTFrom{LONDON}From", [*START.items(), ("FromFro", f"m{NEW_YORK}"), "FromCity"]),
        (f"STARTFrom{LONDON}FromB-", [*START.items(), ("FromB-From", NEW_YORK), "FromCity"]),
    ],
)
def test_a_text_cannot_become_the_start_of_another_number(twilio, text, fields):
    """A sender who has captured the callback of a text of their own divides it anew."""
    assert say(twilio, reply("STOP", 1, LONDON)) == 204
    own = reply(text, 2)
    assert say(twilio, own) in (204, 403)
    assert OptedOut.lists(LONDON)
    rest = SENDERS | REST | {"MessageSid": sid(2), "SmsMessageSid": sid(2), "SmsSid": sid(2)}
    forged = [("AccountSid", "AC1"), *(each for each in fields if each != "FromCity")]
    forged = divided(own, [*forged, *rest.items(), ("To", "+15005550006")])
    assert say(twilio, forged) == 403
    assert OptedOut.lists(LONDON)


@pytest.mark.parametrize(
    "hidden",
    [
        {"MessageSid": sid(2)[:9], "aX": ""},
        {"MessageSid": f"{sid(2)}NumMedia0", "NumMedia": None},
        {"FromZip": f"10001MessageSid{sid(2)}", "MessageSid": None},
        {"Messag": f"eSid{sid(2)}", "MessageSid": None},
    ],
)
def test_a_captured_start_counts_once_however_its_fields_are_divided(twilio, hidden):
    """The SID may be cut short, so that a name begins within it, made longer, or hidden."""
    start = reply("START", 2)
    for callback in (reply("STOP", 1), start, reply("STOP", 3)):
        say(twilio, callback)
    fields = dict(_fields(start)) | hidden
    if "aX" in fields:  # takes all that follows
        del fields["aX"]
        names = [name for name in sorted(fields) if name > "MessageSid"]
        tail = sid(2)[9:] + "".join(f"{name}{fields.pop(name)}" for name in names)
        cut = next(n for n, each in enumerate(tail) if each.isupper())
        fields[tail[:cut]] = tail[cut:]
    kept = {name: value for name, value in fields.items() if value is not None}
    forged = divided(start, kept)
    assert "".join(map("".join, sorted(kept.items()))) == "".join(
        map("".join, sorted(_fields(start)))
    )
    assert say(twilio, forged) in (204, 403)
    assert OptedOut.lists(NEW_YORK)


def _fields(callback):
    return parse_qsl(callback["data"].decode())


def test_what_is_moved_into_the_query_counts_for_nothing(twilio):
    """An inbound address may have a query of its own, which ends where the fields begin."""
    say(twilio, reply("STOP", 1, LONDON))
    text = f"hi&{urlencode(START)}&z="
    fields = {"Body": text, "From": NEW_YORK, "MessageSid": sid(2)}
    own = of_twilio(f"{INBOUND}?a=b", fields, TOKEN)
    moved = divided(own, {"From": NEW_YORK, "MessageSid": sid(2)})
    path = f"/carriers/twilio/inbound?a=bBody{text}"
    assert twilio.open(path, **moved).status_code == 204
    assert OptedOut.lists(LONDON)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ([("A", "1"), ("A", "1"), ("B", "2")], 204),
        ([("A", "1"), ("A", "2")], 403),
        *(([(name, "1")], 403) for name in ("A-B", "A B", "A_B", "É", "", "A+")),
        ([("MediaUrl0", "https://media.example.com/?a=b")], 204),
    ],
)
def test_twilio_names_its_fields_by_letters_and_digits_and_once(twilio, fields, code):
    signed = "".join(f"{name}{value}" for name, value in sorted(set(fields)))
    mac = hmac.new(TOKEN.encode(), f"{INBOUND}{signed}".encode(), hashlib.sha1).digest()
    signature = base64.b64encode(mac).decode()
    headers = {"X-Twilio-Signature": signature, "Content-Type": FORM}
    callback = {"method": "POST", "data": urlencode(fields).encode(), "headers": headers}
    assert say(twilio, callback) == code


def test_an_ordinary_text_may_hold_the_names_of_fields(twilio):
    assert say(twilio, reply("From now on my MessageSid is From+12125550123")) == 204


# Vonage


def vonage_reply(text, id, **fields):
    return {"msisdn": NEW_YORK[1:], "to": "15005550006", "text": text, "messageId": id} | fields


def test_a_line_at_the_start_asks_for_the_method():
    line = carriers.connect(VONAGE, public_url=PUBLIC_URL).warning
    assert "signature_method" in line
    assert "sha256" in line
    assert SECRET not in line
    named = carriers.connect(f"{VONAGE}&signature_method=sha256", public_url=PUBLIC_URL)
    assert "signature_method" not in named.warning


US, EU = "15005550006", "447700900000"
OF_KEY = {"api-key": "key"}


def both(open_client, us, eu, keys=("key", "key")):
    """A client of two Vonage carriers with one signature secret, which send from these."""
    urls = [
        f"vonage://{key}:s3cret@{sender}?signature_secret={quote(SECRET)}#name={name}"
        for key, sender, name in zip(keys, (us, eu), ("us", "eu"), strict=True)
    ]
    return open_client(" ".join(urls))


@pytest.mark.parametrize("how", ["form", "json", "query"])
def test_a_callback_of_vonage_for_one_sender_counts_at_no_other(open_client, how):
    client = both(open_client, US, f"%2B{EU}")
    stop = of_vonage(vonage_reply("STOP", "A"), SECRET, how)
    start = of_vonage(vonage_reply("START", "B", to=EU), SECRET, how)
    for callback, name, listed in (
        (stop, "eu", False),
        (stop, "us", True),
        (start, "us", True),
        (start, "eu", False),
    ):
        assert say(client, callback, f"/carriers/{name}/inbound") == 204
        assert OptedOut.lists(NEW_YORK) == listed


@pytest.mark.parametrize("name", ["us", "eu"])
@pytest.mark.parametrize(("us", "eu"), [(US, EU), (US, "ACME"), ("ACME", "Example")])
def test_a_receipt_of_vonage_for_one_sender_counts_at_no_other(open_client, us, eu, name):
    client = both(open_client, us, eu)
    columns = {"status": Status.SENT, "carrier_reference": "A", "finished_at": clock.now()}
    texts = [store(carrier=each, **columns) for each in ("us", "eu")]
    fields = {"messageId": "A", "msisdn": NEW_YORK[1:], "status": "delivered", "err-code": "0"}
    callback = of_vonage(fields | {"to": us if name == "us" else eu}, SECRET)
    for each in ("us", "eu"):
        assert say(client, callback, f"/carriers/{each}/status") == 204
    delivered = [each.carrier for each in map(again, texts) if each.status == Status.DELIVERED]
    assert delivered == [name]


@pytest.mark.parametrize("how", ["form", "json", "query"])
@pytest.mark.parametrize(
    ("keys", "senders", "named"),
    [
        *((("key", "key"), (US, US), named) for named in ({}, OF_KEY)),
        *((("key", "key"), ("ACME", "ACME"), named) for named in ({}, OF_KEY)),
        *((("key", "key"), ("ACME", "Example"), named) for named in ({}, OF_KEY)),
        (("key", "other"), ("ACME", "ACME"), OF_KEY),
    ],
)
def test_a_captured_reply_of_vonage_counts_once_over_the_carriers_of_its_account(
    open_client, keys, senders, named, how
):
    client, captured = both(open_client, *senders, keys), {}
    for text, id, name, is_listed in (
        *(("STOP", "A", "us", True), ("START", "B", "us", False), ("STOP", "C", "us", True)),
        *(("START", "B", "us", True), ("START", "B", "eu", True)),
    ):
        if id not in captured:
            captured[id] = of_vonage(vonage_reply(text, id, **named), SECRET, how)
        assert say(client, captured[id], f"/carriers/{name}/inbound") == 204
        assert OptedOut.lists(NEW_YORK) == is_listed


def test_two_accounts_of_vonage_may_use_the_same_id(open_client):
    client = both(open_client, US, EU, ("key", "other"))
    say(client, of_vonage(vonage_reply("STOP", "A"), SECRET), "/carriers/us/inbound")
    say(client, of_vonage(vonage_reply("START", "A", to=EU), SECRET), "/carriers/eu/inbound")
    assert not OptedOut.lists(NEW_YORK)
