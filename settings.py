"""The settings of the service: read from the environment, typed, bounded, with defaults."""

import logging
import os
import re
import sys
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple, NoReturn

from dotenv import dotenv_values, load_dotenv
from environs import Env, EnvError, EnvValidationError

import logs
from access import limits
from carriers import urls, ways

VERSION = "1.0.0"
"""The version of the service, for `flask version`, `/healthz` and the log."""

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
DEFAULT_DATABASE = "sqlite:///messages.db"
EPHEMERAL_HOSTS = ("DYNO", "RENDER", "RAILWAY_ENVIRONMENT", "FLY_APP_NAME", "K_SERVICE")
"""Variables set by hosts with ephemeral disks."""

Window = tuple[int, int]
"""A beginning and an end, in minutes after midnight."""

log = logging.getLogger("settings")


class SettingsError(Exception):
    """The environment is invalid: one line per problem, each naming its variable."""


class Settings(NamedTuple):
    """Every setting, typed and within its bounds."""

    database_url: str
    business_hours: Window | dict[int, Window]  # a dict: of each day that has some
    business_days: frozenset[int] | None  # Monday is 0; None: those of the recipient's country
    skip_holidays: bool
    quiet_hours: Window | None  # can pass midnight
    max_message_length: int  # characters
    max_retries: int
    retry_delay: int  # seconds
    claim_timeout: int  # seconds
    send_concurrency: int
    send_rate: float | None  # parts a second; None: as fast as the carrier takes them
    carrier_timeout: int  # seconds
    shutdown_timeout: int  # seconds
    expire_after: timedelta
    check_dnc: bool  # for every message, whatever the request says
    allowed_countries: frozenset[str] | None  # ISO 3166; None: all
    allow_premium_rate: bool
    key_limits: tuple[limits.Limit, ...]  # of keys without their own
    recipient_limit: limits.Limit | None
    notify_url: str | None  # Apprise's URLs, separated by white space
    carrier_url: str | None
    public_url: str | None  # without a slash at the end
    secret_key: str | None
    log_level: str
    log_format: str
    metrics_token: str | None

    @property
    def ways(self) -> tuple[ways.Way, ...]:
        """The carriers of CARRIER_URL, in the order of preference."""
        return ways.parse(self.carrier_url or "")


def load() -> Settings:
    """Read the settings from the environment and from `.env`; the environment wins.

    Raise SettingsError with all problems at once. No problem repeats a value, which may hold a
    password.
    """
    try:
        load_dotenv(Path.cwd() / ".env")
    except (OSError, ValueError) as error:
        raise SettingsError(f".env: cannot be read ({type(error).__name__})") from None
    env = Env(eager=False)
    for parse in (
        *(_database_url, _hours, _days, _quiet_hours, _whole, _one_of, _duration),
        *(_countries, _limits, _public_url, _secret, _rate, _carriers),
    ):
        env.add_parser(parse.__name__.strip("_"), parse)
    ephemeral = any(host in os.environ for host in EPHEMERAL_HOSTS)
    settings = Settings(
        database_url=env.database_url("DATABASE_URL", "" if ephemeral else DEFAULT_DATABASE),
        business_hours=(hours := env.hours("BUSINESS_HOURS", "09:00-17:00")),
        business_days=env.days("BUSINESS_DAYS", "mon-sun", hours=hours),
        skip_holidays=env.one_of("SKIP_HOLIDAYS", "false", choices=("true", "false")) == "true",
        quiet_hours=env.quiet_hours("QUIET_HOURS", "", hours=hours),
        max_message_length=env.whole("MAX_MESSAGE_LENGTH", "1600", least=1, most=65_536),
        max_retries=env.whole("MAX_RETRIES", "3", least=0, most=100),
        retry_delay=env.whole("RETRY_DELAY", "60", least=0, most=86_400),
        claim_timeout=env.whole("CLAIM_TIMEOUT", "300", least=1, most=86_400),
        send_concurrency=env.whole("SEND_CONCURRENCY", "8", least=1, most=256),
        send_rate=env.rate("SEND_RATE", ""),
        carrier_timeout=env.whole("CARRIER_TIMEOUT", "60", least=1, most=600),
        shutdown_timeout=env.whole("SHUTDOWN_TIMEOUT", "25", least=1, most=600),
        expire_after=env.duration("EXPIRE_AFTER", "72h"),
        check_dnc=env.one_of("CHECK_DNC", "asked", choices=("asked", "always")) == "always",
        allowed_countries=env.countries("ALLOWED_COUNTRIES", ""),
        allow_premium_rate=env.one_of("ALLOW_PREMIUM_RATE", "false", choices=("true", "false"))
        == "true",
        key_limits=env.limits("KEY_LIMITS", "", parse=limits.parse),
        recipient_limit=env.limits("RECIPIENT_LIMIT", "", parse=limits.parse_recipient_limit),
        notify_url=env.str("NOTIFY_URL", "").strip() or None,
        public_url=env.public_url("PUBLIC_URL", ""),
        secret_key=env.secret("SECRET_KEY", "", least=32),
        carrier_url=env.carriers("CARRIER_URL", ""),
        log_level=env.one_of("LOG_LEVEL", "INFO", choices=LEVELS),
        log_format=env.one_of("LOG_FORMAT", "TEXT", choices=("TEXT", "JSON")),
        metrics_token=env.secret("METRICS_TOKEN", "", least=16),
    )
    try:
        env.seal()
    except EnvValidationError as error:
        found = error.error_messages.items()
        lines = [f"{name}: {line}" for name, [problem] in found for line in problem.splitlines()]
        raise SettingsError("\n".join(lines)) from None
    return settings


