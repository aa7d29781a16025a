"""The contract of carriers' callbacks: which are genuine, and what they say of a text."""

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carrier_errors import MESSAGE_ID
from kits import (
    CLASSES,
    KITS,
    NUMBER,
    PUBLIC_URL,
    REFERENCE,
    WITH_CALLBACKS,
    connected,
    unidentified,
)
from texting import carriers
from texting.carriers import Callback, NotGenuine, OptOut, Receipt, Shown
from texting.carriers.http import LONGEST_REFERENCE

by_all = pytest.mark.parametrize("name", WITH_CALLBACKS)
HOW = {name: KITS[name].callbacks for name in WITH_CALLBACKS}
MADE_UP = st.text(st.sampled_from("abc019"), min_size=1)


@by_all
@given(data=st.data(), kind=st.sampled_from(["status", "inbound"]))
def test_whatever_the_carrier_signs_is_genuine(name, data, kind):
    connected(name).callback(HOW[name].sign(data.draw(HOW[name].fields), kind))


@pytest.mark.parametrize("name", [name for name, how in HOW.items() if how.covers_body])
@given(data=st.data(), value=MADE_UP)
def test_whatever_is_changed_on_the_way_is_not_genuine(name, data, value):
    how = HOW[name]
    fields, others = data.draw(how.fields), data.draw(how.fields)
    field = data.draw(st.sampled_from([*(fields | others), "a"]))
    changed = fields | {field: value}
    callback = how.sign(fields)
    if changed != fields:
        with pytest.raises(NotGenuine):
            connected(name).callback(how.change(callback, changed))


@by_all
@pytest.mark.parametrize("kind", ["report", "reply"])
def test_what_another_signs_is_not_genuine(name, kind):
    how = HOW[name]
    call = how.report if kind == "report" else how.reply
    assert connected(name).callback(call("delivered"))
    with pytest.raises(NotGenuine):
        connected(name).callback(call("delivered", secret=how.another_secret))


@pytest.mark.parametrize(
    ("name", "callback"),
    [(name, callback) for name, how in HOW.items() for callback in how.forgeries()],
    ids=lambda value: repr(value)[:60],
)
def test_what_is_not_signed_is_not_genuine(name, callback):
    with pytest.raises(NotGenuine):
        connected(name).callback(callback)


UNSIGNED = Callback("status", "POST", "https://example.com/carriers/x/status", {}, b"")


@pytest.mark.parametrize(
    ("url", "callback"),
    [
        *((kit.url, UNSIGNED) for kit in KITS.values()),
        *((kit.url, how.report("delivered")) for kit in KITS.values() for how in HOW.values()),
        *((url, how.report("delivered")) for how in HOW.values() for url in how.unverified),
    ],
    ids=lambda value: repr(value)[:60],
)
def test_a_carrier_without_a_secret_for_them_finds_none_genuine(url, callback):
    carrier = carriers.connect(url, public_url=PUBLIC_URL, sending=False)
    with pytest.raises(NotGenuine):
        carrier.callback(callback)


@by_all
@pytest.mark.parametrize("from_us", [True, False])
def test_a_callback_names_the_from_of_a_text_and_of_its_answer(name, from_us):
    how, carrier = HOW[name], connected(name)
    assert carrier.is_named_in(how.report("delivered"))
    assert carrier.is_named_in(how.reply("hi", to=None if from_us else "+15005550009")) == from_us


# What they say


@pytest.mark.parametrize(
    ("name", "status", "code", "became"),
    [(name, *each) for name, how in HOW.items() for each in how.statuses],
)
def test_a_status_says_what_became_of_a_text(name, status, code, became):
    receipt = Receipt(REFERENCE, became == "delivered", None if became == "delivered" else became)
    stop = OptOut(NUMBER, True, "carrier")
    said = [receipt if became else Shown(REFERENCE)]
    said += [stop] * (code in map(str, CLASSES[name].codes.opted_out))
    assert unidentified(connected(name), HOW[name].report(status, code)) == said


@pytest.mark.parametrize(
    ("name", "status", "code", "became"),
    [(name, *each) for name, how in HOW.items() for each in how.statuses],
)
def test_a_report_names_the_message_and_shows_that_the_carrier_has_it(name, status, code, became):
    """Any report does, also one that is not the last word."""
    told = connected(name).callback(HOW[name].report(status, code, message_id=MESSAGE_ID))[0]
    assert type(told) is (Receipt if became else Shown)
    assert told.reference == HOW[name].reference(MESSAGE_ID)
    assert told.message_id == MESSAGE_ID


@by_all
@pytest.mark.parametrize(
    "id",
    ["x", "7", MESSAGE_ID[:-1], MESSAGE_ID + "0", "x" * 36, "\0", "%00", "é", "🎉", "0" * 5000],
)
def test_a_report_that_names_what_is_no_message_names_none(name, id):
    carrier, how = connected(name), HOW[name]
    can_be_stored = len(how.reference(id)) <= LONGEST_REFERENCE
    for is_last in (True, False):
        status = next(each[:2] for each in how.statuses if bool(each[2]) == is_last)
        told = carrier.callback(how.report(*status, message_id=quote(id)))
        assert [each.message_id for each in told] == [None] * can_be_stored


@by_all
def test_a_reply_is_returned_as_it_came(name):
    text = " Stop?\n\u200b 🎉 "
    (reply,) = unidentified(connected(name), HOW[name].reply(text))
    assert (reply.number, reply.text) == (NUMBER, text)


@pytest.mark.parametrize(
    ("name", "sender"), [(name, sender) for name, how in HOW.items() for sender in how.no_numbers]
)
def test_a_stop_from_what_is_no_number_is_nothing(name, sender):
    assert connected(name).callback(HOW[name].reply("STOP", sender)) == []
