"""What `#countries=` of a carrier does for a text, its `#keys=` does, too, and both together."""

import pytest

from carriers.ways import Way
from models import Message
from samples import ALWAYS_OPEN, LONDON, NEW_YORK, TUESDAY_NOON
from several_carriers import OF_APP, OF_GB, OF_SHOP, OF_US
from stored_messages import key_named, store


def store_each():
    """Store a text of each of two keys to each of two countries."""
    for key in ("app", "shop"):
        for to, country in ((NEW_YORK, "US"), (LONDON, "GB")):
            store(to=to, country=country, key=key_named(key), message=f"{key} to {country}")


def given(carrier):
    """Return what a carrier was given, in no order."""
    return {text for _, text in carrier.texts}


ALONE = [
    (OF_US, {"app to US", "shop to US"}),
    (OF_APP, {"app to US", "app to GB"}),
    (OF_US | OF_APP, {"app to US"}),
]


@pytest.mark.parametrize(("options", "its_own"), ALONE)
def test_a_single_pass_gives_a_lone_carrier_all_that_it_may_be_given(
    run_both, us, options, its_own
):
    store_each()
    counts = run_both(TUESDAY_NOON, [Way("us", **options)], carriers=[us], **ALWAYS_OPEN)
    assert counts["sent"] == len(its_own)
    assert given(us) == its_own


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "then"),
    [
        (OF_GB, OF_US, {"app to US", "shop to US"}),
        (OF_SHOP, OF_APP, {"app to US", "app to GB"}),
        (OF_SHOP | OF_GB, OF_SHOP | OF_US, {"shop to US"}),
        (OF_SHOP | OF_GB, OF_APP | OF_GB, {"app to GB"}),
        (OF_SHOP, {}, {"app to US", "app to GB"}),
        (OF_GB, {}, {"app to US", "shop to US"}),
    ],
)
def test_what_waits_when_the_options_change_goes_by_the_new_ones(
    run_both, us, eu, before, after, then
):
    """The other carrier may be used for nobody's texts."""
    nobody = Way("eu", keys={"nobody"})
    store_each()
    run_both(TUESDAY_NOON, [Way("us", **before), nobody], **ALWAYS_OPEN)
    already = given(us)
    run_both(TUESDAY_NOON, [Way("us", **after), nobody], **ALWAYS_OPEN)
    assert given(us) - already == then
    assert eu.texts == []
    left = {message.message for message in Message.select() if message.status == "queued"}
    assert left == {f"{key} to {to}" for key in ("app", "shop") for to in ("US", "GB")} - given(us)
