"""carriers/__init__.py, carriers/http.py: the contract of all carriers, and their URLs."""

import contextlib
import logging
import re
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import apprise
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carrier_errors import (
    AWKWARD,
    MESSAGE_ID,
    NUMBER,
    TEXT,
    assert_tells_no_secret,
    connect,
    error_of,
    impatient,
    meaning,
    refused,
    send,
)
from carrier_servers import (
    DRIP,
    HANG,
    HANG_UP,
    Answer,
    playing,
    self_signed,
)
from kits import CLASSES, KITS, OURS, OVER_HTTP, WITH_SERVER, missing
from kits.twilio import TwilioServer, refusal
from kits.vonage import verdict
from running import ROOT
from smpp_peer import SmppPeer
from texting import carriers
from texting.carriers import CarrierError, configs, key_of, smpp_session
from texting.carriers.http import HttpCarrier
from texting.carriers.tls import reason_of

WITH_JSON = [name for name in OURS if KITS[name].needs_json]  # nothing else is an answer
BY_STATUS = [name for name in OVER_HTTP if not KITS[name].needs_json]

# Unicode without U+0000 and lone surrogates, which the API refuses.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)
numbers = st.sampled_from(["+12125550123", "+447700900123", "+4915123456789", "+376312345"])


def playing_one_of(names):
    """Return a fixture: the server of each of these carriers in turn."""

    @pytest.fixture(params=names)
    def server(request):
        yield from playing(KITS[request.param].server)

    return server


server, http_server = playing_one_of(WITH_SERVER), playing_one_of(OVER_HTTP)
our_server, json_server = playing_one_of(OURS), playing_one_of(WITH_JSON)


# Texts


@pytest.mark.parametrize("text", AWKWARD)
def test_a_text_arrives_as_it_is_and_alone(server, text):
    with contextlib.closing(connect(server.url)) as carrier:
        send(carrier, text=text)
    assert server.texts == [(NUMBER, text)]


@settings(max_examples=30)
@given(to=numbers, text=texts)
def test_any_text_arrives_as_it_is(server, to, text):
    server.requests.clear()
    with contextlib.closing(connect(server.url)) as carrier:
        send(carrier, to, text)
    assert server.texts[-1] == (to, text)


def test_a_connection_is_kept_until_the_carrier_closes_it(our_server):
    carrier = connect(our_server.url)
    send(carrier)
    send(carrier)
    our_server.hang_up()
    time.sleep(0.1)
    send(carrier)
    assert our_server.connections == 2


def test_an_answer_may_take_longer_than_a_connection(webhook_server, monkeypatch):
    monkeypatch.setattr("texting.carriers.http.CONNECT_TIMEOUT", 0.2)
    webhook_server.delay = 0.5
    send(connect(webhook_server.url))
    assert len(webhook_server.texts) == 1


def test_an_interim_answer_is_not_the_last_word(our_server):
    """Nor is the final answer then read as the answer to the next text."""
    our_server.answers["+12125550101"] = Answer(500, interim=(102, 103, 103))
    carrier = connect(our_server.url)
    assert "HTTP 500" in str(refused(carrier, "+12125550101"))
    our_server.answers[NUMBER] = Answer(503)
    assert "HTTP 503" in str(refused(carrier))
    assert our_server.connections == 1


def test_an_answer_that_is_too_long_to_be_read_spoils_no_later_one(our_server):
    """The rest is still in the connection's buffer."""
    our_server.answer = Answer(500, b"x" * (HttpCarrier.longest_answer + 10))
    carrier = connect(our_server.url)
    for _ in range(2):
        assert "HTTP 500" in str(refused(carrier))


def tells(error):
    """Return what an error tells of the carrier itself."""
    assert error.silent or not error.unreached
    return "unreached" if error.unreached else "silent" if error.silent else "its own answer"


# No answer


@pytest.mark.slow
@pytest.mark.parametrize("answer", [HANG, HANG_UP], ids=repr)
def test_a_carrier_without_an_answer_is_silent_and_its_text_in_doubt_and_not_sent_again(
    server, answer
):
    server.answer = answer
    started = time.monotonic()
    with contextlib.closing(impatient(server.url)) as carrier:
        error = refused(carrier)
    assert time.monotonic() - started < 20
    assert (meaning(error), tells(error)) == ("in doubt", "silent")
    assert len(server.requests) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "means"),
    [
        (Answer(501, b"x" * 1000, pause=0.05), "for now"),
        (Answer(501, b"x" * 1000, pause=0.3), "for now"),
        (DRIP, "in doubt"),
    ],
)
def test_a_carrier_that_drips_its_answer_is_given_up_all_the_same(our_server, answer, means):
    our_server.answer = answer
    started = time.monotonic()
    assert meaning(refused(impatient(our_server.url))) == means
    assert time.monotonic() - started < 20


