"""Addresses of events: their secrets are shown nowhere, and are not kept in the audit."""

import json

import pytest

from access.audit import Audit
from events.outbox import EventAddress
from stored_messages import key_named

pytestmark = pytest.mark.usefixtures("database_url")

SHOWN = {
    "https://shop.example.com/events": "https://shop.example.com/events",
    "https://T0KEN@shop.example.com": "https://***@shop.example.com",
    "https://me:T0KEN@shop.example.com:8443/a": "https://***@shop.example.com:8443/a",
    "https://T0KEN:@[2001:db8::1]:8443/a": "https://***@[2001:db8::1]:8443/a",
    "https://me@T0KEN@shop.example.com/": "https://***@shop.example.com/",
    "https://shop.example.com/?key=T0KEN": "https://shop.example.com/?key=***",
    "https://shop.example.com/a?of=app&key=T0KEN": "https://shop.example.com/a?of=***&key=***",
    "https://shop.example.com/a?key=a=T0KEN": "https://shop.example.com/a?key=***",
    "https://shop.example.com/a?key=a?T0KEN": "https://shop.example.com/a?key=***",
    "https://shop.example.com/a?T0KEN": "https://shop.example.com/a?***",
    "https://shop.example.com/a?a=&T0KEN&": "https://shop.example.com/a?a=***&***&",
    "http://T0KEN@localhost?key=T0KEN": "http://***@localhost?key=***",
    # A slash that is not encoded ends the user and the password too soon
    "https://me:53/T0KEN@shop.example.com/a": "https://***@shop.example.com/a",
    "https://T0KEN/T0KEN@shop.example.com": "https://***@shop.example.com",
    "https://me@53/T0KEN@shop.example.com/?key=T0KEN@a": "https://***@shop.example.com/?key=***",
}


@pytest.mark.parametrize(("address", "shown"), SHOWN.items())
def test_neither_user_nor_password_nor_the_values_of_a_query_are_shown(run, address, shown):
    run("keys", "create", "shop", "--events", address)
    key_named("app")
    told = [
        *(run("keys", "events", "app", address), run("keys", "events", "app")),
        *(run("keys", "events", "app", "--rotate"), run("keys", "events", "app", "--off")),
    ]
    assert all(f"app: {shown} (" in each for each in told)
    listed = json.loads(run("keys", "list", "--json"))
    assert [key["events"]["url"] for key in listed] == [shown, shown]
    everything = [*told, run("keys", "list"), run("audit"), run("audit", "--json")]
    assert not any("T0KEN" in each for each in everything)
    assert shown in run("audit")
    assert {each.url for each in EventAddress.select()} == {address}
    assert not any("T0KEN" in str(row) for row in Audit.select().tuples())


# Addresses of the link

LINK_LOCAL = [
    *("http://169.254.169.254/", "http://169.254.0.0", "https://169.254.255.255:8443/a?b=c"),
    *("http://[fe80::1]/", "http://[febf::1]:80/", "http://[fe80::1%25eth0]/", "http://[FE80::A]"),
    *("http://me:pass@169.254.169.254/", "http://[::ffff:169.254.169.254]/"),
    *(
        "http://2852039166/",
        "http://0xa9fea9fe/",
        "http://0xA9.0376.43518/",
        "http://169.254.43518",
    ),
    *("http://169.254.169.254./", "http://１６９.２５４.１６９.２５４/"),
]
OTHERS = [
    *("http://169.253.255.255/", "http://169.255.0.0/", "http://[fec0::1]/", "http://[fe7f::1]/"),
    *("http://10.0.0.1/", "http://127.0.0.1/", "http://[::1]/", "http://192.168.1.1:8080/a"),
    *("http://169.254.169.254.example.com/", "http://shop.example.com/169.254.169.254"),
    *("http://[::ffff:10.0.0.1]/", "http://169.254.169.254@shop.example.com/"),
]


@pytest.mark.parametrize("address", LINK_LOCAL)
def test_an_address_of_the_link_is_refused_unless_it_is_meant(refused, run, address):
    key_named("app")
    for words in (("keys", "events", "app", address), ("keys", "create", "b", "--events", address)):
        line = refused(*words)
        assert "--any-address" in line
        assert address not in line
    assert not EventAddress.select().exists()
    assert [key["name"] for key in json.loads(run("keys", "list", "--json"))] == ["app"]
    run("keys", "events", "app", address, "--any-address")
    run("keys", "create", "b", "--events", address, "--any-address")
    assert [each.url for each in EventAddress.select()] == [address, address]


@pytest.mark.parametrize("address", OTHERS)
def test_any_other_address_needs_no_word_more(run, address):
    key_named("app")
    run("keys", "events", "app", address)
    assert EventAddress.get().url == address
