"""A line at the start says where recipients could not answer STOP: the sender is a name."""

import pytest

from carriers import connect

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
