"""Lines at the start about a sender that is a name: nobody can answer it, and it is registered."""

import pytest

from texting.carriers import configs, connect
from texting.monitoring import checks

PUBLIC_URL = "https://sms.example.com"
SIGNED = "signature_secret=s1gnature&signature_method=sha256"


@pytest.mark.parametrize(
    ("url", "is_warned_of"),
    [
        ("twilio://AC1:token@My%20Shop", True),
        ("twilio://AC1:token@+15005550006", False),
        ("twilio://AC1:token@12345", False),
        (f"twilio://AC1:token@MG{'a' * 32}", False),
        (f"vonage://key:secret@Shop?{SIGNED}", True),
        (f"vonage://key:secret@447700900000?{SIGNED}", False),
        ("vonage://key:secret@Shop", False),  # no reply is understood in any case
        ("smpp://user:secret@127.0.0.1/Shop", True),
        ("smpp://user:secret@127.0.0.1/Shop?bind=transmitter", False),
        ("smpp://user:secret@127.0.0.1/12345", False),
    ],
)
def test_a_sender_that_is_a_name_is_warned_of_where_stop_is_understood(url, is_warned_of):
    warning = connect(url, public_url=PUBLIC_URL).warning or ""
    assert ("nobody can answer" in warning) == is_warned_of
    assert "\n" not in warning
    assert "secret" not in warning.replace("signature_secret", "")
    if not url.startswith("smpp"):  # without callbacks there is no STOP to miss
        assert connect(url).warning is None


AUSTRALIA, IRELAND = "“Unverified” in AU", "“Likely Scam” in IE"
OTHERS = [
    *("a number instead in BE", "blocked in ES", "blocked or “Unknown” in FI"),
    *("blocked if generic (“Info”) in GB", "blocked in SG"),
]


@pytest.mark.parametrize(
    ("url", "allowed", "named"),
    [
        ("twilio://AC1:token@My%20Shop", None, [AUSTRALIA, IRELAND]),
        ("vonage://key:secret@Shop", None, [AUSTRALIA, IRELAND]),  # no secret of signatures
        ("telnyx://secret@Shop?profile=4001", None, [AUSTRALIA, IRELAND]),
        ("smpp://user:secret@127.0.0.1/Shop?bind=transmitter", None, [AUSTRALIA, IRELAND]),
        ("twilio://AC1:token@Shop", {"BE", "ES", "FI", "GB", "SG", "US"}, OTHERS),
        ("twilio://AC1:token@Shop", {"AU", "US"}, [AUSTRALIA]),
        ("twilio://AC1:token@Shop", {"US"}, []),
        ("twilio://AC1:token@Shop#countries=IE,FR", None, [IRELAND]),
        ("twilio://AC1:token@Shop#countries=IE,FR", {"AU", "FR"}, []),
        ("twilio://AC1:token@+15005550006", None, []),
        ("smpp://user:secret@127.0.0.1/12345", None, []),
    ],
)
def test_a_name_is_warned_of_where_texts_go_to_a_country_with_a_register(
    settings, url, allowed, named
):
    settings = settings._replace(carrier_url=url, allowed_countries=allowed, public_url=PUBLIC_URL)
    connected = configs.connect_all(settings.carrier_configs, public_url=PUBLIC_URL)
    said = " ".join(checks.warnings(settings, connected))
    if named == [AUSTRALIA, IRELAND]:  # texts may go everywhere
        named = [*named, *OTHERS]
    assert [each for each in (AUSTRALIA, IRELAND, *OTHERS) if each in said] == named
    assert ("sends from a name" in said) == bool(named)
    assert "secret" not in said
    assert "Shop" not in said
