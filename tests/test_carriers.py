"""carriers.py: what reaches a carrier, and what its answer means."""

import contextlib
import io
import logging
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from functools import partial

import phonenumbers
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import carriers
from carrier_servers import HANG, HANG_UP, Answer, TwilioServer, WebhookServer, refusal
from carriers import CarrierError, simulator, twilio
from carriers.http import LONGEST_PAUSE

pytest_plugins = ["carrier_servers"]

connect = partial(carriers.connect, timeout=0.5)

NUMBER = "+12125550123"
TEXT = "attack at dawn, 🚀 héllo"
SECRETS = ("2125550123", "attack", TwilioServer.sid, "a token", "a%20token", "s3cret", "path-token")

# Unicode but for what decisions.md refuses: U+0000 and lone surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
numbers = st.sampled_from(["+12125550123", "+447700900123", "+4915123456789", "+376312345"])
real_server = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture(autouse=True)
def short_timeout(monkeypatch):
    monkeypatch.setattr(twilio, "CONNECT_TIMEOUT", 0.5)


@pytest.fixture(params=["twilio_server", "webhook_server"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def refused():
    """Send and return the CarrierError that must come of it."""

    def send(carrier, to=NUMBER, text=TEXT):
        with pytest.raises(CarrierError) as caught:
            carrier.send(to, text)
        assert_tells_no_secret(str(caught.value))
        assert str(caught.value) == " ".join(str(caught.value).split())
        return caught.value

    return send


def assert_tells_no_secret(words):
    assert not [secret for secret in SECRETS if secret in words], words


def kind(error):
    """Return the one thing that the caller has to do about an error."""
    assert not (error.permanent and error.too_fast)
    if error.opted_out:
        assert error.permanent
        return "opted out"
    return "for good" if error.permanent else "too fast" if error.too_fast else "for now"


# What arrives


AWKWARD = [
    " leading and trailing \t\n ",
    "\r\n",
    "line\nline\r\nline\rline\u2028line\x85line",
    "{to} {} {0} %s %2B + & = ; #",
    "# *markdown* _and_ <b>HTML</b> &amp; :smile: \\n \\u0041",
    "👩‍👩‍👧‍👦 🇨🇭 é é ‮txet ﷺ",
    "\x01\x1b[31m\x7f\uffff",
    "x" * 1600,
    "🚀" * 1600,
]


@pytest.mark.parametrize("text", AWKWARD)
def test_a_text_arrives_as_it_is_and_alone(server, text):
    connect(server.url).send(NUMBER, text)
    assert server.texts == [(NUMBER, text)]


@real_server
@given(to=numbers, text=texts)
def test_any_text_arrives_as_it_is(server, to, text):
    server.texts.clear()
    connect(server.url).send(to, text)
    assert server.texts == [(to, text)]


@real_server
@given(size=st.integers(1, 1600), character=texts)
def test_a_text_of_any_length_arrives_whole(server, size, character):
    server.texts.clear()
    text = (character * size)[:size]
    connect(server.url).send(NUMBER, text)
    assert server.texts == [(NUMBER, text)]


def test_twilio_gets_the_form_that_it_documents(twilio_server):
    connect(twilio_server.url).send(NUMBER, "1 + 1 = 2 & more")
    (request,) = twilio_server.requests
    assert request.path == f"/2010-04-01/Accounts/{twilio_server.sid}/Messages.json"
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert request.body == b"To=%2B12125550123&From=%2B15005550006&Body=1+%2B+1+%3D+2+%26+more"


@pytest.mark.parametrize(
    ("sender", "field"),
    [
        ("+15005550006", b"&From=%2B15005550006&"),
        ("%2B15005550006", b"&From=%2B15005550006&"),
        ("12345", b"&From=12345&"),
        ("My%20Shop", b"&From=My+Shop&"),
        ("ACME", b"&From=ACME&"),
        ("MG" + "aB" * 16, b"&MessagingServiceSid=MG" + b"aB" * 16 + b"&"),
    ],
)
def test_twilio_gets_the_sender_in_its_field(twilio_server, sender, field):
    connect(twilio_server.url.replace("+15005550006", sender)).send(NUMBER, TEXT)
    assert field in twilio_server.requests[0].body


def test_a_base_url_may_have_a_path_and_be_percent_encoded(twilio_server):
    encoded = f"http%3A%2F%2F{twilio_server.address}%2Fproxy%2F"
    connect(twilio_server.url.replace(twilio_server.base_url, encoded)).send(NUMBER, TEXT)
    assert twilio_server.requests[0].path.startswith("/proxy/2010-04-01/")


def test_a_connection_is_kept_for_the_next_text(server):
    server.answers["+12125550101"] = refusal(21211)
    carrier = connect(server.url)
    for to in (NUMBER, "+12125550101", NUMBER):
        with contextlib.suppress(CarrierError):
            carrier.send(to, TEXT)
    assert server.connections == 1


@pytest.mark.parametrize(
    ("where", "seen"),
    [
        ("/{to}", "/+12125550123"),
        ("/?-to={to}", "/?to=%2B12125550123"),
        ("/?+X-To={to}", "+12125550123"),
        ("/?:to={to}", '"to": "+12125550123"'),
    ],
)
def test_the_number_stands_where_the_url_says(webhook_server, where, seen):
    webhook_server.read = lambda request: (NUMBER, TEXT)
    connect(f"json://{webhook_server.address}{where}").send(NUMBER, TEXT)
    (request,) = webhook_server.requests
    assert seen in (request.path, request.headers.get("X-To")) or seen in request.body.decode()


@pytest.mark.parametrize("scheme", ["form", "xml"])
def test_other_plugins_of_apprise_hand_number_and_text_on(webhook_server, scheme):
    webhook_server.read = lambda request: (NUMBER, TEXT)
    connect(f"{scheme}://{webhook_server.address}/?:to={{to}}").send(NUMBER, "dawn")
    body = webhook_server.requests[0].body
    assert b"12125550123" in body
    assert b"dawn" in body


def test_vonage_gets_the_whole_text_for_the_one_number(monkeypatch, webhook_server):
    from apprise.plugins.vonage import NotifyVonage

    monkeypatch.setattr(NotifyVonage, "notify_url", f"http://{webhook_server.address}/sms")
    webhook_server.read = lambda request: (NUMBER, TEXT)
    connect("vonage://key:s3cret@15005550006/{to}").send(NUMBER, " x" * 800 + " ")
    (request,) = webhook_server.requests
    assert b"&to=12125550123" in request.body
    assert b"&text=" + b"+x" * 800 + b"+&" in request.body


@pytest.mark.parametrize(
    ("url", "number"),
    [
        ("vonage://key:s3cret@15005550006/{to}", "+376312345"),
        ("vonage://key:s3cret@15005550006/{to}", "+491512345678901"),
        ("smsmgr://s3cret@{to}", "+491512345678901"),
    ],
)
def test_a_number_that_a_plugin_drops_is_refused_for_good(refused, monkeypatch, url, number):
    """Vonage's plugin would text its own sender where no recipient is left."""
    monkeypatch.setattr("requests.Session.send", lambda *args, **kwargs: pytest.fail("sent"))
    assert kind(refused(connect(url), to=number)) == "for good"


# What an answer means


def test_the_reference_is_twilios_sid(twilio_server):
    assert connect(twilio_server.url).send(NUMBER, TEXT) == f"SM{1:032x}"


def test_a_webhooks_yes_has_no_reference(webhook_server):
    assert connect(webhook_server.url).send(NUMBER, TEXT) is None


UNREADABLE = [
    Answer(201),
    Answer(201, b"<html>Created</html>"),
    Answer(201, b'{"sid": "SM', length=500),
    Answer(201, b"\xff\xfe"),
    Answer(201, []),
    Answer(201, "SM1"),
    Answer(201, {"sid": None}),
    Answer(201, {"sid": {"a": 1}}),
    Answer(201, b"[" * 60_000),
    Answer(201, b"plain", {"Content-Encoding": "gzip"}),
]


@pytest.mark.parametrize("answer", UNREADABLE, ids=repr)
def test_a_201_that_cannot_be_read_means_sent(twilio_server, answer):
    twilio_server.answer = answer
    assert connect(twilio_server.url).send(NUMBER, TEXT) is None


@pytest.mark.parametrize(
    ("code", "status", "meaning"),
    [
        (21211, 400, "for good"),
        (21408, 403, "for good"),
        (21612, 400, "for good"),
        (21614, 400, "for good"),
        (21617, 400, "for good"),
        (21610, 400, "opted out"),
        (20003, 401, "for now"),
        (20005, 403, "for now"),
        (20404, 404, "for now"),
        (21606, 400, "for now"),
        (21999, 400, "for now"),
        (20500, 500, "for now"),
        (20503, 503, "for now"),
        (20429, 429, "too fast"),
        (21611, 429, "too fast"),
        (14107, 400, "too fast"),
        (30022, 400, "too fast"),
        (0, 429, "too fast"),
    ],
)
def test_twilios_codes_say_what_to_do(twilio_server, refused, code, status, meaning):
    twilio_server.answer = refusal(code, status)
    error = refused(connect(twilio_server.url))
    assert kind(error) == meaning
    assert f"HTTP {status}" in str(error)


USELESS = [
    Answer(200),
    Answer(200, b"<html>Log in to the hotel's network</html>"),
    Answer(202, {"status": "queued"}),
    Answer(204),
    Answer(301, b"", {"Location": "/elsewhere"}),
    Answer(307, b"", {"Location": "/elsewhere"}),
    Answer(400, b"\x00\xff garbage"),
    Answer(400, b""),
    Answer(400, [21211]),
    Answer(400, {"code": "21211"}),
    Answer(400, {"code": [21211]}),
    Answer(400, {"code": True}),
    Answer(400, b'{"code": 21211', length=1000),
    Answer(400, b"[" * 60_000),
    Answer(400, b'{"code": ' + b"9" * 5_000 + b"}"),
    Answer(400, b"x" * 200_000),
    Answer(404, b"<html>"),
    Answer(500, b"<html>"),
    Answer(502, b""),
    Answer(599, b""),
]


@pytest.mark.parametrize("answer", [*USELESS, HANG, HANG_UP], ids=lambda answer: repr(answer)[:60])
def test_an_answer_of_no_use_is_for_now(twilio_server, refused, answer):
    twilio_server.answer = answer
    assert kind(refused(connect(twilio_server.url))) == "for now"
    assert len(twilio_server.requests) == 1


def test_a_redirect_is_not_followed(server, refused):
    server.answer = Answer(302, b"", {"Location": f"http://{server.address}/elsewhere"})
    assert kind(refused(connect(server.url))) == "for now"
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "meaning"),
    [
        (400, "for good"),
        (413, "for good"),
        (422, "for good"),
        (429, "too fast"),
        (401, "for now"),
        (403, "for now"),
        (404, "for now"),
        (408, "for now"),
        (500, "for now"),
        (503, "for now"),
    ],
)
def test_a_webhooks_status_says_what_to_do(webhook_server, refused, status, meaning):
    webhook_server.answer = Answer(status, TEXT.encode())
    error = refused(connect(webhook_server.url))
    assert kind(error) == meaning
    assert f"error={status}" in str(error)


