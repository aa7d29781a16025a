"""The settings of the service: read from the environment, typed, bounded, with defaults."""

from __future__ import annotations  # the parsers are below the settings

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, NamedTuple, NoReturn, get_type_hints

from dotenv import dotenv_values, load_dotenv

from texting import logs, recipients
from texting.access import limits, rules
from texting.carriers import configs, urls
from texting.carriers.configs import CarrierConfig, rate
from texting.logs import printable
from texting.recipients import weeks
from texting.recipients.weeks import DAYS, Window

VERSION = "1.0.0"
"""The version of the service, for `flask version`, `/healthz` and the log."""

Hours = Window | dict[int, Window]
"""Hours of every day, or of each day that has some, by its number; see `weeks`.

Quiet hours can pass midnight, and have those of weeks.HOLIDAYS, too.
"""

LONGEST_ANSWER = 1600  # characters of STOP_REPLY and HELP_REPLY
EPHEMERAL_HOSTS = ("DYNO", "RENDER", "RAILWAY_ENVIRONMENT", "FLY_APP_NAME", "K_SERVICE")
"""Variables set by hosts with ephemeral disks."""

log = logging.getLogger("settings")


class SettingsError(Exception):
    """The environment is invalid: one line per problem, each naming its variable."""


class Settings(NamedTuple):
    """Every setting: its type, its parser, and the text of its default.

    One without a default is optional: it is None unless its variable has more than white space.
    """

    database_url: Annotated[str, _database_url, "sqlite:///messages.db"]
    business_hours: Annotated[Hours, weeks.business_hours, "09:00-17:00"]
    business_days: Annotated[frozenset[int] | None, _days, "mon-sun"]  # None: the country's own
    skip_holidays: Annotated[bool, _flag, "false"]
    quiet_hours: Annotated[Hours | None, weeks.quiet_hours]
    quiet_hours_file: Annotated[Mapping[str, Hours | None], _quiet_places, ""]  # by country, state
    max_message_length: Annotated[int, _whole(1, 65_536), "1600"]  # characters
    max_retries: Annotated[int, _whole(0, 100), "3"]
    retry_delay: Annotated[int, _whole(0, 86_400), "60"]  # seconds
    claim_timeout: Annotated[int, _whole(1, 86_400), "300"]  # seconds
    send_concurrency: Annotated[int, _whole(1, 256), "8"]
    send_rate: Annotated[float | None, rate]  # parts a second; None: unlimited
    carrier_timeout: Annotated[int, _whole(1, 600), "60"]  # seconds
    shutdown_timeout: Annotated[int, _whole(1, 600), "25"]  # seconds
    expire_after: Annotated[timedelta, rules.duration, "72h"]
    keep_texts: Annotated[timedelta | None, _kept]  # until they are redacted; None: for ever
    keep_messages: Annotated[timedelta | None, _kept]  # until they are purged; None: for ever
    check_dnc: Annotated[str, _one_of(*rules.CHECKS), "opted-out"]  # which listed numbers get none
    allowed_countries: Annotated[frozenset[str] | None, _countries]  # ISO 3166; None: all
    allow_premium_rate: Annotated[bool, _flag, "false"]
    key_limits: Annotated[tuple[limits.Limit, ...], limits.parse, ""]  # of keys without their own
    recipient_limit: Annotated[limits.Limit | None, limits.parse_recipient_limit]
    stop_reply: Annotated[str | None, _answer]  # the text that answers a STOP
    help_reply: Annotated[str | None, _answer]
    stalled_after: Annotated[timedelta, rules.duration, "2m"]  # so long may nothing go
    notify_url: Annotated[str | None, str.strip]  # Apprise's URLs, separated by white space
    public_url: Annotated[str | None, _public_url]  # without a slash at the end
    secret_key: Annotated[str | None, _secret(32)]
    carrier_url: Annotated[str | None, _carriers]
    log_level: Annotated[str, _one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), "INFO"]
    log_format: Annotated[str, _one_of("TEXT", "JSON"), "TEXT"]
    metrics_token: Annotated[str | None, _secret(16)]
    port: Annotated[int | None, _whole(1, 65_535)]  # None: gunicorn's own, on this machine only
    web_concurrency: Annotated[int, _workers, ""]  # processes

    @property
    def carrier_configs(self) -> tuple[CarrierConfig, ...]:
        """The carriers of CARRIER_URL, in the order of preference."""
        return configs.parse(self.carrier_url or "")


def load() -> Settings:
    """Read the settings from the environment and from `.env`; the environment wins.

    Raise SettingsError with all problems at once. None repeats a value, which may hold a password,
    except for the path of a file.
    """
    path = Path.cwd() / ".env"
    try:
        load_dotenv(path)
    except (OSError, ValueError) as error:
        raise SettingsError(f"{path}: cannot be read ({type(error).__name__})") from None
    values, problems = {}, {}
    for name, hint in get_type_hints(Settings, include_extras=True).items():
        read, *default = hint.__metadata__
        text = os.environ.get(name.upper(), *default)
        try:
            values[name] = read(text) if default or (text and text.strip()) else None
        except ValueError as error:
            values[name], problems[name] = None, str(error)
    settings = Settings(**values)
    problems |= _conflicts(settings)
    if problems:
        wrong = [name for name in Settings._fields if name in problems]
        lines = (
            f"{name.upper()}: {line}" for name in wrong for line in problems[name].splitlines()
        )
        raise SettingsError("\n".join(lines))
    return settings


