"""Changes of the settings on which it rests that a text was allowed, noted in the audit.

Each process notes them when it starts, by what the one before it has left in the database. Values
are compared in one spelling, so another way to write the same is no change.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from peewee import TextField

from texting.access.audit import Action, Audit
from texting.database import Table, db, lock_texts
from texting.recipients.quiet import MINUTES_OF_DAY, QuietHours
from texting.recipients.weeks import DAYS, Week, Window, week
from texting.settings import Hours, Settings

NONE, ALL = "none", "all"
MOST_HOURS = timedelta(hours=72)
"""A longer time is written in days, if it is whole days."""


class SettingInForce(Table):
    """A setting as the process that started last has it."""

    name = TextField(primary_key=True)
    value = TextField()


def note(settings: Settings, now: datetime) -> None:
    """Note in the audit which settings differ from those of the process that started before.

    Of several that start together, one notes them.
    """
    values = spelt(settings)
    if _in_force() == values:
        return
    with db.transaction():
        lock_texts(["settings in force"])
        before = _in_force()
        for name, value in values.items():
            if name in before and before[name] != value:
                Audit.note(Action.CHANGED_SETTING, now, details=_change(name, before[name], value))
        rows = [{"name": name, "value": value} for name, value in values.items()]
        anew = SettingInForce.insert_many(rows)
        conflict = {"conflict_target": [SettingInForce.name], "preserve": [SettingInForce.value]}
        anew.on_conflict(**conflict).execute()


def _in_force():
    return dict(SettingInForce.select(SettingInForce.name, SettingInForce.value).tuples())


def _change(name, before, after):
    """Describe a change; of a file, only the lines that differ."""
    if name != "QUIET_HOURS_FILE":
        return f"{name} was {before}, is {after}"
    old, new = (dict(line.split(": ", 1) for line in text.splitlines()) for text in (before, after))
    places = sorted(each for each in old | new if old.get(each) != new.get(each))
    lines = [
        f"{each} was {old.get(each, 'not there')}, is {new.get(each, 'not there')}"
        for each in places
    ]
    return f"{name}: {'; '.join(lines)}"


# One spelling of each value


def spelt(settings: Settings) -> dict[str, str]:
    """Return the settings that decide whether a text is allowed, by their variables."""
    windows = week(settings.business_hours, settings.business_days or range(7))
    open_days = [day for day, window in enumerate(windows) if window]
    is_local = settings.business_days is None
    limit, quiet = settings.recipient_limit, settings.quiet_hours
    places = {place: _quiet(hours) for place, hours in settings.quiet_hours_file.items()}
    return {
        "BUSINESS_HOURS": _span(windows[open_days[0]]) if _is_even(windows) else _days(windows),
        "BUSINESS_DAYS": "local" if is_local else _runs(dict.fromkeys(open_days, "")),
        "SKIP_HOLIDAYS": str(settings.skip_holidays).lower(),
        "QUIET_HOURS": _quiet(quiet),
        "QUIET_HOURS_FILE": "\n".join(f"{place}: {places[place]}" for place in sorted(places)),
        "CHECK_DNC": settings.check_dnc,
        "ALLOWED_COUNTRIES": _countries(settings.allowed_countries),
        "EXPIRE_AFTER": _length(settings.expire_after),
        "RECIPIENT_LIMIT": f"{limit.number}/{_length(limit.window)}" if limit else NONE,
    }


def _is_even(windows: Week) -> bool:
    """Return whether all days that have a window have the same."""
    return len({*windows} - {None}) == 1


def _quiet(hours: Hours | None) -> str:
    """Return quiet hours; those of holidays only where they add to those of each day."""
    if hours is None:
        return NONE
    windows, holidays, _ = QuietHours.of(_whole(hours))
    is_daily = _is_even(windows) and None not in windows
    parts = [_span(windows[0]) if is_daily else _days(windows)]
    if holidays and {*windows} != {holidays}:
        parts = [_days(windows), f"holidays {_span(holidays)}"]
    return ", ".join(filter(None, parts))


def _whole(hours):
    """Write an end at midnight in one way: 24:00 of the same day."""
    if isinstance(hours, Mapping):
        return {day: _whole(window) for day, window in hours.items()}
    begins, ends = hours
    return begins, ends or MINUTES_OF_DAY


def _days(windows: Week) -> str:
    """Return the windows of a week, each run of days with the same one as an entry."""
    return _runs({day: f" {_span(window)}" for day, window in enumerate(windows) if window})


def _runs(texts: Mapping[int, str]) -> str:
    """Return days with their texts; of days in a row that have the same, the first and last."""
    runs = []
    for day, text in texts.items():
        if runs and (day - 1, text) == runs[-1][1:]:
            runs[-1] = runs[-1][0], day, text
        else:
            runs.append((day, day, text))
    return ", ".join(
        (DAYS[first] if first == last else f"{DAYS[first]}-{DAYS[last]}") + text
        for first, last, text in runs
    )


def _span(window: Window) -> str:
    return "-".join(f"{minute // 60:02}:{minute % 60:02}" for minute in window)


def _countries(codes: frozenset[str] | None) -> str:
    return ALL if codes is None else ",".join(sorted(codes))


def _length(length: timedelta) -> str:
    """Return a length of time in minutes, hours or days: 90m, 72h, 10d."""
    for unit, name in ((timedelta(days=1), "d"), (timedelta(hours=1), "h")):
        if not length % unit and (name == "h" or length > MOST_HOURS):
            return f"{length // unit}{name}"
    return f"{length // timedelta(minutes=1)}m"