OK, CHUNKED = b"HTTP/1.1 500 Error\r\n", b"Transfer-Encoding: chunked\r\n\r\n"
NO_HTTP = {
    "garbage": (b"\0\xff\xfe\r\n\r\n", "in doubt"),
    "no status": (b"HTTP/1.1\r\n\r\n", "in doubt"),
    "a status of words": (b"HTTP/1.1 two hundred\r\n\r\n", "in doubt"),
    "a negative status": (b"HTTP/1.1 -200 OK\r\n\r\n", "in doubt"),
    "too many headers": (OK + b"A: b\r\n" * 1000 + b"\r\n", "in doubt"),
    "too long a header": (OK + b"A: " + b"b" * 100_000 + b"\r\n\r\n", "in doubt"),
    "another protocol": (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\n", "for now"),
    "no chunk": (OK + CHUNKED + b"zz\r\n", "for now"),
    "too long a chunk": (OK + CHUNKED + b"f" * 20 + b"\r\n", "for now"),
    "an unknown encoding": (OK + b"Content-Encoding: gzip\r\n\r\nplain", "for now"),
}


@pytest.mark.parametrize("case", NO_HTTP)
def test_an_answer_that_is_no_http_is_only_a_carrier_error(case):
    content, means = NO_HTTP[case]
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:

        def answer():
            with listener.accept()[0] as connection:
                connection.recv(65_536)
                with contextlib.suppress(OSError):  # a client may have heard enough
                    connection.sendall(content)

        answering = pool.submit(answer)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        carrier = carriers.connect(f"twilio://AC1:s3cret@+15005550006?base_url=http://{address}")
        assert meaning(refused(carrier)) == means
        carrier.close()
        answering.result(30)


@pytest.mark.parametrize("name", [name for name in WITH_SERVER if CLASSES[name].keeps_ids])
def test_a_carrier_that_keeps_ids_knows_each_copy_by_its_own(name):
    for server in playing(KITS[name].server):
        carrier = connect(server.url)
        for copy in (0, 1, 2):
            send(carrier, copy=copy)
        asked = [f"{each.headers} {each.body.decode()}" for each in server.requests]
        told = [[key_of(MESSAGE_ID, copy) in each for copy in (1, 2)] for each in asked]
        assert told == [[False, False], [True, False], [False, True]]


@pytest.mark.parametrize("name", WITH_SERVER)
def test_a_carrier_that_is_down_is_unreached_and_its_text_for_now_until_it_is_back(name):
    server = KITS[name].server()
    server.close()
    with contextlib.closing(connect(server.url)) as carrier:
        error = refused(carrier)
    assert (meaning(error), tells(error)) == ("for now", "unreached")


def test_a_carrier_that_has_no_address_is_unreached_and_its_text_for_now(server):
    url = server.url.replace(server.address, "carrier.invalid")
    with contextlib.closing(connect(url)) as carrier:
        error = refused(carrier)
    assert (meaning(error), tells(error)) == ("for now", "unreached")


def test_a_redirect_is_not_followed(http_server):
    elsewhere = {"Location": f"http://{http_server.address}/elsewhere"}
    http_server.answer = Answer(302, b"", elsewhere)
    assert meaning(refused(connect(http_server.url))) == "for now"
    assert len(http_server.requests) == 1


def test_a_proxy_of_the_environments_is_not_used(monkeypatch, our_server):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    send(connect(our_server.url))
    assert our_server.texts


# Why a carrier is not reached


@pytest.mark.slow
@pytest.mark.parametrize(
    ("certified", "trusted", "reason"),
    [
        ({}, True, None),
        ({}, False, "its certificate is signed by an unknown authority"),
        ({"expired": True}, True, "its certificate has expired"),
        ({"name": "example.com"}, True, "its certificate is for another host"),
    ],
)
def test_only_a_certificate_that_is_vouched_for_is_trusted(
    tmp_path, monkeypatch, certified, trusted, reason
):
    """No other server learns the password; why it is refused is told."""
    context, certificate = self_signed(tmp_path, **certified)
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    server, peer = TwilioServer(), SmppPeer(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    secure = server.url.replace(server.base_url, f"https://localhost:{server.server_port}")
    try:
        if reason:
            assert [why(secure), why(peer.url)] == [reason] * 2
        else:
            for url in (secure, peer.url):
                with contextlib.closing(connect(url)) as carrier:
                    send(carrier)
        assert len(server.texts) == len(peer.logins) == peer.unbinds == (not reason)
    finally:
        server.close()
        peer.close()


def why(url):
    """Return why a carrier is not reached, in its words."""
    with contextlib.closing(impatient(url)) as carrier:
        error = refused(carrier)
    assert (meaning(error), tells(error)) == ("for now", "unreached")
    assert "localhost" not in str(error)
    return str(error).partition(" cannot be reached: ")[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", ["twilio://AC1:s3cret@+15005550006?base_url=https://{}", "smpps://u:s3cret@{}/1234"]
)
def test_a_connection_that_is_not_made_says_why(monkeypatch, place):
    monkeypatch.setattr(smpp_session, "CONNECT_TIMEOUT", 1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert why(place.format(address)) == "it did not answer in time"
    assert why(place.format(address)) == "nobody listens there (connection refused)"
    assert why(place.format("carrier.invalid")) == "there is no such host name"
    assert why(place.format("a..b")) == "there is no such host name"


def test_a_reason_is_found_among_several_addresses():
    """As asyncio words it, for a host with an IPv6 and an IPv4 address."""
    words = "Multiple exceptions: [Errno 101] x ('::1', 1), [Errno 111] y ('127.0.0.1', 1)"
    assert reason_of(OSError(words)) == "nobody listens there (connection refused)"


# What an error tells of the carrier itself


PAGE = b"<html>502 Bad Gateway</html>"
UNHELPFUL = {"message": "Service Unavailable"}  # a gateway's JSON


NO_JSON = {  # and what it means for the text
    **dict.fromkeys((200, 202, 204, 502, 504), "in doubt"),
    **dict.fromkeys((301, 400, 500, 503, 599), "for now"),
    **dict.fromkeys((401, 402, 403, 404), "the account"),
    429: "too fast",
}


@pytest.mark.parametrize(("status", "means"), NO_JSON.items())
@pytest.mark.parametrize("body", [b"", PAGE, b"[" * 60_000, UNHELPFUL, [1]])
def test_an_answer_without_the_carriers_json_is_silent_and_no_yes(json_server, status, body, means):
    json_server.answer = Answer(status, body)
    error = refused(connect(json_server.url))
    assert (meaning(error), tells(error)) == (means, "silent")
    assert len(json_server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "means"),
    [
        (HANG_UP, "for now"),
        *((Answer(status, PAGE), "for now") for status in (200, 500, 502)),
        (Answer(503, UNHELPFUL), "for now"),
        *((Answer(status), "the account") for status in (401, 403)),
    ],
    ids=repr,
)
def test_a_check_without_the_carriers_json_is_silent_and_never_in_doubt(json_server, answer, means):
    json_server.answer = answer
    error = error_of(connect(json_server.url).check)
    assert (meaning(error), tells(error)) == (means, "silent")


@pytest.mark.parametrize("status", [400, 401, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("name", WITH_JSON)
def test_a_refusal_in_the_carriers_json_is_its_own_answer(name, status):
    kit = KITS[name]
    code = next(code for code in kit.for_now if kit.answer(code).body)
    for server in playing(kit.server):
        server.answer = kit.answer(code)._replace(status=status)
        assert tells(refused(connect(server.url))) == "its own answer"


@pytest.mark.parametrize(
    ("status", "told"),
    [
        *((status, "its own answer") for status in (302, 400, 401, 404, 422, 429, 500, 501)),
        *((status, "silent") for status in (502, 503, 504)),
    ],
)
@pytest.mark.parametrize("name", BY_STATUS)
def test_a_status_is_an_answer_unless_it_is_a_gateways(name, status, told):
    for server in playing(KITS[name].server):
        server.answer = Answer(status, PAGE)
        error = refused(connect(server.url))
        assert tells(error) == told
        assert error.in_doubt == (status in KITS[name].in_doubt)


# Concurrency


@pytest.mark.slow
def test_32_threads_send_each_text_once(server):
    server.delay = 0.02
    sent = [(f"+1212555{i:04}", f"text {i}") for i in range(100)]
    with contextlib.closing(connect(server.url, 32)) as carrier, ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda each: send(carrier, *each), sent))
    assert sorted(server.texts) == sent


def test_32_sends_are_under_way_at_once(http_server):
    together = threading.Barrier(32)
    http_server.read = lambda request: (NUMBER, together.wait(30))
    carrier = carriers.connect(http_server.url, 32)
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda _: send(carrier), range(32)))