def load_or_exit() -> Settings:
    """Load the settings; if they are invalid, end the process with one line per problem."""
    try:
        return load()
    except SettingsError as problems:
        exit_with(str(problems))


def exit_with(problems: str) -> NoReturn:
    """End the process because of its settings, with a line for each problem.

    LOG_FORMAT is read from the environment, because the settings may not be loaded.
    """
    if os.environ.get("LOG_FORMAT", "").upper() != "JSON":
        sys.exit(problems)
    handler = logging.StreamHandler()
    handler.setFormatter(logs.formatter("JSON"))
    log.handlers, log.propagate = [handler], False
    for line in problems.splitlines():
        log.critical(line)
    sys.exit(1)


def exit_with_each(name: str, problems: ValueError) -> NoReturn:
    """End the process because of one variable, with a line for each of its problems."""
    exit_with("\n".join(f"{name}: {problem}" for problem in str(problems).splitlines()))


def warn_of_misspelt() -> None:
    """Log each variable that looks like a misspelt setting, with the setting it resembles.

    The environment holds much that is not ours, so a name must be closer there than in `.env`.
    """
    known = {*map(str.upper, Settings._fields), "PORT", "WEB_CONCURRENCY", "SCRIPT_NAME"}
    ours = dotenv_values(Path.cwd() / ".env")
    for name in sorted(os.environ.keys() - known):
        if near := get_close_matches(name.upper(), known, 1, 0.75 if name in ours else 0.88):
            log.warning("%s is not a setting; did you mean %s?", name, near[0])


def _whole(text, least, most):
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not least <= int(text) <= most:
        raise EnvError(f"must be a whole number from {least} to {most}")
    return int(text)


def _hours(text):
    """Return the hours of every day, or a dict of them where the text names days."""
    entries = [entry.strip().lower() for entry in text.split(",")]
    if not re.search("[a-z]", text, re.IGNORECASE):
        if len(entries) > 1:
            raise EnvError("must be one opening and one closing time, or name the days")
        return _opening(entries[0], "")
    hours = {}
    for number, entry in enumerate(entries, 1):
        names, window = re.fullmatch(r"(\D*)(.*)", entry, re.DOTALL).groups()
        if not names:
            raise EnvError(f"entry {number} must begin with days, like mon-fri 09:00-17:00")
        if not (days := _range(names)):
            raise EnvError(f"entry {number} must begin with one day or range of {', '.join(DAYS)}")
        if not window or names == names.rstrip():
            example = "like sat 10:00-14:00"
            raise EnvError(f"entry {number} must have a space and hours after the days, {example}")
        if again := hours.keys() & days:
            raise EnvError(f"entry {number} must not repeat {DAYS[min(again)]}")
        hours |= dict.fromkeys(days, _opening(window, f"the hours of entry {number} "))
    return hours


def _opening(text, whose):
    """Return an opening and a later closing on the same day."""
    opens, closes = _window(
        text, f"{whose}must be an opening and a closing time, like 09:00-17:00", whose
    )
    if opens >= closes:
        raise EnvError(f"{whose}must be an opening and a later closing time of the same day")
    return opens, closes


def _window(text, form, whose=""):
    """Return the minutes after midnight of two times, like 09:00-17:00."""
    match = re.fullmatch(r"(\d\d):([0-5]\d) ?- ?(\d\d):([0-5]\d)", text, re.ASCII)
    if not match:
        raise EnvError(form)
    hour, minute, last_hour, last_minute = map(int, match.groups())
    begins, ends = 60 * hour + minute, 60 * last_hour + last_minute
    if begins >= 24 * 60 or ends > 24 * 60:
        raise EnvError(f"{whose}must be times from 00:00 to 24:00, the first before 24:00")
    return begins, ends


