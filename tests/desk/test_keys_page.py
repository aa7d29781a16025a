"""The page Keys: what each key sent lately, and Pause, Resume and Undo."""

from datetime import timedelta

import pytest

from access.audit import Audit
from access.keys import ApiKey, Role
from access.limits import parse
from database import clock
from desk_visitor import issue
from samples import HOUR, MINUTE, SECOND, TUESDAY_NOON
from stored_messages import create, key_named

PAGE = "/desk/keys"


@pytest.fixture
def shop(operator):
    ApiKey.issue("shop", "front", clock.now(), limits=parse("5/s,2000p/d"))
    return ApiKey.named("shop")


def paused(key):
    return ApiKey.get_by_id(key.id).paused_at is not None


def test_each_key_is_shown_with_limits_and_what_it_sent_lately(operator, shop, at):
    at(TUESDAY_NOON - 3 * HOUR)
    create("early", key=shop.id, parts=2)
    at(TUESDAY_NOON - MINUTE)
    create("late", key=shop.id)
    at(TUESDAY_NOON)
    key_named("gone").revoke(TUESDAY_NOON)
    text = operator.read(PAGE)
    assert "gone" not in text
    assert "shop sender of front" in text
    assert "The last hour: 1 text The last 24 hours: 2 texts, 3 parts" in text
    assert "Limits: 0 of 5/s, 3 of 2000p/d" in text


def test_a_key_is_paused_and_resumed_and_both_can_be_undone(operator, shop, at):
    operator.press("Pause", on=PAGE)
    assert "shop is paused." in operator.page.text
    assert paused(shop)
    assert "paused since 5:00 PM, Tuesday, Mar 3 UTC" in operator.page.text
    operator.press("Undo")
    assert "shop is resumed." in operator.page.text
    assert not paused(shop)
    operator.press("Pause")
    operator.press("Resume")
    assert not paused(shop)
    operator.press("Undo")
    assert paused(shop)
    whats = [row.what for row in Audit.select().where(Audit.key == shop.id).order_by(Audit.id)]
    assert whats[1:] == ["key paused", "key resumed"] * 2 + ["key paused"]


def test_undo_is_offered_for_a_minute(operator, shop, at):
    operator.press("Pause", on=PAGE)
    at(TUESDAY_NOON + timedelta(seconds=59))
    operator.open(PAGE)
    assert "for 1 second" in operator.page.text
    at(TUESDAY_NOON + MINUTE)
    operator.press("Undo")
    assert "Undo works for one minute" in operator.page.text
    assert paused(shop)


def test_what_somebody_else_has_done_meanwhile_is_said(operator, shop):
    operator.open(PAGE)
    shop.pause(TUESDAY_NOON)
    operator.press("Pause")
    assert "shop was already paused." in operator.page.text


def test_what_somebody_else_has_done_since_is_not_undone(operator, shop, at):
    operator.open(PAGE)
    operator.press("Pause")
    for seconds, change in ((1, shop.resume), (2, shop.pause)):
        at(TUESDAY_NOON + seconds * SECOND)
        assert change(clock.now())
        assert "shop is paused." not in operator.read(PAGE)
        assert not operator.page.buttons("Undo")
    operator.send(PAGE, undo=shop.id)
    assert "Undo works for one minute, and only until something else happens." in operator.page.text
    assert paused(shop)


def test_the_undo_of_an_older_page_is_of_its_own_key_alone(operator, shop):
    other = key_named("other")
    for fields in ({"pause": shop.id}, {"pause": other.id}, {"undo": shop.id}):
        operator.send(PAGE, **fields)
    assert "Undo works for one minute" in operator.page.text
    assert paused(shop)
    assert paused(other)


@pytest.mark.parametrize(
    "fields", [{}, {"pause": "x"}, {"pause": "99"}, {"resume": "²"}, {"pause": "9" * 30}]
)
def test_a_form_without_a_key_is_refused(operator, fields):
    operator.open(PAGE)
    assert operator.send(PAGE, **fields).status_code == 400


def test_a_persons_key_is_not_on_the_page_and_is_paused_in_the_shell_alone(operator):
    issue("Anna", role=Role.OPERATOR)
    operator.open(PAGE)
    assert "Anna" not in operator.page.text
    assert operator.send(PAGE, pause=ApiKey.named("Anna").id).status_code == 400
    assert not paused(ApiKey.named("Anna"))
