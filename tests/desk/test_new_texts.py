"""The open page learns how many texts have come since it was shown."""

import pytest

from databases import on_both
from desk_visitor import ask
from samples import DAY, MINUTE, SECOND, TUESDAY_NOON
from stored_messages import decide_on


def asked_at(visitor):
    """The address that the script of the open page asks."""
    (address,) = (attrs["data-ask"] for _, attrs in visitor.page.elements if "data-ask" in attrs)
    return address


def counted(visitor):
    """Ask as the script does; return the answer, and leave the page open."""
    return visitor.client.get(asked_at(visitor))


@on_both
@pytest.mark.parametrize("person", ["approver", "operator"])
def test_texts_that_came_since_are_counted_and_no_others(approver, operator, at, person):
    visitor = {"approver": approver, "operator": operator}[person]
    ask(now=TUESDAY_NOON - DAY)
    decided = ask()
    visitor.open()
    assert counted(visitor).json == {"texts": 0}
    ask("came late, by a clock that is late", now=TUESDAY_NOON - 3 * SECOND)
    at(TUESDAY_NOON + MINUTE)
    ask(now=TUESDAY_NOON + MINUTE, send_at=TUESDAY_NOON + DAY)
    ask(now=TUESDAY_NOON + MINUTE, manual_mode=False)
    ask(now=TUESDAY_NOON + MINUTE, available_to_group=False)
    ask(now=TUESDAY_NOON + MINUTE, key="other", group="back")
    assert counted(visitor).json == {"texts": 2 + 2 * (person == "operator")}
    visitor.open()
    assert counted(visitor).json == {"texts": 0}
    decide_on(decided).approve("Bob", TUESDAY_NOON)
    assert counted(visitor).json == {"texts": 0}


def test_asking_keeps_the_cookie_as_it_is(approver):
    """Or an answer that is late would bring back the one from before a button was pressed."""
    ask()
    approver.open()
    assert "Set-Cookie" not in counted(approver).headers


def test_who_has_signed_out_meanwhile_is_sent_to_the_sign_in(approver):
    address = asked_at(approver)
    approver.press("Sign out")
    assert approver.client.get(address).location == "/desk/"


@pytest.mark.parametrize("since", ["", "x", "-1", "9" * 30, "9" * 5000, "1.5"])
def test_an_address_of_nothing_counts_all_or_nothing(approver, since):
    ask()
    response = approver.client.get(f"/desk/new-texts?since={since}&known={since}")
    assert response.status_code in (200, 400)


def test_other_pages_do_not_ask(operator):
    for page in ("messages", "replies", "keys", "do-not-call"):
        assert "data-ask" not in operator.open(f"/desk/{page}").text
