"""The page Keys: what each key sent lately, and Pause and Resume."""

import pytest

from databases import on_both
from desk_visitor import issue
from samples import HOUR, MINUTE, TUESDAY_NOON
from stored_messages import create, key_named, store, store_many
from texting.access.audit import Audit
from texting.access.keys import ApiKey, Role
from texting.access.limits import parse
from texting.database import clock

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


def test_each_key_is_shown_with_the_rules_of_its_own(operator, shop):
    assert "Rules" not in operator.read(PAGE)
    shop.rule({"countries": "US,CA", "urgent": True}, TUESDAY_NOON)
    assert "Rules: urgent: yes, countries: US,CA" in operator.read(PAGE)


@on_both
def test_texts_are_counted_up_to_a_thousand(operator, shop):
    store_many(998, key=shop, parts=2)
    store(key=key_named("another"))
    assert "The last hour: 998 texts, 1,996 parts" in operator.read(PAGE)
    store_many(10, key=shop, parts=2)
    for span in ("The last hour", "The last 24 hours"):
        assert f"{span}: 1,000+ texts, 2,000+ parts" in operator.read(PAGE)


def test_a_key_is_paused_and_resumed(operator, shop):
    operator.press("Pause", on=PAGE)
    assert "shop is paused." in operator.page.text
    assert paused(shop)
    assert "paused since 5:00 PM, Tuesday, Mar 3 UTC" in operator.page.text
    assert not operator.page.buttons("Pause")
    operator.press("Resume")
    assert "shop is resumed." in operator.page.text
    assert not paused(shop)
    whats = [row.what for row in Audit.select().where(Audit.key == shop.id).order_by(Audit.id)]
    assert whats[1:] == ["key paused", "key resumed"]


def test_what_somebody_else_has_done_meanwhile_is_said(operator, shop):
    operator.open(PAGE)
    shop.pause(TUESDAY_NOON)
    operator.press("Pause")
    assert "shop was already paused." in operator.page.text


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
