"""carriers/smsgate.py: texts with our ids, webhooks that it registers, and numbers of replies."""

import json
import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from carrier_errors import MESSAGE_ID, NUMBER, connect, meaning, refused, send
from carrier_servers import HANG_UP, Answer
from kits import PUBLIC_URL, connected
from kits.smsgate import SmsgateCallbacks, event, refusal, sign
from samples import TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import store
from texting.carriers import CarrierError, IncomingText, Shown, key_of
from texting.sending.runtime import Clock, Runtime

NOON = datetime(2026, 3, 3, 17, tzinfo=UTC)
HOW = SmsgateCallbacks()


def sent(server):
    return json.loads(server.requests[-1].body)


def test_a_text_has_the_id_of_its_message_and_the_end_of_its_time(smsgate_server):
    before = datetime.now(UTC).replace(microsecond=0)
    assert send(connect(smsgate_server.url), valid_for=600) == MESSAGE_ID
    assert sent(smsgate_server)["id"] == MESSAGE_ID
    until = datetime.fromisoformat(sent(smsgate_server)["validUntil"])
    assert timedelta(seconds=600) <= until - before <= timedelta(seconds=660)
    assert sent(smsgate_server)["withDeliveryReport"] is True
    assert "simNumber" not in sent(smsgate_server)


def test_the_sim_card_can_be_chosen(smsgate_server):
    send(connect(f"{smsgate_server.url}&sim=2"))
    assert sent(smsgate_server)["simNumber"] == 2


def test_a_text_that_was_taken_before_is_taken_and_can_be_looked_up(smsgate_server):
    smsgate_server.keeps_ids = True
    carrier = connect(smsgate_server.url)
    assert carrier.look_up(MESSAGE_ID) is None
    assert [send(carrier), send(carrier)] == [MESSAGE_ID] * 2
    assert len(smsgate_server.texts) == 1
    assert carrier.look_up(MESSAGE_ID) == MESSAGE_ID


@pytest.mark.parametrize("body", [b"<html>", {}], ids=str)
def test_only_its_own_404_says_that_a_text_is_not_there(smsgate_server, body):
    """Not that of a proxy, or the text would go twice."""
    smsgate_server.answer = Answer(404, body)
    with pytest.raises(CarrierError):
        connect(smsgate_server.url).look_up(MESSAGE_ID)


def test_another_copy_has_an_id_of_its_own_by_which_it_is_looked_up_and_reported(smsgate_server):
    smsgate_server.keeps_ids = True
    carrier = connect(smsgate_server.url)
    ids = [send(carrier), *(send(carrier, copy=copy) for copy in (1, 1, 12))]
    assert len({*ids}) == len(smsgate_server.texts) == 3
    assert all(len(id) <= 36 for id in ids)
    assert carrier.look_up(key_of(MESSAGE_ID, 1)) == ids[1]
    assert carrier.look_up(key_of(MESSAGE_ID, 2)) is None
    for id in ids:
        (told,) = connected("smsgate").callback(HOW.report("sms:sent", message_id=id))
        assert (told.reference, UUID(told.message_id)) == (id, UUID(MESSAGE_ID))


def test_a_refusal_about_phones_is_one_of_the_account(smsgate_server):
    smsgate_server.answer = refusal(400, "device not found")
    assert meaning(refused(connect(smsgate_server.url))) == "the account"


def test_the_webhooks_are_registered_with_fixed_ids(smsgate_server):
    connect(smsgate_server.url, public_url=PUBLIC_URL, name="phone").register()
    base = f"{PUBLIC_URL}/carriers/phone"
    assert {hook["event"]: hook["url"] for hook in smsgate_server.hooks.values()} == {
        **dict.fromkeys(("sms:sent", "sms:delivered", "sms:failed"), f"{base}/status"),
        "sms:received": f"{base}/inbound",
    }
    assert len(smsgate_server.hooks) == 4
    assert all(len(id) <= 36 for id in smsgate_server.hooks)
    connect(smsgate_server.url, public_url=PUBLIC_URL, name="phone").register()
    assert len(smsgate_server.hooks) == 4


class Ahead(Clock):
    """A clock by which some seconds have passed at once."""

    passed = 0

    def monotonic(self):
        return super().monotonic() + self.passed


