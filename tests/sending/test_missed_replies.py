"""Texts that came in while the database was away, whose callbacks the carrier does not repeat."""

from datetime import timedelta
from email.utils import format_datetime

import pytest

import carriers
from access.do_not_call import OptedOut
from app import create_app
from carrier_servers import Answer
from carriers import Reply as Said
from carriers import ways
from database import clock
from databases import on_both
from models import Status
from samples import HOUR, LONDON, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from sending import inbound, inbox
from sending.inbound import ReplyRules
from sending.replies import Reply
from signed_callbacks import of_twilio
from stored_messages import held

pytestmark = on_both

AWAY = 20 * MINUTE
BACK = TUESDAY_NOON + AWAY


def incoming(number, text, sid="SM1", at=TUESDAY_NOON + 5 * MINUTE, **changes):
    """Return a text that came in as Twilio lists it."""
    message = {"sid": sid, "from": number, "to": "+15005550006", "body": text}
    message |= {"direction": "inbound", "status": "received", "messaging_service_sid": None}
    return message | {"date_created": format_datetime(at)} | changes


@pytest.fixture
def listen(run_pass, twilio_server):
    """Make a pass at an instant, with Twilio as the carrier."""

    def make(at, url=twilio_server.url):
        (carrier,) = ways.connect_all(ways.parse(url), 4, 5)
        return run_pass(at, carrier=carrier, carrier_url=url)

    return make


def texts():
    return [(reply.number, reply.text) for reply in inbox.listing(clock.now())]


def test_a_stop_that_came_while_nobody_listened_stops(listen, twilio_server):
    sent = held(Status.SENT, finished_at=TUESDAY_NOON, carrier="twilio")
    listen(TUESDAY_NOON)
    twilio_server.messages = [
        incoming(LONDON, "see you", "SM2", BACK - SECOND),
        incoming(NEW_YORK, "STOP"),
        incoming(NEW_YORK, "before", "SM3", TUESDAY_NOON - HOUR),
        incoming(LONDON, "ours", "SM4", direction="outbound-api"),
        incoming(LONDON, "another's", "SM5", to="+15005550009"),
    ]
    listen(BACK)
    assert texts() == [(LONDON, "see you"), (NEW_YORK, "STOP")]
    assert OptedOut.lists(NEW_YORK)
    assert Reply.get(Reply.number == NEW_YORK).message_id == sent.id
    assert Reply.get(Reply.number == NEW_YORK).at == TUESDAY_NOON + 5 * MINUTE
    listen(BACK + AWAY)
    assert len(texts()) == 2, "once each"


@pytest.fixture
def called_back(settings, twilio_server):
    """Have Twilio call back with the text SM1, with a CARRIER_URL that names its carrier."""

    def call(url, name):
        app = create_app(settings._replace(carrier_url=url, public_url="http://texts.test"))
        form = {"From": NEW_YORK, "To": "+15005550006", "Body": "Hi", "MessageSid": "SM1"}
        address = f"http://texts.test/carriers/{name}/inbound"
        request = of_twilio(address, form, twilio_server.token)
        assert app.test_client().open(address, **request).status_code == 204

    return call


@pytest.mark.parametrize("is_called_first", [True, False])
def test_what_is_called_back_as_well_is_kept_once(
    listen, twilio_server, called_back, is_called_first
):
    url = twilio_server.url
    listen(TUESDAY_NOON, url)
    twilio_server.messages = [incoming(NEW_YORK, "Hi")]
    if is_called_first:
        called_back(url, "twilio")
    listen(BACK, url)
    assert texts() == [(NEW_YORK, "Hi")]
    called_back(url, "twilio")
    assert texts() == [(NEW_YORK, "Hi")]


def test_of_two_carriers_with_one_sender_it_is_kept_once(twilio_server, called_back, run_both):
    def url(*names):
        return " ".join(f"{twilio_server.url}#name={name}&keys={name}" for name in names)

    def passes(at):
        connected = ways.connect_all(ways.parse(both), 4, 5)
        run_both(at, ways.parse(both), connected)

    both = url("codes", "news")
    passes(TUESDAY_NOON)
    called_back(both, "codes")
    twilio_server.messages = [incoming(NEW_YORK, "Hi"), incoming(NEW_YORK, "Ho", "SM2")]
    passes(BACK)
    assert sorted(texts()) == [(NEW_YORK, "Hi"), (NEW_YORK, "Ho")]


def test_while_somebody_listens_the_carrier_is_not_asked(listen, twilio_server):
    for seconds in range(0, 60, 10):
        listen(TUESDAY_NOON + timedelta(seconds=seconds))
    assert twilio_server.asked == []


def test_a_carrier_that_gives_no_answer_is_asked_in_the_next_pass(listen, twilio_server, caplog):
    listen(TUESDAY_NOON)
    twilio_server.messages = [incoming(NEW_YORK, "STOP")]
    twilio_server.answer = Answer(500)
    listen(BACK)
    assert texts() == []
    assert "carrier twilio cannot list incoming texts" in caplog.text
    twilio_server.answer = None
    listen(BACK + SECOND)
    assert texts() == [(NEW_YORK, "STOP")]


def test_a_stop_that_is_read_late_does_not_undo_a_start(listen, twilio_server):
    listen(TUESDAY_NOON)
    twilio_server.messages = [incoming(NEW_YORK, "STOP")]
    started = Said(NEW_YORK, "START", TUESDAY_NOON + 10 * MINUTE, True, ("twilio SM7",))
    rules = ReplyRules(ways.parse(twilio_server.url)[0], "opted-out", None, None)
    inbound.record([started], TUESDAY_NOON + 10 * MINUTE, rules)
    listen(BACK)
    assert not OptedOut.lists(NEW_YORK)


def test_of_a_messaging_service_its_own_are_read(twilio_server):
    service = f"MG{'1' * 32}"
    twilio_server.messages = [
        incoming(NEW_YORK, "ours", messaging_service_sid=service),
        incoming(LONDON, "another's", "SM2", messaging_service_sid=f"MG{'2' * 32}"),
    ]
    url = twilio_server.url.replace("+15005550006", service)
    found = carriers.connect(url, 1, 5, None).incoming(TUESDAY_NOON)
    assert [(each.number, each.text) for each in found] == [(NEW_YORK, "ours")]


def test_nobody_can_have_answered_a_name(twilio_server):
    url = twilio_server.url.replace("+15005550006", "ACME")
    assert carriers.connect(url, 1, 5, None).incoming(TUESDAY_NOON) == []
    assert twilio_server.asked == []