@pytest.mark.parametrize("answer", [HANG, HANG_UP, Answer(200, b"x", length=100)], ids=repr)
def test_a_webhook_that_does_not_answer_is_for_now(webhook_server, refused, answer):
    webhook_server.answer = answer
    assert kind(refused(connect(webhook_server.url))) == "for now"


def test_a_carrier_that_hangs_is_given_up(server, refused):
    server.answer = HANG
    started = time.monotonic()
    refused(connect(server.url))
    assert time.monotonic() - started < 3


@pytest.mark.parametrize("playing", [TwilioServer, WebhookServer])
def test_a_carrier_that_is_down_is_for_now_until_it_is_back(playing, refused):
    server = playing()
    carrier = connect(server.url)
    server.close()
    assert kind(refused(carrier)) == "for now"


def test_a_carrier_that_has_no_address_is_for_now(refused, twilio_server):
    nowhere = "http://carrier.invalid"
    carrier = connect(twilio_server.url.replace(twilio_server.base_url, nowhere))
    assert kind(refused(carrier)) == "for now"


def test_a_kept_connection_that_the_carrier_closed_is_replaced(server):
    carrier = connect(server.url)
    carrier.send(NUMBER, TEXT)
    server.hang_up()
    time.sleep(0.1)
    carrier.send(NUMBER, TEXT)
    assert server.connections == 2


