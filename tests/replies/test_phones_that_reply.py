"""Replies through a phone: two names for its SIM cards, a new name, a clock that is slow."""

import json

import pytest

from app import create_app
from databases import on_both
from kits import NUMBER, PUBLIC_URL, asked
from kits.smsgate import KEY, URL, event, sign
from samples import DAY, HOUR, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from stored_messages import held
from texting.access.do_not_call import OptedOut
from texting.carriers.lanes import TESTERS, Lane
from texting.messages.model import Message, Status
from texting.replies.model import Reply

pytestmark = on_both

assert NUMBER == NEW_YORK
OPTIONS = f"?key={KEY.replace(' ', '%20')}"
ONE, TWO = (f"{URL}{OPTIONS}&sim={sim}#name={name}" for sim, name in ((1, "one"), (2, "two")))
ELSEWHERE = "smsgate://user:other@sms.example.com/3rdparty/v1?key=another#name=elsewhere"


@pytest.fixture
def hear(settings, at):
    """Have a phone tell of a text to its SIM card, by the webhook of a name; return the reply."""

    def tell(name="one", sim=1, said=TUESDAY_NOON, arrives=None, text="Yes", carriers=(ONE, TWO)):
        changes = {"carrier_url": " ".join(carriers), "public_url": PUBLIC_URL}
        changes |= {"stop_reply": "You get no more texts."}
        client = create_app(settings._replace(**changes)).test_client()
        at(arrives or said)
        payload = {"messageId": f"{text} at {said}", "sender": NUMBER, "message": text}
        payload |= {"receivedAt": said.isoformat(), "simNumber": sim}
        told = event("sms:received", payload, f"texts-{name}")
        address = f"{PUBLIC_URL}/carriers/{name}/inbound"
        assert client.open(**asked(sign(told, "inbound", address=address))).status_code == 204
        return Reply.get()

    return tell


def sent(carrier, before=HOUR):
    return held(Status.SENT, carrier=carrier, finished_at=TUESDAY_NOON - before)


def answers():
    return [*Message.select().where(Message.auto_reply_to.is_null(False))]


# Two SIM cards


@pytest.mark.parametrize("order", [("one", "two"), ("two", "one")], ids="-".join)
@pytest.mark.parametrize(("sim", "name"), [(1, "one"), (2, "two")])
def test_a_reply_is_of_the_sim_card_that_got_it_whoever_tells_first(hear, order, sim, name):
    messages = {"one": sent("one"), "two": sent("two", HOUR / 2)}
    for each in order:
        reply = hear(each, sim, text="STOP")
    assert Reply.select().count() == 1
    assert (reply.carrier, reply.message_id) == (name, messages[name].id)
    (answer,) = answers()
    assert Lane.read(answer.lane).only == name


@pytest.mark.parametrize("sim", [None, 3, "2", True, [], {}])
@pytest.mark.parametrize("name", ["one", "two"])
def test_of_a_sim_card_that_is_not_known_it_is_of_the_name_that_tells(hear, name, sim):
    messages = {"one": sent("one"), "two": sent("two")}
    reply = hear(name, sim)
    assert (reply.carrier, reply.message_id) == (name, messages[name].id)


@pytest.mark.parametrize("name", ["one", "two"])
def test_one_that_comes_under_the_other_name_belongs_to_the_text(hear, name):
    message = sent("one")
    assert hear(name, None).message_id == message.id


def test_a_text_of_its_own_name_is_before_a_later_one_of_the_other(hear):
    message = sent("one")
    sent("two", MINUTE)
    assert hear("one", None).message_id == message.id


@pytest.mark.parametrize("body", ["[]", "7", "null", '{"event": [], "payload": {"simNumber": 1}}'])
def test_what_is_signed_and_has_another_shape_says_nothing(settings, body):
    changes = {"carrier_url": f"{ONE} {TWO}", "public_url": PUBLIC_URL}
    client = create_app(settings._replace(**changes)).test_client()
    callback = sign(json.loads(body), "inbound", address=f"{PUBLIC_URL}/carriers/one/inbound")
    assert client.open(**asked(callback)).status_code == 204
    assert not Reply.select().exists()


# A new name


@pytest.mark.parametrize("name", ["one", "former"])
def test_after_a_renaming_replies_belong_to_the_texts_of_before(hear, name):
    message = sent("former")
    reply = hear(name, carriers=[ONE, ELSEWHERE])
    assert (reply.carrier, reply.message_id) == ("one", message.id)


@pytest.mark.parametrize("name", ["elsewhere", TESTERS])
def test_a_text_of_another_account_is_not_what_a_reply_belongs_to(hear, name):
    sent(name)
    assert hear(carriers=[ONE, ELSEWHERE]).message_id is None


# A slow clock


@pytest.mark.parametrize("text", ["STOP", "HELP?"])
def test_a_reply_by_a_clock_two_minutes_slow_has_its_text_and_answer(hear, text):
    message = sent("one", MINUTE)
    said = TUESDAY_NOON - 2 * MINUTE
    reply = hear(said=said, arrives=TUESDAY_NOON, text=text)
    assert (reply.message_id, reply.at) == (message.id, said)
    assert OptedOut.lists(NUMBER) == (text == "STOP")
    assert [each.expires_at for each in answers()] == [TUESDAY_NOON + 2 * MINUTE] * (text == "STOP")


@pytest.mark.parametrize(
    ("before", "slow_by", "belongs"),
    [
        (MINUTE, 6 * MINUTE - SECOND, True),
        (MINUTE, 6 * MINUTE + SECOND, False),
        (-SECOND, 2 * MINUTE, False),  # it was given after the arrival
    ],
)
def test_a_clock_is_believed_to_be_five_minutes_slow_at_most(hear, before, slow_by, belongs):
    message = sent("one", before)
    reply = hear(said=TUESDAY_NOON - slow_by, arrives=TUESDAY_NOON)
    assert reply.message_id == (message.id if belongs else None)


def test_a_text_from_before_it_by_its_own_clock_is_first(hear):
    message = sent("one", DAY)
    sent("one", MINUTE)
    reply = hear(said=TUESDAY_NOON - 2 * MINUTE, arrives=TUESDAY_NOON, text="STOP")
    assert reply.message_id == message.id
    assert answers() == []


def test_a_later_text_of_its_own_name_is_before_an_earlier_of_the_other(hear):
    message = sent("one", MINUTE)
    sent("two")
    reply = hear(said=TUESDAY_NOON - 2 * MINUTE, arrives=TUESDAY_NOON)
    assert reply.message_id == message.id


def test_a_slow_clock_makes_no_stop_newer_than_a_start(hear):
    sent("one", MINUTE)
    hear(said=TUESDAY_NOON - MINUTE / 2, arrives=TUESDAY_NOON, text="START")
    hear(said=TUESDAY_NOON - 2 * MINUTE, arrives=TUESDAY_NOON, text="STOP")
    assert not OptedOut.lists(NUMBER)
