"""The settings of the service: read from the environment, typed, bounded, with defaults."""

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple, NoReturn

from dotenv import dotenv_values, load_dotenv

import logs
import recipients
from access import limits, rules
from carriers import urls, ways
from logs import printable
from recipients import weeks
from recipients.weeks import DAYS, Window

VERSION = "1.0.0"
"""The version of the service, for `flask version`, `/healthz` and the log."""

FLAG = ("true", "false")
LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
DEFAULT_DATABASE = "sqlite:///messages.db"
LONGEST_ANSWER = 1600  # characters of STOP_REPLY and HELP_REPLY
EPHEMERAL_HOSTS = ("DYNO", "RENDER", "RAILWAY_ENVIRONMENT", "FLY_APP_NAME", "K_SERVICE")
"""Variables set by hosts with ephemeral disks."""

log = logging.getLogger("settings")


class SettingsError(Exception):
    """The environment is invalid: one line per problem, each naming its variable."""


class Settings(NamedTuple):
    """Every setting, typed and within its bounds."""

    database_url: str
    business_hours: Window | dict[int, Window]  # a dict: of each day that has some
    business_days: frozenset[int] | None  # Monday is 0; None: those of the recipient's country
    skip_holidays: bool
    quiet_hours: Window | dict[int, Window] | None  # by day and weeks.HOLIDAYS; can pass midnight
    quiet_hours_file: Mapping[str, Window | dict[int, Window] | None]  # by country or state
    max_message_length: int  # characters
    max_retries: int
    retry_delay: int  # seconds
    claim_timeout: int  # seconds
    send_concurrency: int
    send_rate: float | None  # parts a second; None: as fast as the carrier takes them
    carrier_timeout: int  # seconds
    shutdown_timeout: int  # seconds
    expire_after: timedelta
    keep_texts: timedelta | None  # until they are redacted; None: for ever
    keep_messages: timedelta | None  # until they are purged; None: for ever
    check_dnc: str  # which numbers on the Do Not Call list get no text: one of CHECKS
    allowed_countries: frozenset[str] | None  # ISO 3166; None: all
    allow_premium_rate: bool
    key_limits: tuple[limits.Limit, ...]  # of keys without their own
    recipient_limit: limits.Limit | None
    hold_odd: bool  # what is unusual for a key waits for approval
    stop_reply: str | None  # the text that answers a STOP
    help_reply: str | None
    notify_url: str | None  # Apprise's URLs, separated by white space
    carrier_url: str | None
    public_url: str | None  # without a slash at the end
    secret_key: str | None
    log_level: str
    log_format: str
    metrics_token: str | None
    port: int | None  # None: gunicorn's own, on this machine only
    web_concurrency: int  # worker processes

    @property
    def ways(self) -> tuple[ways.Way, ...]:
        """The carriers of CARRIER_URL, in the order of preference."""
        return ways.parse(self.carrier_url or "")


def load() -> Settings:
    """Read the settings from the environment and from `.env`; the environment wins.

    Raise SettingsError with all problems at once. No problem repeats a value, which may hold a
    password, but the path of a file.
    """
    path = Path.cwd() / ".env"
    try:
        load_dotenv(path)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: cannot be read ({type(error).__name__})") from None
    env = _Environment()
    settings = _read(env.read)
    if problems := env.problems or _forgotten_too_soon(settings):
        raise SettingsError("\n".join(problems))
    return settings


class _Environment:
    """Read variables by their parsers, and remember what is wrong with each."""

    def __init__(self):
        self.problems = []

    def read(self, parse, name, default, **bounds):
        """Return what a variable says, or None if its parser raises a ValueError of lines."""
        try:
            return parse(os.environ.get(name, default), **bounds)
        except ValueError as error:
            self.problems += [f"{name}: {line}" for line in str(error).splitlines()]


