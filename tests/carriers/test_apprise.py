"""carriers/apprise.py: Apprise's plugins, their URLs and their errors."""

from concurrent.futures import ThreadPoolExecutor

import apprise
import pytest

from carrier_errors import NUMBER, connect, meaning, refused, send
from carrier_servers import Answer
from texting import carriers


@pytest.mark.parametrize(
    ("where", "seen"),
    [
        ("/{to}", "/+12125550123"),
        ("/?-to={to}", "/?to=%2B12125550123"),
        ("/?+X-To={to}", "+12125550123"),
        ("/?:to={to}", '"to": "+12125550123"'),
    ],
)
def test_the_number_stands_where_the_url_says(apprise_server, where, seen):
    apprise_server.read = lambda request: (NUMBER, "")
    send(connect(f"json://{apprise_server.address}{where}"))
    (request,) = apprise_server.requests
    assert seen in (request.path, request.headers.get("X-To")) or seen in request.body.decode()


@pytest.mark.parametrize("scheme", ["form", "xml"])
def test_other_plugins_hand_number_and_text_on(apprise_server, scheme):
    apprise_server.read = lambda request: (NUMBER, "")
    send(connect(f"{scheme}://{apprise_server.address}/?:to={{to}}"), text="dawn")
    body = apprise_server.requests[0].body
    assert b"12125550123" in body
    assert b"dawn" in body


@pytest.mark.parametrize("number", ["+491512345678901", "+376312345"])
def test_a_number_that_a_plugin_drops_is_refused_for_good(number):
    """Some plugins would text their own sender if no recipient is left."""
    url = {
        "+491512345678901": "smsmgr://s3cret@{to}",
        "+376312345": "bulkvs://u:p@15005550006/{to}",
    }
    assert meaning(refused(connect(url[number]), to=number)) == "for good"


def test_its_yes_has_no_reference(apprise_server):
    assert send(connect(apprise_server.url)) is None


def test_each_thread_gets_the_reason_of_its_own_text(apprise_server):
    numbers = [f"+1212555{i:04}" for i in range(64)]
    for i, number in enumerate(numbers):
        apprise_server.answers[number] = Answer(500 + i % 8)
    carrier = connect(apprise_server.url, 16)

    def status(number):
        return int(str(refused(carrier, number)).partition("error=")[2][:3])

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(status, numbers)) == [500 + i % 8 for i in range(64)]


def test_a_carriers_own_words_lose_numbers_texts_and_credentials(monkeypatch):
    from apprise.plugins.custom_json import NotifyJSON

    def send(self, body, **kwargs):
        self.logger.warning("%s to +1 (212) 555-0123 as 0012125550123\nby %s", body, self.password)
        raise RuntimeError(f"{self.host} {self.fullpath} {body}")

    monkeypatch.setattr(NotifyJSON, "send", send)
    error = refused(connect("json://user:s3cr%20et@127.0.0.1/path-token?:to={to}"))
    assert str(error) == "json:// *** to *** as *** by *** RuntimeError: *** /*** ***"
    assert meaning(error) == "in doubt"  # it may have been the carrier's yes that broke it


def test_a_plugin_that_gives_no_reason_is_named(monkeypatch):
    from apprise.plugins.custom_json import NotifyJSON

    monkeypatch.setattr(NotifyJSON, "send", lambda self, body, **kwargs: False)
    error = refused(connect("json://127.0.0.1/{to}", name="us"))
    assert str(error) == "json:// gave no reason"  # whatever the carrier is called
    assert meaning(error) == "for now"


# The start


@pytest.mark.parametrize(
    "url",
    [
        "json://user:s3cret@127.0.0.1/{to}",
        "bulksms://s3cret:s3cret@{to}",
        "voipms://s3cret:user@example.com/15005550006/{to}",
    ],
)
def test_the_start_warns_that_a_plugin_may_not_read_the_answer(url):
    warning = connect(url).warning
    assert "the HTTP status alone" in warning
    assert warning.isprintable()
    assert "s3cret" not in warning


@pytest.mark.parametrize("scheme", ["nosuchcarrier", "plvo", "messagbird"])
def test_a_scheme_that_apprise_does_not_have_is_refused(scheme):
    """Only when sending: the web does not load Apprise, and accepts it."""
    url = f"{scheme}://user:s3cret@127.0.0.1/{{to}}"
    with pytest.raises(ValueError, match=f"^Apprise has no carrier for this {scheme}:// URL$"):
        connect(url)
    assert carriers.connect(url, sending=False).name == scheme


def test_no_scheme_of_apprises_is_taken_for_a_misspelt_one():
    services = apprise.Apprise().details()["schemas"]
    schemes = {
        scheme
        for each in services
        for how in ("protocols", "secure_protocols")
        for scheme in each[how] or ()
    }
    assert len(schemes) > 100
    for scheme in schemes - carriers.OWN.keys():
        assert carriers.connect(f"{scheme}://host/{{to}}", sending=False).name == scheme