def test_only_a_certificate_that_is_vouched_for_is_trusted(tmp_path, monkeypatch, refused):
    openssl = shutil.which("openssl") or pytest.skip("there is no openssl to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    files = ["-keyout", key, "-out", certificate, "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*make, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = TwilioServer()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = server.url.replace(server.base_url, f"https://localhost:{server.server_port}")
    try:
        assert kind(refused(connect(url))) == "for now"
        assert not server.texts
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert connect(url).send(NUMBER, TEXT)
        assert server.texts == [(NUMBER, TEXT)]
    finally:
        server.close()


def test_twilio_is_not_reached_through_a_proxy_of_the_environments(monkeypatch, twilio_server):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert connect(twilio_server.url).send(NUMBER, TEXT)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        (" 7 ", 7),
        ("999999999999", LONGEST_PAUSE),
        ("9" * 5000, None),
        ("-5", None),
        ("1.5", None),
        ("²", None),
        ("soon", None),
        ("", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 99 Oct 99999999 07:28:00 GMT", None),
        (None, None),
    ],
)
def test_retry_after_is_seconds_or_nothing(twilio_server, refused, header, seconds):
    twilio_server.answer = refusal(
        20429, 429, {"Retry-After": header} if header is not None else {}
    )
    assert refused(connect(twilio_server.url)).retry_after == seconds