def _conflicts(settings):
    """Return what is wrong with settings together, by name; those wrong by themselves are None."""
    problems = {}
    if isinstance(settings.business_hours, dict) and "BUSINESS_DAYS" in os.environ:
        problems["business_days"] = "must not be set, because BUSINESS_HOURS names the days"
    for name in ("keep_texts", "keep_messages"):  # a message counts for its recipient meanwhile
        kept, limit = getattr(settings, name), settings.recipient_limit
        if kept and limit and kept < limit.window:
            problems[name] = "must not be shorter than the window of RECIPIENT_LIMIT"
    return problems


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


def warn_of_misspelt() -> None:
    """Log each variable that looks like a misspelt setting, with the setting it resembles.

    The environment holds much that is not ours, so a name must be closer there than in `.env`.
    """
    known = {*map(str.upper, Settings._fields), "SCRIPT_NAME"}
    ours = dotenv_values(Path.cwd() / ".env")
    for name in sorted(os.environ.keys() - known):
        if near := get_close_matches(name.upper(), known, 1, 0.75 if name in ours else 0.88):
            log.warning("%s is not a setting; did you mean %s?", name, near[0])


def _whole(least, most):
    def read(text):
        if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not least <= int(text) <= most:
            raise ValueError(f"must be a whole number from {least} to {most}")
        return int(text)

    return read


def _workers(text):
    return _whole(1, 1_000)(text or "1")


def _days(text):
    if text.strip().lower() == "local":
        return None
    ranges = [*map(weeks.days, text.split(","))]
    if not all(ranges):
        raise ValueError(f"must be local, or a range or a list of {', '.join(DAYS)}, like mon-fri")
    return frozenset().union(*ranges)


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

    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        problem = f"cannot be read ({error.strerror})"
    except tomllib.TOMLDecodeError as error:
        where = re.search(r" \(at ([\w ,]+)\)$", str(error))
        problem = f"is not TOML{', at ' + where[1] if where else ''}"
    except ValueError as error:  # not UTF-8, or no path
        problem = f"cannot be read ({type(error).__name__})"
    except RecursionError:
        problem = "is nested too deeply"
    raise ValueError(f"{printable(str(Path(path).absolute()))} {problem}")


def _one_of(*choices):
    def read(text):
        for choice in choices:
            if text.upper() == choice.upper():
                return choice
        raise ValueError(f"must be one of {', '.join(choices)}")

    return read


def _flag(text):
    return _one_of("true", "false")(text) == "true"


def _kept(text):
    """Return how long something is kept."""
    match = re.fullmatch(r"([1-9]\d{0,2})([dy])|([1-9]\d{3,4})(d)", text.strip(), re.ASCII)
    if not match:
        raise ValueError("must be days or years, like 90d or 2y")
    number, unit = filter(None, match.groups())
    return timedelta(days=int(number) * {"d": 1, "y": 365}[unit])


def _carriers(text):
    """Return a CARRIER_URL; raise ValueError unless each part can be read."""
    configs.parse(text)
    return text.strip()


def _countries(text):
    return frozenset(rules.country_codes(text))


def _public_url(text):
    text = text.strip()
    written = re.fullmatch(r"https?://[\w.:\[\]-]+(/[^\s?#]*)?", text, re.ASCII)
    if not (written and urls.split(text)):
        raise ValueError(
            "must be the public address of the service, like https://texts.example.com"
        )
    return text.rstrip("/")


def _secret(least):
    def read(text):
        if len(text.strip()) < least:
            raise ValueError(f"must have at least {least} characters, chosen at random")
        return text.strip()

    return read


def _answer(text):
    if len(text) > LONGEST_ANSWER or re.search("[\0\ud800-\udfff]", text):
        raise ValueError(f"must be a text of up to {LONGEST_ANSWER} characters")
    return text


def _database_url(text):
    is_ephemeral = any(host in os.environ for host in EPHEMERAL_HOSTS)
    if not text or (is_ephemeral and "DATABASE_URL" not in os.environ):
        raise ValueError(
            "must be set: this host loses its files at each deployment, so attach a Postgres"
        )
    if re.match("postgres(ql)?://", text):
        if not _names_postgres(text):
            raise ValueError(
                "must be postgresql://user:password@host:port/name, if need be with libpq's "
                "options; percent-encode special characters (@ is %40)"
            )
    elif not re.fullmatch("sqlite:///(?!:memory:)[^?]+", text):
        raise ValueError(
            "must be sqlite:///relative/path, sqlite:////absolute/path or "
            "postgresql://user:password@host:port/name"
        )
    return text


def _names_postgres(text):
    """Return whether libpq can read this URL; its own error would show parts of a password."""
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