def _read(read):
    """Read all settings with `_Environment.read`, which remembers what is wrong with them."""
    is_ephemeral = any(host in os.environ for host in EPHEMERAL_HOSTS)
    return Settings(
        database_url=read(_database_url, "DATABASE_URL", "" if is_ephemeral else DEFAULT_DATABASE),
        business_hours=(hours := read(weeks.business_hours, "BUSINESS_HOURS", "09:00-17:00")),
        business_days=read(_days, "BUSINESS_DAYS", "mon-sun", hours=hours),
        skip_holidays=read(_one_of, "SKIP_HOLIDAYS", "false", choices=FLAG) == "true",
        quiet_hours=read(_quiet_hours, "QUIET_HOURS", "", hours=hours),
        quiet_hours_file=read(_quiet_places, "QUIET_HOURS_FILE", ""),
        max_message_length=read(_whole, "MAX_MESSAGE_LENGTH", "1600", least=1, most=65_536),
        max_retries=read(_whole, "MAX_RETRIES", "3", least=0, most=100),
        retry_delay=read(_whole, "RETRY_DELAY", "60", least=0, most=86_400),
        claim_timeout=read(_whole, "CLAIM_TIMEOUT", "300", least=1, most=86_400),
        send_concurrency=read(_whole, "SEND_CONCURRENCY", "8", least=1, most=256),
        send_rate=read(_rate, "SEND_RATE", ""),
        carrier_timeout=read(_whole, "CARRIER_TIMEOUT", "60", least=1, most=600),
        shutdown_timeout=read(_whole, "SHUTDOWN_TIMEOUT", "25", least=1, most=600),
        expire_after=read(rules.duration, "EXPIRE_AFTER", "72h"),
        keep_texts=read(_kept, "KEEP_TEXTS", ""),
        keep_messages=read(_kept, "KEEP_MESSAGES", ""),
        check_dnc=read(_one_of, "CHECK_DNC", "opted-out", choices=rules.CHECKS),
        allowed_countries=read(_countries, "ALLOWED_COUNTRIES", ""),
        allow_premium_rate=read(_one_of, "ALLOW_PREMIUM_RATE", "false", choices=FLAG) == "true",
        key_limits=read(limits.parse, "KEY_LIMITS", ""),
        recipient_limit=read(limits.parse_recipient_limit, "RECIPIENT_LIMIT", ""),
        hold_odd=read(_one_of, "HOLD_ODD", "false", choices=FLAG) == "true",
        stop_reply=read(_answer, "STOP_REPLY", ""),
        help_reply=read(_answer, "HELP_REPLY", ""),
        notify_url=read(str, "NOTIFY_URL", "").strip() or None,
        public_url=read(_public_url, "PUBLIC_URL", ""),
        secret_key=read(_secret, "SECRET_KEY", "", least=32),
        carrier_url=read(_carriers, "CARRIER_URL", ""),
        log_level=read(_one_of, "LOG_LEVEL", "INFO", choices=LEVELS),
        log_format=read(_one_of, "LOG_FORMAT", "TEXT", choices=("TEXT", "JSON")),
        metrics_token=read(_secret, "METRICS_TOKEN", "", least=16),
        port=read(_whole_or_none, "PORT", "", least=1, most=65_535),
        web_concurrency=read(_whole_or_none, "WEB_CONCURRENCY", "", least=1, most=1_000) or 1,
    )


def _forgotten_too_soon(settings):
    """Return what is wrong if messages do not last as long as they count for their recipient."""
    window = settings.recipient_limit and settings.recipient_limit.window
    kept = {"KEEP_TEXTS": settings.keep_texts, "KEEP_MESSAGES": settings.keep_messages}
    return [
        f"{name}: must not be shorter than the window of RECIPIENT_LIMIT"
        for name, length in kept.items()
        if window and length and length < window
    ]


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
    logs.start("INFO", "JSON")
    for line in problems.splitlines():
        log.critical(line)
    sys.exit(1)


@contextmanager
def exit_if_invalid(name: str) -> Iterator[None]:
    """End the process, with a line for each problem, if the block finds a variable invalid."""
    try:
        yield
    except ValueError as problems:
        exit_with("\n".join(f"{name}: {problem}" for problem in str(problems).splitlines()))


def check_quiet_hours(settings: Settings, now: datetime) -> None:
    """End the process if quiet hours leave no minute open in all zones of a place's numbers."""
    if not settings.quiet_hours and not settings.quiet_hours_file:
        return
    of_all = rules.Rules.from_settings(settings)
    closed, places = of_all.never_open(now, settings.allowed_countries), of_all.quiet
    of_file = [place for place in closed if place in places.lines or places.states(place)]
    words = "no minute of BUSINESS_HOURS open"
    problems = [f"QUIET_HOURS_FILE: {place}: leaves {words}" for place in of_file]
    if names := sorted(recipients.country_name(place) for place in {*closed} - {*of_file}):
        problems.append(
            f"QUIET_HOURS: leave {words} on all clocks of numbers in {', '.join(names)}"
        )
    if problems:
        exit_with("\n".join(problems))


def warn_of_misspelt() -> None:
    """Log each variable that looks like a misspelt setting, with the setting it resembles.

    The environment holds much that is not ours, so a name must be closer there than in `.env`.
    """
    known = {*map(str.upper, Settings._fields), "SCRIPT_NAME"}
    ours = dotenv_values(Path.cwd() / ".env")
    for name in sorted(os.environ.keys() - known):
        if near := get_close_matches(name.upper(), known, 1, 0.75 if name in ours else 0.88):
            log.warning("%s is not a setting; did you mean %s?", name, near[0])


def _whole(text, least, most):
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not least <= int(text) <= most:
        raise ValueError(f"must be a whole number from {least} to {most}")
    return int(text)


def _whole_or_none(text, least, most):
    return _whole(text, least, most) if text else None


