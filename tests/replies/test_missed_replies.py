"""Texts that came in while web or database were away: the carrier does not repeat its callbacks."""

import threading
from email.utils import format_datetime

import pytest

from app import create_app
from carrier_servers import Answer
from databases import on_both
from fake_carrier import FakeCarrier
from running import wait_until
from samples import HOUR, LONDON, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from signed_callbacks import of_twilio
from stored_messages import held, store
from texting import carriers
from texting.access.do_not_call import OptedOut
from texting.carriers import IncomingText, configs
from texting.database import clock
from texting.messages.model import Status
from texting.replies import inbound, inbox
from texting.replies.inbound import ReplyRules
from texting.replies.model import Reply

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
        (carrier,) = configs.connect_all(configs.parse(url), 4, 5)
        return run_pass(at, carrier=carrier, carrier_url=url)

    return make


def texts():
    return [(reply.number, reply.text) for reply in inbox.listing(clock.now())]


def test_a_stop_that_came_while_nobody_listened_stops(listen, twilio_server):
    sent = held(Status.SENT, finished_at=TUESDAY_NOON, carrier="twilio")
    listen(TUESDAY_NOON)
    twilio_server.messages = [
        incoming(LONDON, "see you", "SM2", BACK + SECOND),  # clocks differ
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
        connected = configs.connect_all(configs.parse(both), 4, 5)
        run_both(at, configs.parse(both), connected)

    both = url("codes", "news")
    passes(TUESDAY_NOON)
    called_back(both, "codes")
    twilio_server.messages = [incoming(NEW_YORK, "Hi"), incoming(NEW_YORK, "Ho", "SM2")]
    passes(BACK)
    assert sorted(texts()) == [(NEW_YORK, "Hi"), (NEW_YORK, "Ho")]


def test_while_passes_are_made_the_carrier_is_asked_every_five_minutes(listen, twilio_server):
    for seconds in range(0, 16 * 60, 10):
        listen(TUESDAY_NOON + seconds * SECOND)
    assert len(twilio_server.asked) == 3


def test_a_stop_stops_that_came_while_only_the_web_was_down(listen, twilio_server):
    """Passes go on: they hear nothing, and so they do not show that nothing was missed."""
    for seconds in range(0, 11 * 60, 10):
        now = TUESDAY_NOON + seconds * SECOND
        if now == TUESDAY_NOON + 6 * MINUTE:
            twilio_server.messages = [incoming(NEW_YORK, "STOP", at=now)]
        listen(now)
    assert OptedOut.lists(NEW_YORK)
    assert texts() == [(NEW_YORK, "STOP")]


def test_while_passes_are_made_the_latest_texts_are_left_to_their_callbacks(listen, twilio_server):
    """The list does not say that Twilio took a word for a STOP, and has answered it."""
    came = TUESDAY_NOON + 5 * MINUTE - 20 * SECOND
    twilio_server.messages = [incoming(NEW_YORK, "Basta", at=came)]
    for seconds in range(0, 11 * 60, 10):
        assert bool(texts()) == (seconds > 10 * 60), "it is read with the next list"
        listen(TUESDAY_NOON + seconds * SECOND)


def test_a_list_is_not_read_before_there_is_a_pass_of_this_carrier(listen, twilio_server):
    twilio_server.messages = [incoming(NEW_YORK, "before", at=TUESDAY_NOON - HOUR)]
    for minutes in (0, 20):
        listen(TUESDAY_NOON + minutes * MINUTE)
    assert texts() == []


# A long list


@pytest.fixture
def many(listen, twilio_server, monkeypatch):
    """Thirty texts were missed, of which the carrier is asked for four at once."""
    monkeypatch.setattr("texting.carriers.twilio.PAGES", 2)
    monkeypatch.setattr("scheduler.LOOK_EVERY", 0.01)
    listen(TUESDAY_NOON)
    numbers = [f"+1212555{n:04}" for n in range(30)]
    came = [BACK - n * MINUTE / 2 for n in range(30)]
    missed = zip(numbers, came, strict=True)
    twilio_server.messages = [incoming(number, "Hi", number, at) for number, at in missed]
    twilio_server.messages[-1]["body"] = "STOP"
    return numbers


def test_of_a_long_list_all_are_recorded_the_oldest_too(many, listen, twilio_server):
    listen(BACK)
    assert {number for number, _ in texts()} == {*many}
    assert OptedOut.lists(many[-1])
    asked = len(twilio_server.asked)
    listen(BACK + 10 * SECOND)
    assert len(twilio_server.asked) == asked, "all was read"


def test_a_list_that_breaks_off_is_read_again(many, listen, twilio_server, monkeypatch, caplog):
    told, pages = twilio_server.told, iter(range(9))

    def break_off(request):
        return Answer(500) if next(pages, None) is None else told(request)

    with monkeypatch.context() as patch:
        patch.setattr(twilio_server, "told", break_off)
        listen(BACK)
    assert len(texts()) == 16
    assert "carrier twilio cannot list incoming texts: Twilio: no usable answer" in caplog.text
    listen(BACK + MINUTE)
    assert len(texts()) == 30


def test_what_comes_while_a_long_list_is_read_is_read_next(
    many, listen, twilio_server, at, monkeypatch
):
    told, hours = twilio_server.told, iter(range(1, 99))

    def tell_slowly(request):
        at(BACK + next(hours) * HOUR)
        return told(request)

    with monkeypatch.context() as patch:
        patch.setattr(twilio_server, "told", tell_slowly)
        listen(BACK)
    ended = BACK + (next(hours) - 1) * HOUR
    assert ended > BACK + 2 * HOUR
    twilio_server.messages.insert(0, incoming(LONDON, "Meanwhile", at=BACK + HOUR))
    listen(ended + 10 * MINUTE)
    assert (LONDON, "Meanwhile") in texts()


def test_that_there_are_too_many_is_told(many, listen, monkeypatch, caplog):
    with monkeypatch.context() as patch:
        patch.setattr("texting.sending.reports.MOST_PARTS", 2)
        listen(BACK)
    assert len(texts()) == 8
    assert "too many, and the oldest are not read" in caplog.text
    listen(BACK + MINUTE)
    assert len(texts()) == 30


class ListingCarrier(FakeCarrier):
    """A carrier that lists incoming texts, as many as there were."""

    lists_incoming = True

    def __init__(self, replies):
        super().__init__()
        self.replies = replies

    def incoming(self, since, rest=None):
        return carriers.Listed([*self.replies])


@pytest.fixture
def missed(run_pass):
    """Have missed these texts: a carrier that lists them from now on."""

    def miss(*replies):
        carrier = ListingCarrier(())
        run_pass(TUESDAY_NOON, carrier)
        carrier.replies = replies
        return carrier

    return miss


def test_texts_go_while_many_missed_ones_are_recorded(missed, run_pass, monkeypatch):
    order, record = [], inbound.record_reply

    def note(said, *rest):
        order.append("reply")
        record(said, *rest)

    monkeypatch.setattr(inbound, "record_reply", note)
    monkeypatch.setattr("scheduler.LOOK_EVERY", 0.01)
    carrier = missed(
        *(IncomingText(f"+1212555{n:04}", "Hi", message_ids=(f"{n}",)) for n in range(90))
    )
    carrier.answer = lambda: order.append("text")
    for _ in range(3):
        store(max_retries=0)
    run_pass(BACK, carrier, send_concurrency=1)
    assert order.count("reply") == 90
    assert order.count("text") == 3
    last = len(order) - order[::-1].index("text")
    assert order[:last].count("reply") <= 60, "a batch at a time"


def test_a_scheduler_that_is_told_to_stop_does_not_wait_for_the_list(missed, settings, at):
    carrier, has_ended, waited = missed(), threading.Event(), []

    def stop(since, rest=None):
        one.stop.request()
        waited.append(has_ended.wait(10))
        return carriers.Listed([])

    carrier.incoming = stop
    at(BACK)
    one = Scheduler(settings, carrier)
    one.run_pass()
    has_ended.set()
    wait_until(lambda: waited)
    assert waited == [True]


def test_a_text_that_cannot_be_recorded_holds_up_no_other(missed, run_pass, monkeypatch, caplog):
    record = inbound.record_reply

    def fail(said, *rest):
        if said.text == "broken":
            raise KeyError(said.number)
        record(said, *rest)

    monkeypatch.setattr(inbound, "record_reply", fail)
    said = [IncomingText(NEW_YORK, text, message_ids=(text,)) for text in ("one", "broken", "two")]
    run_pass(BACK, missed(*said))
    assert sorted(text for _, text in texts()) == ["one", "two"]
    assert "IncomingText 'broken' is not recorded: unexpected KeyError" in caplog.text


@pytest.mark.parametrize("date", [None, f"{format_datetime(BACK)[:-5]}+99999999999999999999"])
def test_a_date_that_cannot_be_read_hides_no_text(listen, twilio_server, date):
    listen(TUESDAY_NOON)
    broken = incoming(NEW_YORK, "STOP", "SM2", date_created=date)
    twilio_server.messages = [incoming(LONDON, "Hi"), broken, incoming(LONDON, "Ho", "SM3")]
    listen(BACK)
    assert sorted(text for _, text in texts()) == ["Hi", "Ho", "STOP"]
    assert OptedOut.lists(NEW_YORK)


def test_refused_credentials_are_told_once_an_hour(listen, twilio_server, caplog):
    """Cron starts a scheduler each minute, and mails what it says."""
    told = "carrier twilio cannot list incoming texts: Twilio: the account SID or the token is "
    twilio_server.login = (twilio_server.sid, "another")
    for minutes, times in ((0, 0), (1, 1), (2, 1), (60, 1), (61, 2), (62, 2)):
        listen(TUESDAY_NOON + minutes * MINUTE)
        assert caplog.text.count(told) == times, minutes
    twilio_server.login, twilio_server.answer = None, Answer(500)
    for _ in "two passes":
        listen(TUESDAY_NOON + 63 * MINUTE)
    assert caplog.text.count("cannot list incoming texts") == 3, "another trouble is told at once"


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
    started = IncomingText(NEW_YORK, "START", TUESDAY_NOON + 10 * MINUTE, True, ("twilio SM7",))
    rules = ReplyRules("twilio", "opted-out", None, None)
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
    assert [(each.number, each.text) for each in found.replies] == [(NEW_YORK, "ours")]


def test_nobody_can_have_answered_a_name(twilio_server):
    url = twilio_server.url.replace("+15005550006", "ACME")
    assert carriers.connect(url, 1, 5, None).incoming(TUESDAY_NOON).replies == []
    assert twilio_server.asked == []