def test_retry_after_may_be_a_date(twilio_server, refused):
    in_a_minute = formatdate(time.time() + 60, usegmt=True)
    twilio_server.answer = refusal(20429, 429, {"Retry-After": in_a_minute})
    assert 55 < refused(connect(twilio_server.url)).retry_after <= 60


def test_retry_after_counts_only_where_the_carrier_is_too_busy(twilio_server, refused):
    twilio_server.answer = refusal(21211, 400, {"Retry-After": "7"})
    assert refused(connect(twilio_server.url)).retry_after is None


# Many at once


def test_32_threads_send_each_text_once(server):
    server.delay = 0.02
    carrier = connect(server.url, 32)
    sent = [(f"+1212555{i:04}", f"text {i}") for i in range(200)]
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda each: carrier.send(*each), sent))
    assert sorted(server.texts) == sent


def test_32_sends_are_under_way_at_once(server):
    together = threading.Barrier(32)
    server.read = lambda request: (NUMBER, together.wait(10))
    carrier = connect(server.url, 32)
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda _: carrier.send(NUMBER, TEXT), range(32)))


def test_each_thread_gets_the_reason_of_its_own_text(webhook_server):
    numbers = [f"+1212555{i:04}" for i in range(64)]
    for i, number in enumerate(numbers):
        webhook_server.answers[number] = Answer(500 + i % 8)
    carrier = connect(webhook_server.url, 16)

    def status(number):
        with pytest.raises(CarrierError) as caught:
            carrier.send(number, TEXT)
        return int(str(caught.value).partition("error=")[2][:3])

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(status, numbers)) == [500 + i % 8 for i in range(64)]


# The console and the simulator


def test_the_console_shows_number_and_text(capsys):
    assert connect("console:").send(NUMBER, TEXT) is None
    assert capsys.readouterr().out == "+12125550123 'attack at dawn, 🚀 héllo'\n"


@pytest.mark.parametrize("text", [*AWKWARD, "a\n+12125550199 'another'", "\u202e", "\x9b2J"])
def test_no_text_forges_a_line_of_the_consoles(capsys, text):
    connect("console:").send(NUMBER, text)
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 1
    assert out.removesuffix("\n").isprintable()


def test_the_console_writes_what_its_encoding_lacks_as_escapes(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    connect("console:").send(NUMBER, "é🚀")
    assert out.buffer.getvalue() == b"+12125550123 '\\xe9\\U0001f680'\n"


def test_a_console_that_nobody_reads_is_a_carrier_that_fails_for_now(monkeypatch, refused):
    read, write = os.pipe()
    os.close(read)
    raw = os.fdopen(write, "wb", buffering=0)
    out = io.TextIOWrapper(raw, write_through=True)
    monkeypatch.setattr(sys, "stdout", out)
    assert kind(refused(connect("console:"))) == "for now"
    raw.close()


def test_the_console_keeps_lines_of_many_threads_apart(capfd):
    carrier = connect("console:", 16)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda i: carrier.send(f"+1212555{i:04}", "x" * 500), range(200)))
    assert sorted(capfd.readouterr().out.splitlines()) == [
        f"+1212555{i:04} '{'x' * 500}'" for i in range(200)
    ]


@pytest.mark.parametrize(
    ("number", "meaning"),
    [
        ("+12125550100", "taken"),
        ("+12125550101", "for good"),
        ("+12125550102", "for now"),
        ("+12125550103", "too fast"),
        ("+12125550104", "opted out"),
        ("+12125550199", "taken"),
        ("+447911123456", "taken"),
    ],
)
def test_the_simulator_does_what_its_numbers_stand_for(number, meaning):
    assert phonenumbers.is_valid_number(phonenumbers.parse(number))
    carrier = connect("simulator:")
    if meaning == "taken":
        assert carrier.send(number, TEXT) is None
    else:
        with pytest.raises(CarrierError) as caught:
            carrier.send(number, TEXT)
        assert kind(caught.value) == meaning
        assert caught.value.retry_after == (1 if meaning == "too fast" else None)
        documented = f"{number[:2]} {number[2:5]} {number[5:8]} {number[8:]}"
        assert documented in simulator.Simulator.__doc__