# Invalid URLs


NO_ADDRESSES = """
    127.0.0.1:8000 ftp://127.0.0.1 http:// http://[::1 http://127.0.0.1:99999 http://127.0.0.1:port
    http://user:path-token@127.0.0.1 http://127.0.0.1/%3Fs3cret http://127.0.0.1/%23s3cret
"""
NO_CARRIERS = """
    nonsense s3cret s3cret: s3cret:path-token ://s3cret {to} twilio//AC1:s3cret@+15005550006
"""


def bad_urls(name):
    """Return URLs that a carrier does not take."""
    kit, options = KITS[name], CLASSES[name].options
    yield from (begin + rest for begin, more in kit.bad_urls.items() for rest in more.split())
    more = f"{kit.url}{'&' if '?' in kit.url else '?'}"
    yield from (f"{more}{option}=" for option, usual in options.items() if usual != "")
    if "base_url" in options:
        yield from (f"{more}base_url={address}" for address in NO_ADDRESSES.split())


@pytest.mark.parametrize(
    "url",
    [
        *("", "twilio:", "vonage:", "nonsense s3cret", "AC1 s3cret://127.0.0.1/{to}"),
        *NO_CARRIERS.split(),
        *(url for name in KITS for url in bad_urls(name)),
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


def test_a_url_without_the_number_is_refused_with_what_is_missing():
    with pytest.raises(ValueError, match=r"\{to\} is missing"):
        connect("json://127.0.0.1/texts")


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("twilo", "twilio"),
        ("Twillio", "twilio"),
        ("vonnage", "vonage"),
        ("consol", "console"),
        ("webhook+htps", "webhook+https"),
        ("webhook", "webhook+http"),
        ("simulater", "simulator"),
        ("nexmoo", "nexmo"),
        ("smppp", "smpp"),
    ],
)
@pytest.mark.parametrize("sending", [True, False])
def test_a_misspelt_scheme_is_refused_with_the_nearest(misspelt, meant, sending):
    with pytest.raises(ValueError, match=r"did you mean ") as caught:
        carriers.connect(f"{misspelt}://user:s3cret@127.0.0.1/{{to}}", sending=sending)
    assert f"did you mean {meant}" in str(caught.value)