def _days(text, hours):
    if isinstance(hours, dict) and "BUSINESS_DAYS" in os.environ:
        raise ValueError("must not be set, because BUSINESS_HOURS names the days")
    if text.strip().lower() == "local":
        return None
    ranges = [*map(weeks.days, text.split(","))]
    if not all(ranges):
        raise ValueError(f"must be local, or a range or a list of {', '.join(DAYS)}, like mon-fri")
    return frozenset().union(*ranges)


def _quiet_hours(text, hours):
    """Return the quiet hours, if they leave a minute of the business hours open."""
    if not text.strip():
        return None
    quiet = weeks.quiet_hours(text)
    if not isinstance(quiet, dict):
        begins, ends = quiet
        length = (ends - begins) % 1440 or 1440
        windows = hours.values() if isinstance(hours, dict) else [hours or (0, 1440)]
        minutes = {minute for window in windows for minute in range(*window)}
        if all((minute - begins) % 1440 < length for minute in minutes):
            raise ValueError("must not cover all of BUSINESS_HOURS")
    return quiet


def _quiet_places(text):
    """Return the quiet hours of a file's places; the error has a line for each wrong one."""
    if not text.strip():
        return {}
    lines, places, problems = _read_toml(text.strip()), {}, []
    for place, hours in lines.items():
        try:
            if not recipients.is_place(place):
                raise ValueError(
                    "is no country with telephone numbers, nor a state or province of the "
                    f"United States or Canada{recipients.hint(place)}"
                )
            if not isinstance(hours, str):
                raise ValueError('must be a text, like "21:00-08:00"')
            places[place] = None if hours.strip() == "none" else weeks.quiet_hours(hours)
        except ValueError as problem:
            name = place if re.fullmatch(r"[\w-]+", place, re.ASCII) else ascii(place)
            problems.append(f"{name}: {problem}")
    if problems:
        raise ValueError("\n".join(problems))
    return places


def _read_toml(path):
    """Return what a TOML file holds; the error repeats none of it."""
    import tomllib  # here, as most services have no such file

    shown = printable(str(Path(path).absolute()))
    try:
        text = Path(path).read_text("utf-8")
    except OSError as error:
        raise ValueError(f"{shown} cannot be read ({error.strerror})") from None
    except ValueError as error:  # not UTF-8, or no path
        raise ValueError(f"{shown} cannot be read ({type(error).__name__})") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        where = re.search(r" \(at ([\w ,]+)\)$", str(error))
        raise ValueError(f"{shown} is not TOML{', at ' + where[1] if where else ''}") from None
    except RecursionError:
        raise ValueError(f"{shown} is nested too deeply") from None


def _one_of(text, choices):
    for choice in choices:
        if text.upper() == choice.upper():
            return choice
    raise ValueError(f"must be one of {', '.join(choices)}")


def _kept(text):
    """Return how long something is kept; None for no text."""
    match = re.fullmatch(r"([1-9]\d{0,2})([dy])|([1-9]\d{3,4})(d)", text.strip(), re.ASCII)
    if text.strip() and not match:
        raise ValueError("must be days or years, like 90d or 2y")
    if not match:
        return None
    number, unit = filter(None, match.groups())
    return timedelta(days=int(number) * {"d": 1, "y": 365}[unit])


def _rate(text):
    """Return so many a second; None for no text."""
    return ways.rate(text) if text.strip() else None


def _carriers(text):
    """Return a CARRIER_URL of which each part can be read."""
    return text.strip() if ways.parse(text) else None


def _countries(text):
    codes = frozenset(code.strip().upper() for code in text.split(",")) - {""}
    only_commas = not codes and text.strip()  # a mistake, which must not allow all countries
    if only_commas or not all(re.fullmatch("[A-Z]{2,3}|001", code) for code in codes):
        raise ValueError("must be a list of ISO 3166 codes, like US,CA,GB")
    return codes or None


def _public_url(text):
    text = text.strip()
    written = re.fullmatch(r"https?://[\w.:\[\]-]+(/[^\s?#]*)?", text, re.ASCII)
    if text and not (written and urls.split(text)):
        raise ValueError(
            "must be the public address of the service, like https://texts.example.com"
        )
    return text.rstrip("/") or None


def _secret(text, least):
    text = text.strip()
    if text and len(text) < least:
        raise ValueError(f"must have at least {least} characters, chosen at random")
    return text or None


def _answer(text):
    if len(text) > LONGEST_ANSWER or re.search("[\0\ud800-\udfff]", text):
        raise ValueError(f"must be a text of up to {LONGEST_ANSWER} characters")
    return text if text.strip() else None


def _database_url(text):
    if not text:
        raise ValueError(
            "must be set: this host loses its files at each deployment, so attach a Postgres"
        )
    if not re.fullmatch("sqlite:///(?!:memory:)[^?]+", text) and not _names_postgres(text):
        raise ValueError(
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
