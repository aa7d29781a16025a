"""A day's limit that is used up in the day's last minute is told after midnight, once."""

from datetime import timedelta

import pytest

from models import Status
from samples import TUESDAY_NOON
from stored_messages import key_named, store
from test_notices import MINUTE, look, used  # noqa: F401  a fixture

pytestmark = pytest.mark.usefixtures("database_url")

MIDNIGHT = TUESDAY_NOON.replace(hour=0) + timedelta(days=1)
SECOND = timedelta(seconds=1)
ALL = "The key shop has used up all of its limit of 10/d"
NEARLY = "The key shop has used up 80 % of its limit of 10/d"


def sent(key, at):
    store(now=at, key=key, status=Status.SENT, finished_at=at)


@pytest.mark.parametrize("late", [timedelta(0), 4 * SECOND, 10 * MINUTE])
def test_what_was_used_up_just_before_midnight_is_told_once(look, late):  # noqa: F811
    key = key_named("shop")
    used(key, 8, "10/d", now=MIDNIGHT - MINUTE)
    assert look(MIDNIGHT - MINUTE) == [f"{NEARLY}."]
    used(key, 10, now=MIDNIGHT - SECOND)
    assert look(MIDNIGHT + late) == [f"{ALL} on 2026-03-03."]
    assert look(MIDNIGHT + late + SECOND) == []


def test_it_is_told_though_the_key_has_been_used_since(look):  # noqa: F811
    key = key_named("shop")
    for _ in range(10):
        sent(key, MIDNIGHT - SECOND)
    sent(key, MIDNIGHT + SECOND)
    used(key, 1, "10/d", now=MIDNIGHT + SECOND)
    assert look(MIDNIGHT + 2 * SECOND) == [f"{ALL} on 2026-03-03."]
    for _ in range(7):
        sent(key, MIDNIGHT + MINUTE)
    used(key, 8, now=MIDNIGHT + MINUTE)
    assert look(MIDNIGHT + MINUTE) == [f"{NEARLY}."]
    assert look(MIDNIGHT + 2 * MINUTE) == []


def test_what_was_told_before_midnight_is_not_told_again(look):  # noqa: F811
    used(key_named("shop"), 10, "10/d", now=MIDNIGHT - SECOND)
    assert look(MIDNIGHT - SECOND) == [f"{ALL}."]
    assert look(MIDNIGHT) == []


def test_what_was_used_up_yesterday_is_no_news_in_the_morning(look):  # noqa: F811
    used(key_named("shop"), 10, "10/d", now=MIDNIGHT - SECOND)
    assert look(MIDNIGHT + timedelta(hours=8)) == []
