"""carriers/configs.py: one or more carriers in CARRIER_URL, and what follows the `#`."""

import pytest

from texting.carriers.configs import CarrierConfig, connect_all, parse

TWILIO = "twilio://AC1:s3cret@+15005550006"
VONAGE = "vonage://key:s3cret@ACME"
WEBHOOK = "webhook+https://example.com/a?secret=s3cret"


def test_one_url_is_one_carrier_for_everything():
    assert parse(TWILIO) == (CarrierConfig("twilio", TWILIO),)
    assert parse("") == ()


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (TWILIO, "twilio"),
        (WEBHOOK, "webhook"),
        ("webhook+http://localhost/", "webhook"),
        ("nexmo://key:s3cret@ACME/{to}", "vonage"),
        ("SMPPS://user:s3cret@host/Shop", "smpps"),
        ("console:", "console"),
        (f"{TWILIO}#name=US-1", "US-1"),
    ],
)
def test_a_carrier_is_called_by_its_name_or_its_scheme(url, name):
    (config,) = parse(url)
    assert config.name == name


def test_white_space_separates_carriers_in_their_order():
    text = f"  {TWILIO}#countries=US,CA&rate=10/s&name=us\n\t{VONAGE}#keys=login,my%20shop,a%2Cb \n"
    assert parse(text) == (
        CarrierConfig("us", TWILIO, frozenset({"US", "CA"}), None, 10.0),
        CarrierConfig("vonage", VONAGE, None, frozenset({"login", "my shop", "a,b"}), None),
    )


NO_URLS = [
    *("s3cret", "//s3cret", "://s3cret", ":s3cret", "AC1:s3cret@+15005550006", "webhook+https"),
    *("twilio//AC1:s3cret@+15005550006", "twilio/AC1:s3cret", "twilio;//AC1:s3cret@a"),
    "a b s3cret",
    *(
        f"{scheme}{slashes}{rest}"
        for scheme in ("twilio:", "Vonage:", "smpps:", "webhook+https:", "json:", "console:")
        for slashes in ("", "/", "\\\\", "/\\")
        for rest in ("AC1:s3cret@+15005550006", "s3cret?base_url=http://a:b@host/{to}")
    ),
]


@pytest.mark.parametrize("word", NO_URLS)
def test_a_word_that_is_no_url_is_refused_and_not_repeated(word):
    after = f"{WEBHOOK} {word}#name=other"  # no part of that one's secret
    for text in (word, f"{word} {word}", f"{word} console:", f"{TWILIO}\n{word}", after):
        with pytest.raises(ValueError, match="not the URL of a carrier") as problems:
            parse(text)
        words = str(problems.value)
        assert not any(secret in words.lower() for secret in ("s3cret", "ac1", "+1500", "called"))


def test_a_space_within_a_url_is_not_read_as_a_part_of_it():
    with pytest.raises(ValueError, match=r"carrier 2: not the URL .*%20"):
        parse("twilio://AC1:s3cret@My Shop")


@pytest.mark.parametrize(
    "after",
    [
        *("", "name=", "name=a_b", "name=a%20b", "name=ä", "name=a/b", "colour=red", "name"),
        *("countries=", "countries=us", "countries=UK", "countries=US,,CA", "countries=XX,US"),
        *("keys=", "keys=a,", "keys=%20", "rate=", "rate=0/s", "rate=10", "rate=ten/s"),
        *("name=a&name=b", "countries=US&countries=CA", "s3cret", "Name=a", "&", "name=a&"),
    ],
)
def test_what_cannot_be_read_is_one_problem_that_repeats_no_value(after):
    with pytest.raises(ValueError, match=r"after #|must be") as problem:
        parse(f"{TWILIO}#{after}")
    words = str(problem.value)
    assert "\n" not in words
    assert "s3cret" not in words


def test_all_problems_of_all_carriers_are_told_a_line_each():
    with pytest.raises(ValueError, match="carrier 1: ") as problems:
        parse(f"{TWILIO}#rate=0/s&countries=UK {VONAGE}#nam=b {TWILIO} twilio://x:y@+15005550006")
    lines = str(problems.value).splitlines()
    assert len(lines) == 4
    assert [line[:9] for line in lines[:3]] == ["carrier 1", "carrier 1", "carrier 2"]
    assert lines[3].startswith("3 carriers are called twilio")
    assert "s3cret" not in str(problems.value)


@pytest.mark.parametrize("other", [TWILIO, f"{VONAGE}#name=twilio", f"{WEBHOOK}#name=twilio"])
def test_two_of_one_name_are_a_problem(other):
    with pytest.raises(ValueError, match="2 carriers are called twilio") as caught:
        parse(f"{TWILIO} {other}")
    words = str(caught.value)
    assert "\n" not in words
    assert "s3cret" not in words


def test_those_that_cannot_be_used_are_told_together_with_their_places():
    configs = parse("twilio://AC1:s3cret@ console: vonage://s3cret@ACME")
    with pytest.raises(ValueError, match="carrier 1: ") as problems:
        connect_all(configs, sending=False)
    lines = str(problems.value).splitlines()
    assert [line[:9] for line in lines] == ["carrier 1", "carrier 3"]
    assert "s3cret" not in str(problems.value)


def test_connected_carriers_have_their_names_and_call_back_under_them():
    configs = parse(f"{TWILIO}#name=us {TWILIO}#name=eu simulator:")
    connected = connect_all(configs, public_url="https://sms.example.com/x")
    assert [carrier.name for carrier in connected] == ["us", "eu", "simulator"]
    assert connected[0]._fields["StatusCallback"] == "https://sms.example.com/x/carriers/us/status"
    assert connected[1]._fields["StatusCallback"] == "https://sms.example.com/x/carriers/eu/status"
