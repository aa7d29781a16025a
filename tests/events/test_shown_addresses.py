"""Addresses of events: their secrets are shown nowhere, and are not kept in the audit."""

import json

import pytest

from stored_messages import key_named
from texting.access.audit import Audit
from texting.events.outbox import EventAddress

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
