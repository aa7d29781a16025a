"""A change of a key's rules is in force for what a scheduler sends next, also within a pass."""

from datetime import UTC, datetime

import pytest

from access.do_not_call import DoNotCall
from access.keys import ApiKey
from database import db
from models import Status
from scheduler import Scheduler
from stored_messages import key_named, statuses, store_many

THREE_AM = datetime(2026, 3, 4, 8, tzinfo=UTC)  # in New York


def rule(name, **changes):
    try:
        ApiKey.get(ApiKey.name == name).rule(changes, THREE_AM, lambda own: None)
    finally:
        db.close()  # of the thread that talks to the carrier


@pytest.mark.parametrize(
    ("changes", "becomes"),
    [
        ({"quiet_hours": "21:00-08:00"}, Status.SCHEDULED),
        ({"hours": "09:00-17:00"}, Status.SCHEDULED),
        ({"check_dnc": "always"}, Status.BLOCKED),
    ],
)
def test_after_a_change_the_next_text_of_the_same_pass_keeps_to_it(
    changes, becomes, settings, carrier, at
):
    at(THREE_AM)
    key_named("app").rule({"hours": "00:00-24:00"}, THREE_AM, lambda own: None)
    hour_ago = THREE_AM.replace(hour=7)
    numbers = store_many(5, THREE_AM, first_send_at=hour_ago, send_at=hour_ago)
    DoNotCall.add(numbers[1:], THREE_AM, "operator")
    carrier.answers[numbers[0]] = lambda: rule("app", **changes)
    Scheduler(settings._replace(send_concurrency=1), carrier).run_pass()
    assert carrier.numbers == numbers[:1]
    assert statuses() == {Status.SENT: 1, becomes: 4}


def test_a_key_that_becomes_urgent_in_a_pass_is_served_next(settings, carrier, at):
    at(THREE_AM)
    for name in ("news", "codes"):
        key_named(name).rule({"hours": "00:00-24:00"}, THREE_AM, lambda own: None)
        store_many(4, THREE_AM, key=key_named(name), message=name)

    def change():
        if len(carrier.texts) == 1:
            rule("codes", urgent=True)

    carrier.answers = {f"+1212555{n:04}": change for n in range(4)}
    Scheduler(settings._replace(send_concurrency=1), carrier).run_pass()
    assert [text for _, text in carrier.texts] == ["news"] + 4 * ["codes"] + 3 * ["news"]
