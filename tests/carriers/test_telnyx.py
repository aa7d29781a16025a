"""carriers/telnyx.py: its requests, its idempotency, its signatures and its list of opt-outs."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from carrier_errors import MESSAGE_ID, NUMBER, connect, error_of, meaning, refused, send
from carrier_servers import Answer
from kits import PUBLIC_URL, REFERENCE, connected, unidentified
from kits.telnyx import PROFILE, PUBLIC_KEY, URL, TelnyxCallbacks, event, refusal, sign
from texting import carriers
from texting.carriers import OptOut, Receipt, Shown

NOON = datetime(2026, 3, 3, 17, tzinfo=UTC)
HOW = TelnyxCallbacks()


def sent(server, number=-1):
    return json.loads(server.requests[number].body)


@pytest.mark.parametrize(
    ("text", "encoding"),
    [("Your parcel is here.", "gsm7"), ("5 € [now]", "gsm7"), ("“now”", "ucs2"), ("ç", "ucs2")],
)
def test_the_encoding_is_chosen_so_that_no_character_is_replaced(telnyx_server, text, encoding):
    send(connect(telnyx_server.url), text=text)
    assert sent(telnyx_server)["encoding"] == encoding


def test_the_same_text_with_the_same_id_is_the_same_request_and_sent_once(telnyx_server):
    telnyx_server.keeps_ids = True
    carrier = connect(telnyx_server.url, public_url=PUBLIC_URL)
    first = send(carrier, valid_for=3600)
    assert send(carrier, valid_for=60) == first
    assert len(telnyx_server.texts) == 1
    assert telnyx_server.requests[0].headers["Idempotency-Key"] == MESSAGE_ID


def test_another_copy_is_another_request_whose_receipts_name_the_same_message(telnyx_server):
    telnyx_server.keeps_ids = True
    carrier = connect(telnyx_server.url, public_url=PUBLIC_URL)
    for copy in (0, 1, 1, 2):
        send(carrier, copy=copy)
    assert len(telnyx_server.texts) == 3
    keys = [each.headers["Idempotency-Key"] for each in telnyx_server.requests]
    assert len({*keys}) == 3
    assert sent(telnyx_server)["webhook_url"].endswith(f"?m={MESSAGE_ID}")


@pytest.mark.parametrize(
    ("status", "code", "means"),
    [
        (422, 10042, "for now"),
        (500, 10042, "for now"),
        (500, 10007, "in doubt"),
        (504, 10008, "in doubt"),
        (409, 10042, "in doubt"),  # the key is in use: the first request is under way
        (409, 40310, "for good"),
        (422, 40310, "for good"),
    ],
)
def test_its_own_words_are_a_doubt_only_if_they_say_so(telnyx_server, status, code, means):
    telnyx_server.answer = refusal(code, status)
    assert meaning(refused(connect(telnyx_server.url))) == means


def test_each_text_names_the_address_of_its_receipts_and_no_other_is_called(telnyx_server):
    send(connect(telnyx_server.url, public_url=PUBLIC_URL, name="us"))
    assert sent(telnyx_server)["webhook_url"] == f"{PUBLIC_URL}/carriers/us/status?m={MESSAGE_ID}"
    assert sent(telnyx_server)["use_profile_webhooks"] is False
    send(connect(telnyx_server.url))
    assert "webhook_url" not in sent(telnyx_server)


def test_a_name_is_sent_with_its_profile(telnyx_server):
    url = telnyx_server.url.replace("+15005550006", "ACME") + f"&profile={PROFILE}"
    carrier = connect(url, public_url=PUBLIC_URL)
    assert "nobody can answer" in carrier.warning
    send(carrier)
    assert (sent(telnyx_server)["from"], sent(telnyx_server)["messaging_profile_id"]) == (
        "ACME",
        PROFILE,
    )


def test_a_public_key_may_have_its_plus_signs_as_they_are():
    assert "+" in PUBLIC_KEY or "/" in PUBLIC_KEY or "=" in PUBLIC_KEY
    carrier = connect(f"{URL}?public_key={PUBLIC_KEY}")
    assert carrier.callback(HOW.report("delivered"))


def test_a_report_shows_the_text_and_then_what_became_of_it():
    carrier = connected("telnyx")
    assert carrier.callback(HOW.report("sent", message_id=MESSAGE_ID)) == [
        Shown(REFERENCE, MESSAGE_ID)
    ]
    assert carrier.callback(HOW.report("delivered", message_id=MESSAGE_ID)) == [
        Receipt(REFERENCE, True, message_id=MESSAGE_ID)
    ]


@pytest.mark.parametrize("kind", ["status", "inbound"])
def test_a_callback_counts_at_either_address_and_only_for_its_own_from(kind):
    other = event("message.received", {"id": "1", "to": [{"phone_number": "+15005550009"}]})
    assert connected("telnyx").callback(sign(other, kind)) == []
    reply = HOW.reply("hello")._replace(kind=kind)
    assert [each.text for each in unidentified(connected("telnyx"), reply)] == ["hello"]


def test_replies_that_reach_another_number_of_a_names_profile_are_its_own():
    carrier = connected("telnyx", f"&profile={PROFILE}")
    payload = {"id": "1", "from": {"phone_number": NUMBER}, "text": "STOP"}
    payload |= {"to": [{"phone_number": "+15005550009"}], "messaging_profile_id": PROFILE}
    (reply,) = carrier.callback(sign(event("message.received", payload), "inbound"))
    assert reply.number == NUMBER


@pytest.mark.parametrize("told", [{}, {"messaging_profile_id": None}], ids=["none", "null"])
def test_a_reply_to_a_stranger_without_a_profile_is_not_its_own(told):
    """Neither the URL nor the callback has a profile, which is no profile in common."""
    payload = {"id": "1", "from": {"phone_number": NUMBER}, "text": "STOP"} | told
    payload |= {"to": [{"phone_number": "+15005550009"}]}
    assert connected("telnyx").callback(sign(event("message.received", payload), "inbound")) == []


@pytest.mark.parametrize(("told", "word"), [("STOP", "STOP"), ("HELP", "HELP"), (None, None)])
def test_what_telnyx_has_answered_itself_is_told(told, word):
    payload = {"id": "1", "from": {"phone_number": NUMBER}, "text": "Stopp"}
    payload |= {"to": [{"phone_number": "+15005550006"}], "autoresponse_type": told}
    payload |= {"received_at": "2026-03-03T17:00:00.000+00:00"}
    (reply,) = connected("telnyx").callback(sign(event("message.received", payload), "inbound"))
    assert (reply.word, reply.at) == (word, NOON)


@pytest.mark.parametrize("payload", [None, [], {}, {"to": None}, {"from": "x", "to": ["y"]}])
def test_a_signed_callback_of_another_shape_says_nothing(payload):
    for kind in ("message.received", "message.finalized", None):
        assert connected("telnyx").callback(sign(event(kind, payload))) == []
    for body in (None, [], {"data": []}, {"data": {"payload": 1}}):
        assert connected("telnyx").callback(sign(body)) == []


def test_the_list_of_opt_outs_tells_the_stops_that_were_missed(telnyx_server):
    entry = {"created_at": "2026-03-03T17:00:00+00:00", "keyword": "STOP"}
    telnyx_server.opt_outs = [
        entry | {"from": NUMBER, "to": "+15005550006"},
        entry | {"from": "+15005550006", "to": "+12125550188", "keyword": "START"},
        entry | {"from": NUMBER, "to": "+15005550009"},
        entry | {"from": NUMBER, "to": "+15005550006", "keyword": "HELP"},
        {"from": NUMBER},
        None,
    ]
    carrier = connect(telnyx_server.url)
    listed = carrier.incoming(NOON - timedelta(hours=1))
    assert listed.rest is None
    assert listed.replies == [
        OptOut(NUMBER, True, "reply", NOON),
        OptOut("+12125550188", False, "reply", NOON),
    ]
    assert "created_at%5Bgte%5D=2026-03-03T16" in telnyx_server.asked[-1].path
    telnyx_server.answer = Answer(200, {"data": None})
    assert error_of(carrier.incoming, NOON).silent


def test_a_long_list_goes_on(telnyx_server):
    entry = {"created_at": "2026-03-03T17:00:00Z", "keyword": "STOP", "to": "+15005550006"}
    telnyx_server.opt_outs = [entry | {"from": f"+1212555{n:04}"} for n in range(100)]
    carrier = connect(telnyx_server.url)
    rest = carrier.incoming(NOON).rest
    telnyx_server.opt_outs = []
    assert carrier.incoming(NOON, rest) == ([], None)
    assert "page%5Bnumber%5D=2" in telnyx_server.asked[-1].path


def test_apprises_form_goes_on_to_mean_apprises_carrier():
    carrier = carriers.connect("telnyx://key@+15005550006/{to}", sending=False)
    assert "Apprise" in carrier.warning


def test_what_verifies_signatures_is_loaded_late():
    code = (
        f"import sys; from texting import carriers; carriers.connect({URL!r}); "
        "print('cryptography' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