def _days(text, hours):
    if isinstance(hours, dict) and "BUSINESS_DAYS" in os.environ:
        raise EnvError("must not be set, because BUSINESS_HOURS names the days")
    if text.strip().lower() == "local":
        return None
    ranges = [_range(part) for part in text.lower().split(",")]
    if not all(ranges):
        raise EnvError(f"must be local, or a range or a list of {', '.join(DAYS)}, like mon-fri")
    return frozenset().union(*ranges)


def _range(text):
    """Return a day or a range of days, which can pass Sunday; [] if the text is neither."""
    first, dash, last = (day.strip() for day in text.partition("-"))
    if first not in DAYS or (dash and last not in DAYS):
        return []
    start, end = DAYS.index(first), DAYS.index(last if dash else first)
    return [(start + n) % 7 for n in range((end - start) % 7 + 1)]


def _quiet_hours(text, hours):
    """Return the quiet hours, if they leave a minute of the business hours open."""
    if not text.strip():
        return None
    form = "must be one start and one end for all days, like 21:00-08:00"
    begins, ends = _window(text.strip(), form)
    if begins == ends:
        raise EnvError("must start and end at different times")
    length = (ends - begins) % 1440 or 1440
    windows = hours.values() if isinstance(hours, dict) else [hours or (0, 1440)]
    minutes = {minute for window in windows for minute in range(*window)}
    if all((minute - begins) % 1440 < length for minute in minutes):
        raise EnvError("must not cover all of BUSINESS_HOURS")
    return begins, ends


def _one_of(text, choices):
    for choice in choices:
        if text.upper() == choice.upper():
            return choice
    raise EnvError(f"must be one of {', '.join(choices)}")


def _duration(text):
    match = re.fullmatch(r"(\d{1,5})([mhd])", text.strip(), re.ASCII)
    if not match or not int(match[1]):
        raise EnvError("must be minutes, hours or days, like 30m, 72h or 10d")
    return timedelta(**{{"m": "minutes", "h": "hours", "d": "days"}[match[2]]: int(match[1])})


def _rate(text):
    """Return so many a second; None for no text."""
    try:
        return ways.rate(text) if text.strip() else None
    except ValueError as problem:
        raise EnvError(str(problem)) from None


def _carriers(text):
    """Return a CARRIER_URL of which each part can be read."""
    try:
        return text.strip() if ways.parse(text) else None
    except ValueError as problems:
        raise EnvError(str(problems)) from None


def _countries(text):
    codes = frozenset(code.strip().upper() for code in text.split(",")) - {""}
    only_commas = not codes and text.strip()  # a mistake, which must not allow all countries
    if only_commas or not all(re.fullmatch("[A-Z]{2}|001", code) for code in codes):
        raise EnvError("must be a list of ISO 3166 codes, like US,CA,GB")
    return codes or None


def _limits(text, parse):
    try:
        return parse(text)
    except ValueError as problem:
        raise EnvError(str(problem)) from None


def _public_url(text):
    text = text.strip()
    written = re.fullmatch(r"https?://[\w.:\[\]-]+(/[^\s?#]*)?", text, re.ASCII)
    if text and not (written and urls.split(text)):
        raise EnvError("must be the public address of the service, like https://texts.example.com")
    return text.rstrip("/") or None


def _secret(text, least):
    text = text.strip()
    if text and len(text) < least:
        raise EnvError(f"must have at least {least} characters, chosen at random")
    return text or None


def _database_url(text):
    if not text:
        raise EnvError(
            "must be set: this host loses its files at each deployment, so attach a Postgres"
        )
    if not re.fullmatch("sqlite:///(?!:memory:)[^?]+", text) and not _names_postgres(text):
        raise EnvError(
            "must be sqlite:///relative/path, sqlite:////absolute/path or "
            "postgresql://user:password@host:port/name"
        )
    return text


def _names_postgres(text):
    """Return whether libpq can read this URL; its own message would show parts of a password."""
    if not re.match("postgres(ql)?://", text):
        return False
    from psycopg import ProgrammingError
    from psycopg.conninfo import conninfo_to_dict

    try:
        ports = conninfo_to_dict(text).get("port", "").split(",")  # one per host, or none
        usable = all(0 < int(port or 5432) < 65_536 for port in ports)
    except (ProgrammingError, ValueError):
        return False
    address = text.partition("://")[2].partition("?")[0]
    stray = address.count("@") > 1 or "@" in address.partition("/")[2]  # of an unencoded password
    return usable and not stray