# URLs that no carrier takes


@pytest.mark.parametrize(
    "url",
    [
        "",
        "nonsense",
        "s3cret",
        "s3cret:path-token",
        "://s3cret",
        "console:s3cret",
        "simulator://s3cret",
        "twilio:",
        "twilio://",
        "twilio://AC1:s3cret",
        "twilio://AC1@+15005550006",
        "twilio://:s3cret@+15005550006",
        "twilio://AC1:@+15005550006",
        "twilio://AC1:s3cret@",
        "twilio://AC1:s3cret@15005550006",
        "twilio://AC1:s3cret@+1500555/0006",
        "twilio://AC1:s3cret@a-name-too-long",
        "twilio://AC1:s3cret@MG" + "0" * 31,
        "twilio://AC1:s3cret@+15005550006?base_uri=http://127.0.0.1",
        *(
            f"twilio://AC1:s3cret@+15005550006?base_url={base}"
            for base in (
                "",
                "127.0.0.1:8000",
                "ftp://127.0.0.1",
                "http://",
                "http://[::1",
                "http://127.0.0.1:99999",
                "http://127.0.0.1:port",
                "http://user:path-token@127.0.0.1",
                "http://127.0.0.1/%3Fs3cret",
                "http://127.0.0.1/%23s3cret",
            )
        ),
        "json://user:s3cret@127.0.0.1/path-token",
        "json://user:s3cret@127.0.0.1/path-token?to={to}",
        "json://user:s3cret@/{to}",
        "nosuchcarrier://user:s3cret@127.0.0.1/path-token/{to}",
        "vonage://key:s3cret@not-a-number/{to}",
        "vonage://s3cret@15005550006/{to}",
        "vonage://{to}",
        "vonage://key:s3cret@15005550006/12125550199/{to}",
        "smpp://user:s3cret@127.0.0.1/{to}",
        "tgram://123456789:s3cret-s3cret-s3cret-s3cret-s3cret/{to}",
        "json://user:s3cret@127.0.0.1/path-token/{to}?format=html",
        "json://user:s3cret@127.0.0.1/{to}?method=s3cret",
        "{to}",
    ],
)
def test_a_url_that_no_carrier_takes_is_refused_in_one_line(caplog, capfd, url):
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ValueError, match=r"\S") as caught:
        connect(url)
    words = str(caught.value)
    assert words.isprintable()
    assert len(words) < 200
    for output in (words, caplog.text, *capfd.readouterr()):
        assert_tells_no_secret(output)


def test_a_url_that_forgot_the_number_says_so():
    with pytest.raises(ValueError, match=r"\{to\} is missing"):
        connect("json://127.0.0.1/texts")


# What nobody is told


@pytest.mark.parametrize(
    "answer", [None, Answer(500), Answer(400, TEXT.encode()), HANG_UP, refusal(21211)], ids=repr
)
def test_nothing_of_a_text_gets_into_logs_or_output(caplog, capfd, server, answer):
    """Not even at DEBUG, with every library's logger asked for everything."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "carriers")
    server.answer = answer
    with contextlib.suppress(CarrierError):
        connect(server.url).send(NUMBER, TEXT)
    for output in (caplog.text, *capfd.readouterr()):
        assert_tells_no_secret(output)
        assert "12125550" not in output


def test_a_carriers_own_words_lose_numbers_texts_and_credentials(monkeypatch, refused):
    from apprise.plugins.custom_json import NotifyJSON

    def send(self, body, **kwargs):
        self.logger.warning("%s to +1 (212) 555-0123 as 0012125550123\nby %s", body, self.password)
        raise RuntimeError(f"{self.host} {self.fullpath} {body}")

    monkeypatch.setattr(NotifyJSON, "send", send)
    error = refused(connect("json://user:s3cr%20et@127.0.0.1/path-token?:to={to}"))
    assert str(error) == "json:// *** to *** as *** by *** RuntimeError: *** /*** ***"


def test_a_plugin_that_gives_no_reason_is_named(monkeypatch, refused):
    from apprise.plugins.custom_json import NotifyJSON

    monkeypatch.setattr(NotifyJSON, "send", lambda self, body, **kwargs: False)
    assert str(refused(connect("json://127.0.0.1/{to}"))) == "json:// gave no reason"


@pytest.mark.parametrize(
    "url", ["console:", "simulator:", "twilio://AC1:s3cret@ACME?base_url=http://127.0.0.1"]
)
def test_only_apprises_carriers_import_apprise(url):
    code = f"import sys, carriers; carriers.connect({url!r}); print('apprise' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout == "False\n"
