"""Callbacks of whichever carrier: what each of them does, and that nobody else can do it."""

import pytest

from answers import refusal
from kits import CLASSES, KITS, NUMBER, PUBLIC_URL, REFERENCE, WITH_CALLBACKS, asked
from samples import HOUR, NEW_YORK, TUESDAY_NOON
from stored_messages import SENDER, again, held, store
from texting.access.do_not_call import DoNotCall, OptedOut
from texting.database import clock
from texting.messages import receipts
from texting.messages.attempts import Attempt, Result
from texting.messages.early_receipts import EarlyReceipt
from texting.messages.model import Status
from texting.replies.model import Reply
from texting.reports.arrivals import arrivals

HOW = {name: KITS[name].callbacks for name in WITH_CALLBACKS}
by_all = pytest.mark.parametrize("name", HOW)
PATHS = [f"/carriers/{name}/{kind}" for name in HOW for kind in ("status", "inbound")]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "FOO"]
assert NUMBER == NEW_YORK


def understood(client, callback):
    response = client.open(**asked(callback))
    assert (response.status_code, response.data) == (204, b"")


def refused(client, callback, **changes):
    refusal(client.open(**asked(callback) | changes), 403)


def status_of(name, *, is_last, is_good=True):
    """A status of the carrier's, and its code."""
    return next(
        (status, code)
        for status, code, became in HOW[name].statuses
        if bool(became) == is_last and (not is_last or (became == "delivered") == is_good)
    )


def sent(name, **columns):
    of = {"carrier_reference": REFERENCE, "carrier": name, "finished_at": TUESDAY_NOON}
    return held(Status.SENT, **of | columns)


def in_doubt(name):
    of = {"in_doubt_with": name, "in_doubt": 1, "in_doubt_since": TUESDAY_NOON, "attempts": 1}
    return store(status=Status.SCHEDULED, **of)


def under_way(name):
    of = {"claimed_by": SENDER, "claimed_at": TUESDAY_NOON}
    return store(status=Status.SENDING, carrier=name, claimed_for=name, **of)


def unchanged(message):
    assert again(message).status == Status.SENT
    assert not DoNotCall.select().exists()
    assert not Reply.select().exists()
    assert not EarlyReceipt.select().exists()


@by_all
@pytest.mark.parametrize("is_good", [True, False])
def test_a_receipt_is_the_last_word_on_its_text(open_client, name, is_good):
    message = sent(name)
    callback = HOW[name].report(*status_of(name, is_last=True, is_good=is_good))
    understood(open_client(HOW[name].url), callback)
    assert again(message).status == (Status.DELIVERED if is_good else Status.UNDELIVERED)


@by_all
def test_a_stop_counts(open_client, name):
    sent(name)
    client = open_client(HOW[name].url)
    understood(client, HOW[name].reply("STOP"))
    assert OptedOut.lists(NUMBER)
    assert [each.carrier for each in Reply.select()] == [name]


@by_all
def test_a_callback_by_another_secret_is_refused_and_changes_nothing(open_client, name):
    message, how = sent(name), HOW[name]
    client = open_client(how.url)
    refused(client, how.report("delivered", secret=how.another_secret))
    refused(client, how.reply("STOP", secret=how.another_secret))
    for callback in how.forgeries():
        if len(callback.body) <= 64 * 1024 and callback.url.startswith(PUBLIC_URL):
            refused(client, callback)
    unchanged(message)


@by_all
@pytest.mark.parametrize("method", METHODS)
def test_only_the_carriers_methods_are_its(open_client, name, method):
    message, how = sent(name), HOW[name]
    callback = how.report("delivered")
    if method not in CLASSES[name].callback_methods:
        answer = open_client(how.url).open(**asked(callback) | {"method": method})
        assert answer.status_code == 403
        unchanged(message)


@by_all
@pytest.mark.parametrize("url", [kit.url for kit in KITS.values()])
def test_with_a_carrier_that_cannot_verify_it_each_is_refused(open_client, name, url):
    message = sent(name)
    for set_up in ((url, PUBLIC_URL), (HOW[name].url, None), (None, PUBLIC_URL)):
        client = open_client(*set_up)
        refused(client, HOW[name].report("delivered"))
        refused(client, HOW[name].reply("STOP"))
    unchanged(message)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "asked",
    [
        {"data": b""},
        {"data": b"Body=STOP", "content_type": "application/x-www-form-urlencoded"},
        {"data": b"{", "content_type": "application/json"},
        {"data": b"a" * (64 * 1024 + 1)},
        {"data": b"a", "environ_overrides": {"CONTENT_LENGTH": "1000"}},
        {"data": b"a", "headers": {"X-Twilio-Signature": "forged"}},
        {"data": b"sig=forged", "content_type": "application/x-www-form-urlencoded"},
    ],
    ids=lambda asked: str(asked)[:40],
)
def test_strangers_cannot_tell_which_carrier_is_set_up(open_client, path, asked):
    urls = [None, *(kit.url for kit in KITS.values()), *(how.url for how in HOW.values())]
    urls.append(" ".join(how.url for how in HOW.values()))
    told = [open_client(url, at).post(path, **asked) for url in urls for at in (PUBLIC_URL, None)]
    assert len({(each.status_code, each.json["message"]) for each in told}) == 1