@pytest.mark.parametrize(
    ("address", "form"),
    [
        ("https://api.twilio.com/2010-04-01/Accounts/AC1/Messages.json", "twilio://"),
        ("https://AC1:s3cret@api.Twilio.com", "twilio://"),
        ("https://api.dublin.ie1.twilio.com/{to}", "twilio://"),
        ("http://rest.nexmo.com/sms/json?api_secret=s3cret", "vonage://"),
        ("https://api.telnyx.com/v2", "telnyx://"),
        ("https://api.sms-gate.app/3rdparty/v1", "smsgate://"),
        ("https://texts.example.com/send?secret=s3cret", "webhook+https://"),
        ("http://10.0.0.7:8080", "webhook+http://"),
        ("http://[::1/", "webhook+http://"),
        ("https://nottwilio.com", "webhook+https://"),
    ],
)
@pytest.mark.parametrize("sending", [True, False])
def test_the_address_of_an_api_is_refused_with_what_to_write(address, form, sending):
    with pytest.raises(ValueError, match=r"^https?://… is ") as caught:
        carriers.connect(address, sending=sending)
    assert f" write {form}" in str(caught.value)
    assert "s3cret" not in str(caught.value)


PLACES = [
    url
    for page in (ROOT / "docs").glob("carriers*/**/*.md")
    for url in re.findall(r"[a-z+]+://[^`\s]*[A-Z]{2}[^`\s]*", page.read_text())
    if url.partition(":")[0] in carriers.OWN and "token" not in url
]


@pytest.mark.parametrize("url", [*PLACES, "twilio://AC5:s3cret@FROM", "smpp://a:s3cret@HOST:1/a"])
def test_what_the_pages_leave_to_be_filled_in_is_named(url):
    """Each URL that they print: none is taken as it is."""
    with pytest.raises(ValueError, match=r"still has [A-Z_0-9]+ in it, which ") as caught:
        configs.parse(url.replace("\N{HORIZONTAL ELLIPSIS}", "USER"))
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "left"),
    [
        ("twilio://ACxxxxxxxxxxxxxxxx:s3cret@+15017122661", "x" * 16),
        ("twilio://ACXXXXXXXXXXXXXXXX:s3cret@+15017122661", "X" * 16),
        ("twilio://AC1:your_auth_token@+15017122661", "your_auth"),
        ("twilio://AC1:<Auth-Token>@+15017122661", "<Auth-Token>"),
        ("twilio://AC…:s3cret@+15017122661", "…"),
        ("telnyx://YOUR_API_KEY@+15017122661", "YOUR_API"),
        ("infobip://s3cret@447700900000?base=xxxxx.api.infobip.com&secret=s3cret", "xxxxx"),
    ],
)
def test_what_others_leave_to_be_filled_in_is_named_too(url, left):
    with pytest.raises(ValueError, match=" in it, which stands for your own") as caught:
        configs.parse(url)
    assert f"still has {left} in it" in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("secret", ["xXxXxXx", "yourself-8", "yourkey", "flyour_key", "a%3Cb%3E"])
