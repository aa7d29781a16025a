"""An operator finds messages by key and by the day on which they were created."""

import re

import pytest

from databases import on_sqlite
from desk_visitor import walk
from models import Status, new_id
from samples import LONDON, TUESDAY_NOON
from stored_messages import DAY, HOUR, held, key_named, store

MIDNIGHT = TUESDAY_NOON.replace(hour=0)
CREATED = {  # by when
    "text 1": MIDNIGHT - HOUR / 3600000,
    "text 2": MIDNIGHT,
    "text 3": MIDNIGHT + DAY - HOUR / 3600000,
    "text 4": MIDNIGHT + DAY,
}


def found(operator, path):
    return sorted(text for page in walk(operator, f"/desk/messages{path}") for text in page)


@pytest.mark.slow
@pytest.mark.parametrize("status", [None, *Status])
def test_messages_are_found_by_key_day_and_status_in_every_mix(operator, status):
    ended = None if status in (None, *list(Status)[:3]) else TUESDAY_NOON
    for text, at in CREATED.items():
        for key in ("app", "shop"):
            held(
                status or Status.QUEUED,
                message=text if key == "shop" else text.replace("text ", "text 1"),
                key=key_named(key),
                id=new_id(at),
                created_at=at,
                finished_at=ended,
            )
    more = f"&status={status}" if status else ""
    assert len(found(operator, f"?{more}")) == 8
    assert found(operator, f"?key=shop{more}") == [*CREATED]
    assert found(operator, f"?day=2026-03-03{more}") == ["text 12", "text 13", "text 2", "text 3"]
    assert found(operator, f"?day=2026-03-03&key=shop{more}") == ["text 2", "text 3"]
    other = "failed" if status != Status.FAILED else "sent"
    assert found(operator, f"?day=2026-03-03&key=shop&status={other}") == []


@on_sqlite
def test_the_form_asks_for_all_of_them_and_keeps_what_was_asked(operator):
    for key, to in (("app", LONDON), ("shop", LONDON), ("shop", None)):
        store(message=f"text {len(key)}", key=key_named(key), **{"to": to} if to else {})
    operator.open("/desk/messages")
    operator.press("Show", number=LONDON, key="shop", day="2026-03-03", status="")
    assert "text 4" in operator.page.text
    assert "text 3" not in operator.page.text
    assert operator.at.startswith("/desk/messages?key=shop&day=2026-03-03&like=")
    chosen = [
        attrs for tag, attrs in operator.page.elements if tag == "option" and "selected" in attrs
    ]
    assert len(chosen) == 1
    assert ("day", "2026-03-03") in operator.page.forms[1]["inputs"]
    operator.press("Show", number="", key="", day="", status="")
    assert operator.at == "/desk/messages"


@on_sqlite
def test_a_name_that_was_revoked_and_created_again_can_be_chosen_once(operator, run):
    for _ in range(3):
        run("keys", "create", "shop")
        run("keys", "revoke", "shop")
    run("keys", "create", "another")
    page = operator.open("/desk/messages").text
    offered = re.findall("<option>([^<]*)</option>", page[page.index('<select id="key"') :])
    assert offered == ["another", "shop"]


@on_sqlite
def test_pages_of_a_key_and_day_skip_nothing(operator):
    for number in range(110):
        store(message=f"text {number}", key=key_named(f"key {number % 2}"))
    seen = found(operator, "?key=key 1&day=2026-03-03")
    assert len(seen) == len({*seen}) == 55


@on_sqlite
@pytest.mark.parametrize(
    "asked", ["key=none", "key=%00", "day=x", "day=2026-02-30", "day=9999-12-31", "day=%00"]
)
def test_what_there_is_not_is_a_page_that_says_so(operator, asked):
    response = operator.open(f"/desk/messages?{asked}")
    assert response.status_code == 400
    assert ("no such key" if "key" in asked else "2026-11-24") in operator.page.text


@on_sqlite
@pytest.mark.parametrize("day", ["0001-01-01", "1969-12-31", "9999-12-30"])
def test_a_day_of_no_message_finds_none(operator, day):
    store()
    assert operator.open(f"/desk/messages?day={day}").status_code == 200
    assert "No messages" in operator.page.text


@on_sqlite
def test_only_keys_that_send_are_offered(operator):
    key_named("shop")
    operator.open("/desk/messages")
    options = operator.response.text.partition('name="key"')[2].partition("</select>")[0]
    assert "<option>shop</option>" in options
    assert "Olga" not in options
