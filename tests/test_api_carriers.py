"""Who may be texted is said by `countries` and `keys` of each carrier in CARRIER_URL together."""

import pytest

from answers import accepted, refusal, sender
from app import create_app
from samples import LONDON, NEW_YORK, TUESDAY_NOON
from texting.access.keys import ApiKey, Role
from texting.messages.model import Message

NUMBERS = {"US": NEW_YORK, "GB": LONDON, "FR": "+33123456789"}
US, GB, SHOP, TILL = "countries=US", "countries=GB", "keys=shop", "keys=till"


ALL = "shop US, shop GB, shop FR, till US, till GB, till FR, app US, app GB, app FR"


@pytest.mark.parametrize(
    ("carriers", "served"),
    [
        ([""], ALL),
        ([US], "shop US, till US, app US"),
        ([SHOP], "shop US, shop GB, shop FR"),
        # Both of one carrier hold together, in whatever order they are written
        ([f"{US}&{SHOP}"], "shop US"),
        ([f"{SHOP}&{US}"], "shop US"),
        ([f"{US},GB&{SHOP},till&rate=5/s"], "shop US, till US, shop GB, till GB"),
        # Those of several carriers are for each by itself
        ([US, SHOP], "shop US, till US, app US, shop GB, shop FR"),
        ([f"{US}&{SHOP}", GB], "shop US, shop GB, till GB, app GB"),
        ([f"{US}&{SHOP}", TILL], "shop US, till US, till GB, till FR"),
        ([f"{US}&{SHOP}", f"{GB}&{TILL}"], "shop US, till GB"),
        ([f"{US}&{TILL}", f"{US}&{SHOP}"], "shop US, till US"),
        ([f"{GB}&{SHOP}", f"{US}&{SHOP}"], "shop US, shop GB"),
        ([f"{US}&{SHOP}", ""], ALL),
        (["countries=001", "keys=nobody"], ""),
    ],
)
def test_a_carrier_is_for_its_keys_to_its_countries_and_for_no_others(
    settings, carriers, served, at
):
    at(TUESDAY_NOON)
    urls = [f"console:#name=c{n}&{after}".rstrip("&") for n, after in enumerate(carriers)]
    client = create_app(settings._replace(carrier_url=" ".join(urls))).test_client()
    for name in ("shop", "till", "app"):
        send = sender(client, ApiKey.issue(name, None, TUESDAY_NOON))
        for country, number in NUMBERS.items():
            before, answer = Message.select().count(), send(to=number)
            if f"{name} {country}" in served.split(", "):
                accepted(answer)
            else:
                refusal(answer, 403)
                assert answer.json["message"].startswith("No carrier serves ")
                assert Message.select().count() == before


def test_a_key_that_has_the_name_of_a_revoked_one_has_its_carrier(settings, at):
    """`keys` are names, so a key may be replaced without a restart."""
    at(TUESDAY_NOON)
    url = f"console:#{US}&{SHOP}"
    client = create_app(settings._replace(carrier_url=url)).test_client()
    for _ in range(2):
        send = sender(client, ApiKey.issue("shop", None, TUESDAY_NOON))
        assert [send(to=to).status_code for to in (NEW_YORK, LONDON)] == [201, 403]
        ApiKey.named("shop").revoke(TUESDAY_NOON)


@pytest.mark.parametrize("carriers", [f"console:#{GB}&{SHOP}", "console:#keys=nobody"])
def test_a_testers_text_is_for_no_carrier_and_refused_for_none(settings, carriers, at):
    at(TUESDAY_NOON)
    client = create_app(settings._replace(carrier_url=carriers)).test_client()
    secret = ApiKey.issue("tester", None, TUESDAY_NOON, role=Role.TESTER)
    accepted(sender(client, secret)())