@pytest.mark.parametrize("answer", [HANG_UP, Answer(500), refusal(401)], ids=repr)
def test_the_scheduler_registers_them_beside_texts_until_it_succeeds(
    smsgate_server, monkeypatch, settings, at, caplog, answer
):
    """Without any text, and however slowly it fails: texts go meanwhile."""
    take, refuses, fails = smsgate_server.take, threading.Event(), True

    def take_slowly(request):
        if fails and request.path.endswith("/webhooks"):
            assert refuses.wait(30), "a text went meanwhile"
            return answer
        result = take(request)
        if smsgate_server.texts:
            refuses.set()
        return result

    monkeypatch.setattr(smsgate_server, "take", take_slowly)
    at(TUESDAY_NOON)
    clock = Ahead()
    one = Scheduler(settings, connect(smsgate_server.url, public_url=PUBLIC_URL), Runtime(clock))
    store()
    assert one.run_pass()["sent"] == 1
    assert caplog.text.count("carrier smsgate is not told where to call back: ") == 1
    assert smsgate_server.hooks == {}
    fails = False
    for seconds, hooks in ((20, 0), (60, 4)):
        clock.passed = seconds
        one.run_pass()
        assert len(smsgate_server.hooks) == hooks


@pytest.mark.parametrize(
    ("has_key", "public_url", "words"),
    [(True, "http://sms.example.com", "https alone"), (False, PUBLIC_URL, "no ?key=")],
)
def test_without_https_or_key_no_webhook_is_registered(smsgate_server, has_key, public_url, words):
    url = smsgate_server.url if has_key else smsgate_server.url.partition("?")[0]
    carrier = connect(url, public_url=public_url)
    assert words in carrier.warning
    assert not carrier.tells_receipts
    assert not carrier.registers


def test_a_report_shows_the_text_by_its_id():
    callback = HOW.report("sms:sent", message_id=MESSAGE_ID)
    assert connected("smsgate").callback(callback) == [Shown(MESSAGE_ID, MESSAGE_ID)]


@pytest.mark.parametrize("id", [None, 7, [], "", "\0"])
def test_a_report_on_no_text_says_nothing(id):
    callback = sign(event("sms:delivered", {"messageId": id, "recipient": NUMBER}))
    assert connected("smsgate").callback(callback) == []


@pytest.mark.parametrize(
    ("number", "region", "told"),
    [
        ("0151 23456789", "DE", [("+4915123456789", True)]),
        ("+4915123456789", "DE", [("+4915123456789", True)]),
        ("015123456789", None, [("+015123456789", False)]),
        ("+4915123456789", None, [("+4915123456789", True)]),
        ("ACME", "DE", []),
    ],
)
def test_numbers_of_replies_are_read_as_the_phone_shows_them(number, region, told):
    payload = {"sender": number, "message": "Yes", "receivedAt": "2026-03-03T18:00:00+01:00"}
    carrier = connected("smsgate", f"&region={region}" if region else "")
    replies = carrier.callback(sign(event("sms:received", payload), "inbound"))
    assert [(each.number, each.certain) for each in replies] == told
    assert all(isinstance(each, IncomingText) and each.at == NOON for each in replies)


def test_a_reply_is_one_whichever_webhook_tells_of_it():
    """A second name of the account, or a second SIM, has webhooks whose deliveries differ in id."""
    first = {"messageId": "af1", "receivedAt": "2026-03-03T18:00:00+01:00", "sender": NUMBER}

    def ids(name, delivery, **changes):
        told = event("sms:received", first | {"message": "Yes"} | changes) | {"id": delivery}
        (reply,) = connected("smsgate", name).callback(sign(told, "inbound"))
        return reply.message_ids

    same = ids("", "1")
    assert [ids("", "2"), ids("&sim=2", "3")] == [same] * 2
    others = {"receivedAt": "2026-03-03T18:00:01+01:00"}, {"messageId": "af2"}
    others += ({"sender": "+12125550188"},)
    assert same not in [ids("", "1", **each) for each in others]
    assert "af1" not in str(same)


@pytest.mark.parametrize(
    "told", [None, [], {}, {"event": "sms:received", "payload": {"sender": NUMBER, "message": 1}}]
)
def test_a_signed_callback_of_another_shape_says_nothing(told):
    assert connected("smsgate").callback(sign(told)) == []
