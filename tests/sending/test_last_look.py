"""What is judged last, when the connection to the carrier stands: nothing old is given to it."""

import contextlib
import socket
import time

import pytest

import smpp_peer
from carrier_servers import self_signed
from databases import on_both
from fake_carrier import FakeCarrier
from kits.webhook import WebhookServer
from own_threads import at_once
from running import wait_until
from samples import HOUR, MINUTE, NEW_YORK, SECOND, TUESDAY_NOON
from scheduler import Scheduler
from stored_messages import again, key_named, live_at, store
from texting import carriers
from texting.access.do_not_call import OptedOut
from texting.database import clock
from texting.messages.model import Status
from texting.sending.runtime import Clock, Runtime
from texting.sending.sends import LONGEST_CONNECTING

HOURS = {"business_hours": (0, 1440), "quiet_hours": (21 * 60, 8 * 60)}


class Leaping(Clock):
    """A clock that leaps ahead, with the time of day."""

    def __init__(self, at):
        self.at, self.ahead = at, 0

    def leap(self, span):
        self.ahead += span / SECOND
        self.at(clock.now() + span)

    def monotonic(self):
        return time.monotonic() + self.ahead


class SlowToBind(smpp_peer.Handler):
    def take(self, command, *rest):
        if command == smpp_peer.BIND_TRANSMITTER:
            self.server.be_slow()
        super().take(command, *rest)


def slow_to_look_up(server, be_slow, monkeypatch):
    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda *name: be_slow() or look_up(*name))


def slow_to_connect(server, be_slow, monkeypatch):
    connect = socket.socket.connect
    monkeypatch.setattr(socket.socket, "connect", lambda *to: be_slow() or connect(*to))


def slow_to_shake_hands(server, be_slow, monkeypatch):
    server.tls.sni_callback = lambda *_: be_slow()


def slow_to_bind(server, be_slow, monkeypatch):
    server.be_slow, server.RequestHandlerClass = be_slow, SlowToBind


@pytest.fixture
def http(tmp_path, monkeypatch):
    """A webhook over TLS, with the URL of its carrier."""
    context, certificate = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server = WebhookServer()
    server.tls, plain = context, server.socket
    server.socket = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
    server.carrier_url = f"webhook+https://localhost:{server.server_port}/texts"
    yield server
    server.close()


@pytest.fixture
def smpp(tmp_path, monkeypatch):
    """An SMPP peer over TLS, with `carrier_url`."""
    context, certificate = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    peer = smpp_peer.SmppPeer(context)
    peer.carrier_url = f"{peer.url}?bind=transmitter"  # or listening begins to bind
    yield peer
    peer.close()


SLOW = [
    *(("http", slow) for slow in (slow_to_look_up, slow_to_connect, slow_to_shake_hands)),
    *(("smpp", slow) for slow in (slow_to_look_up, slow_to_connect, slow_to_shake_hands)),
    ("smpp", slow_to_bind),
]


class Giving:
    """A scheduler that gives a text to a carrier to which it takes a minute to connect."""

    def __init__(self, kind, slow, settings, at, request):
        self.server, self.hands = request.getfixturevalue(kind), Leaping(at)
        self.carrier = carriers.connect(self.server.carrier_url)
        self.scheduler = Scheduler(settings, self.carrier, Runtime(self.hands))
        self.meanwhile, self.times = lambda: None, 0
        slow(self.server, self.be_slow, request.getfixturevalue("monkeypatch"))

    def be_slow(self):
        """Let a minute pass, in which the scheduler goes on, the first time."""
        self.times += 1
        if self.times == 1:
            self.hands.leap(MINUTE)
            at_once(self.meanwhile)
            pulse = self.scheduler.pulse
            wait_until(lambda: pulse.is_fresh(pulse.sender))


@pytest.fixture(params=SLOW, ids=lambda each: f"{each[0]}, {each[1].__name__.replace('_', ' ')}")
def giving(request, settings, at):
    at(TUESDAY_NOON)
    giving = Giving(*request.param, settings, at, request)
    with contextlib.closing(giving.carrier):
        yield giving


def test_a_text_whose_number_opts_out_while_its_carrier_is_connected_to_is_not_given(giving):
    message = store()
    giving.meanwhile = lambda: OptedOut.add([NEW_YORK], clock.now(), "reply")
    giving.scheduler.run_pass()
    assert (giving.times >= 1, giving.server.texts) == (True, [])
    assert again(message).status == Status.BLOCKED


def test_a_text_for_which_it_took_long_to_connect_is_given_over_that_connection(giving):
    message = store()
    assert giving.scheduler.run_pass()["sent"] == 1
    assert (giving.times, len(giving.server.texts)) == (1, 1)
    attempt = again(message)
    assert (attempt.status, attempt.attempts, attempt.in_doubt) == (Status.SENT, 1, 0)


class Slow(FakeCarrier):
    """It takes some seconds to connect, the first time, while something happens."""

    def __init__(self, at, seconds, meanwhile=lambda: None):
        super().__init__()
        self.hands, self.seconds, self.meanwhile = Leaping(at), seconds, meanwhile
        self.hands.monotonic = lambda: self.hands.ahead  # no time passes otherwise
        self.sessions = 0

    def session(self):
        self.sessions += 1
        if self.sessions == 1:
            self.hands.leap(self.seconds * SECOND)
            at_once(self.meanwhile)
        return super().session()


@pytest.mark.parametrize(
    ("seconds", "given"), [(LONGEST_CONNECTING, 1), (LONGEST_CONNECTING + 0.1, 2)]
)
def test_what_connects_at_once_is_judged_once(settings, at, seconds, given):
    """It is claimed again, with a session, if it took longer."""
    at(TUESDAY_NOON)
    slow, message = Slow(at, seconds), store()
    Scheduler(settings, slow, Runtime(slow.hands)).run_pass()
    assert (len(slow.texts), slow.sessions) == (1, given)
    assert again(message).claim_number == given


def test_a_text_waits_if_quiet_hours_begin_at_its_place_before_it_is_given(settings, at):
    evening = TUESDAY_NOON + 3 * HOUR  # 9 PM in Berlin
    at(evening - SECOND / 2)
    live_at(NEW_YORK, "DE")
    slow, message = Slow(at, LONGEST_CONNECTING), store(send_at=TUESDAY_NOON)
    Scheduler(settings._replace(**HOURS), slow, Runtime(slow.hands)).run_pass()
    assert (slow.sessions, slow.texts) == (1, [])
    assert again(message).status == Status.SCHEDULED


MORNING = TUESDAY_NOON - 3 * HOUR  # 9 AM in New York, 8 AM in Chicago


@on_both
@pytest.mark.parametrize(
    "change",
    [
        lambda: live_at(NEW_YORK, "America/Chicago"),
        lambda: key_named("app").rule({"hours": "10:00-17:00"}, MORNING),
    ],
    ids=["place", "rule"],
)
def test_a_change_of_place_or_rule_between_judgement_and_send_counts(settings, at, change):
    at(MORNING)
    live_at(NEW_YORK, "US-NY")
    slow, message = Slow(at, LONGEST_CONNECTING + 0.1, change), store(send_at=MORNING)
    Scheduler(settings, slow, Runtime(slow.hands)).run_pass()
    assert (slow.sessions, slow.texts) == (1, [])
    assert (again(message).status, again(message).send_at) == (Status.SCHEDULED, MORNING + HOUR)