# A text in doubt


@by_all
@pytest.mark.parametrize("put", [in_doubt, under_way])
@pytest.mark.parametrize(
    ("which", "became"),
    [
        ({"is_last": False}, Status.SENT),
        ({"is_last": True}, Status.DELIVERED),
        ({"is_last": True, "is_good": False}, Status.UNDELIVERED),
    ],
    ids=str,
)
def test_any_report_on_a_text_in_doubt_settles_it_at_once(open_client, name, put, which, became):
    message, client = put(name), open_client(HOW[name].url)
    callback = HOW[name].report(*status_of(name, **which), message_id=str(message.id))
    reference = HOW[name].reference(str(message.id))
    for _ in range(2):
        understood(client, callback)
        found = again(message)
        assert (found.status, found.carrier_reference) == (became, reference)
        assert (found.attempts, found.in_doubt) == (1, 0)
    receipts.record_accepted({message.id: reference}, clock.now(), name, {message.id: 1})
    assert again(message).status == became


@by_all
def test_under_an_older_name_it_settles_the_doubt_of_that_name(open_client, name):
    messages = [in_doubt(each) for each in ("older", name)]
    client = open_client(HOW[name].url)
    for message in messages:
        said = status_of(name, is_last=False)
        named = {"message_id": str(message.id), "address": f"{PUBLIC_URL}/carriers/older/status"}
        understood(client, HOW[name].report(*said, **named))
    assert [again(each).status for each in messages] == [Status.SENT, Status.SCHEDULED]


@by_all
def test_a_report_of_one_carrier_settles_no_doubt_with_another(open_client, name):
    message = in_doubt("another")
    client = open_client(f"{HOW[name].url} json://127.0.0.1/{{to}}#name=another")
    for is_last in (False, True):
        status, code = status_of(name, is_last=is_last)
        understood(client, HOW[name].report(status, code, message_id=str(message.id)))
    assert again(message).status == Status.SCHEDULED
    (copy,) = Attempt.select()
    assert copy.result == Result.UNCLEAR


@by_all
@pytest.mark.parametrize("id", ["", "x", "019cb4b5-0000-7000-8000-000000000000", "%00", "%FF"])
def test_a_report_that_names_no_message_of_ours_changes_none(open_client, name, id):
    message, client = in_doubt(name), open_client(HOW[name].url)
    for is_last in (False, True):
        understood(client, HOW[name].report(*status_of(name, is_last=is_last), message_id=id))
    assert again(message).status == Status.SCHEDULED
    assert EarlyReceipt.select().count() == 1


def troubles(client):
    kinds = client.get("/healthz?strict").json.get("details", {"problems": []})["problems"]
    return [kind for kind in kinds if kind in ("receipts", "failing")]


@by_all
@pytest.mark.parametrize("is_named", [True, False])
def test_receipts_come_once_any_report_does_that_is_not_final(open_client, at, name, is_named):
    at(TUESDAY_NOON + HOUR / 2)
    message, *others = (sent(name, carrier_reference=ref) for ref in (REFERENCE, *"abcdefghi"))
    client = open_client(HOW[name].url)
    assert troubles(client) == ["receipts"]
    named = {"message_id": str(message.id)} if is_named else {}
    understood(client, HOW[name].report(*status_of(name, is_last=False), **named))
    assert troubles(client) == []
    (heard,) = arrivals(clock.now(), [name])
    assert (heard.unheard, heard.pending) == (len(others), 1)
    assert not EarlyReceipt.select().exists()


@by_all
def test_nothing_that_a_report_names_gets_into_the_log(open_client, name, caplog):
    message, client = in_doubt(name), open_client(HOW[name].url)
    with caplog.at_level("DEBUG"):
        status, code = status_of(name, is_last=False)
        understood(client, HOW[name].report(status, code, message_id=str(message.id)))
    assert f"messages sent, as a report of {name} shows: 1" in caplog.text
    for secret in (NUMBER[1:], REFERENCE):
        assert secret not in caplog.text
