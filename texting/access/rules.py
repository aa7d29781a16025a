"""The rules for messages: those of their key, or else the settings."""

import re
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self

from texting import recipients
from texting.access.limits import read_recipient_limit
from texting.database import LAST
from texting.recipients import Recipient, weeks
from texting.recipients.hours import BusinessHours
from texting.recipients.quiet import KEY, QuietHours, QuietPlaces

NONE = "none"
ALL = "all"
"""A key's countries if its texts may go to every country, whatever ALLOWED_COUNTRIES says."""
CHECKS = ("always", "opted-out", "asked")
"""Which numbers on the Do Not Call list get no text: all, those that opted out, or as asked."""
UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class KeyRules(NamedTuple):
    """The rules of a key as an operator writes them; None: the setting applies."""

    hours: str | None = None
    quiet_hours: str | None = None  # or NONE
    check_dnc: str | None = None  # one of CHECKS
    expire_after: str | None = None
    urgent: bool = False
    countries: str | None = None  # "US,CA", or ALL
    recipient_limit: str | None = None  # or NONE

    def lifetime(self, setting: timedelta) -> timedelta:
        """Return how long after its first scheduled time a message may still be sent."""
        return duration(self.expire_after) if self.expire_after else setting

    def written(self) -> dict[str, str]:
        """Return each rule by the name of its option, "default" where the setting applies."""
        words = {True: "yes", False: "no", None: "default"}
        return {name.replace("_", "-"): words.get(v, v) for name, v in self._asdict().items()}

    def differences(self, before: Self) -> str:
        """Describe for the audit the rules that have changed."""
        others = before.written()
        changed = {name: text for name, text in self.written().items() if text != others[name]}
        return ", ".join(f"{name}: {text}" for name, text in changed.items())


NO_RULES = KeyRules()


def read(name: str, text: str) -> str:
    """Return a rule of a key in its stored form; raise ValueError if it is invalid."""
    text = " ".join(text.lower().split())
    if name == "check_dnc" and text not in CHECKS:
        raise ValueError(f"must be one of {', '.join(CHECKS)}")
    if name == "hours":
        weeks.business_hours(text)
    if name == "quiet_hours" and text != NONE:
        weeks.quiet_hours(text)
    if name == "expire_after":
        duration(text)
    if name == "countries" and text != ALL:
        codes = country_codes(text)
        if unknown := recipients.unknown_countries(codes):
            raise ValueError(f"no country with telephone numbers has the ISO 3166 code {unknown}")
        text = ",".join(codes)
    if name == "recipient_limit" and text != NONE:
        text = str(read_recipient_limit(text))
    return text


def country_codes(text: str) -> list[str]:
    """Return the country codes (ISO 3166, or 001) that a text lists, each once.

    Raise ValueError if it is no such list; the countries need not exist.
    """
    codes = [code.strip().upper() for code in text.split(",")]
    if not all(re.fullmatch("[A-Z]{2,3}|001", code) for code in codes):
        raise ValueError("must be a list of ISO 3166 codes, like US,CA,GB")
    return [*dict.fromkeys(codes)]


def duration(text: str) -> timedelta:
    """Return a positive length of time; raise ValueError if the text is none."""
    match = re.fullmatch(r"(\d{1,5})([mhd])", text.strip(), re.ASCII)
    if not match or not int(match[1]):
        raise ValueError("must be minutes, hours or days, like 30m, 72h or 10d")
    return timedelta(**{UNITS[match[2]]: int(match[1])})


def end_of(since: datetime, length: timedelta) -> datetime:
    """Return when a length of time ends, but no later than the last instant."""
    return since + min(length, LAST - since)


class Rules(NamedTuple):
    """What decides which messages of a key may go, and when."""

    opening: BusinessHours  # without the quiet hours, which differ by place: see `hours`
    quiet: QuietPlaces
    check_dnc: str  # one of CHECKS, whatever the request says
    expire_after: timedelta
    urgent: bool = False  # its messages go before those of other keys
    allowed_countries: frozenset[str] | None = None  # ISO 3166; None: all

    @classmethod
    def from_settings(cls, settings: Any) -> Self:
        """Return the rules of keys that have none of their own."""
        return cls(
            BusinessHours.from_settings(settings),
            QuietPlaces.from_settings(settings),
            settings.check_dnc,
            settings.expire_after,
            allowed_countries=settings.allowed_countries,
        )

    def of(self, own: KeyRules) -> Self:
        """Return the rules of a key with some of its own."""
        opening, quiet = self.opening, self.quiet
        if own.hours:
            windows = weeks.week(weeks.business_hours(own.hours))
            opening = opening._replace(windows=windows, local_week=False)
        if own.quiet_hours:
            windows = None if own.quiet_hours == NONE else weeks.quiet_hours(own.quiet_hours)
            quiet = QuietPlaces(windows and QuietHours.of(windows, KEY))
        allowed = self.allowed_countries
        if own.countries:
            allowed = None if own.countries == ALL else frozenset(country_codes(own.countries))
        return Rules(
            opening,
            quiet,
            own.check_dnc or self.check_dnc,
            own.lifetime(self.expire_after),
            own.urgent,
            allowed,
        )

    def keeps_off(self, check_dnc: bool, opted_out: bool) -> bool:
        """Return whether the Do Not Call list blocks a text to a number that is on it.

        `check_dnc` says whether its request asked for that.
        """
        return check_dnc or self.check_dnc == "always" or (self.check_dnc != "asked" and opted_out)

    def allow(self, country: str) -> bool:
        """Return whether texts may go to a country."""
        return self.allowed_countries is None or country in self.allowed_countries

    def hours(self, recipient: Recipient) -> BusinessHours:
        """Return the business hours of a recipient, with the quiet hours that apply there."""
        quiet = self.quiet.of(recipient.country, recipient.states)
        if not recipient.residence:
            return self.opening._replace(quiet=quiet)
        there = self.quiet.there(recipient.residence.place, recipient.clocks.country)
        return self.opening._replace(quiet=quiet, quiet_there=there)