def test_a_secret_that_is_like_a_placeholder_is_taken(secret):
    assert configs.parse(f"twilio://AC1:{secret}@+15017122661")


def test_every_carrier_has_a_kit():
    """With it, the tests of this folder and those of callbacks hold the carrier to its contract."""
    assert missing() == []
    assert {*KITS} == {*CLASSES}


@pytest.mark.parametrize("name", KITS)
def test_a_kit_has_all_that_its_carriers_class_needs(name):
    kit, kind = KITS[name], CLASSES[name]
    assert bool(kit.callbacks) == bool(kind.callback_methods)
    assert bool(kit.server) == (name not in ("console", "simulator"))
    assert kit.needs_json <= bool({502, 504} <= {*kit.in_doubt})
    with contextlib.closing(connect(kit.url)) as carrier:
        assert type(carrier) is kind


def test_a_url_with_the_number_goes_on_to_mean_apprises_carrier(monkeypatch, apprise_server):
    """Where Apprise has the scheme, too: whoever used it before has the same texts sent."""
    monkeypatch.setitem(carriers.OWN, "json", "test_carriers:Newcomer")
    carrier = connect(apprise_server.url)
    send(carrier)
    assert apprise_server.texts == [(NUMBER, TEXT)]
    assert "json://…/{to} is Apprise's form" in carrier.warning
    assert "goes to the newcomer directly" in carrier.warning
    assert type(connect("json://user:s3cret@127.0.0.1")) is Newcomer
    assert type(connect(apprise_server.url, sending=False)) is carriers.Carrier


class Newcomer(carriers.Carrier):
    """A carrier with a scheme of Apprise's."""

    title = "the newcomer"
    leaves_to_apprise = True


APPRISES = {
    scheme
    for plugin in apprise.Apprise().details()["schemas"]
    for kind in ("protocols", "secure_protocols")
    for scheme in plugin[kind] or ()
}


@pytest.mark.parametrize("scheme", sorted(APPRISES & {*carriers.OWN}))
def test_a_scheme_that_apprise_has_too_still_takes_its_form(scheme):
    name = carriers.OWN[scheme].partition(":")[0].rpartition(".")[2]
    url = f"{scheme}:{KITS[name].url.partition(':')[2]}/{{to}}"
    carrier = connect(url)
    foreign = CLASSES[name].leaves_to_apprise
    assert type(carrier) is CLASSES["apprise" if foreign else name]
    assert foreign == ("Apprise" in (carrier.warning or ""))


# Secrets and imports


@pytest.mark.parametrize(
    "answer",
    [
        *(None, HANG_UP, Answer(500), Answer(400, TEXT.encode()), refusal(21211)),
        verdict({"status": "3", "error-text": TEXT, "to": NUMBER}),
        Answer(200, {"error": TEXT, "reference": NUMBER}),
    ],
    ids=lambda answer: repr(answer)[:60],
)
def test_nothing_of_a_text_gets_into_logs_or_output(caplog, capfd, http_server, answer):
    """Not even if every logger is set to DEBUG."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "carriers")
    http_server.answer = answer
    carrier = connect(http_server.url)
    assert_tells_no_secret(f"{carrier.name} {carrier.warning}")
    with contextlib.suppress(CarrierError):
        send(carrier)
    for output in (caplog.text, *capfd.readouterr()):
        assert_tells_no_secret(output)
        assert "12125550" not in output
        assert MESSAGE_ID not in output


@pytest.mark.parametrize(
    ("name", "sending"), [*((name, False) for name in KITS), *((name, True) for name in OURS)]
)
def test_no_library_is_loaded_before_it_is_needed(name, sending):
    """Our own carriers over HTTP need none at all."""
    code = (
        "import sys; from texting import carriers; "
        f"carriers.connect({KITS[name].url!r}, sending={sending}); "
        "print({'apprise', 'requests', 'urllib3'} & sys.modules.keys())"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout == "set()\n"
