"""Check the setup of the service, at the start of every process and in `flask check`."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

from texting import database, recipients
from texting.access.keys import ids_of
from texting.carriers import REGISTERS, Carrier, CarrierError, configs
from texting.database import ERRORS, Refused, clock, isoformat
from texting.database.clock import SKEW
from texting.monitoring import clocks, dead_web, health, notices
from texting.reports import queue
from texting.settings import Settings, exit_with

DESK_OFF = "off (SECRET_KEY)"
"""What `flask check`, `keys create` and the log say of the desk without the setting."""


def start(settings: Settings) -> None:
    """End the process, with a line for each problem, if settings do not fit the known countries."""
    if unknown := recipients.unknown_countries(settings.allowed_countries or ()):
        exit_with(
            f"ALLOWED_COUNTRIES: no country with telephone numbers has the ISO 3166 code {unknown}"
        )


def end_with_draft() -> None:
    """End the process, with a line, if a draft from before 1.0.0 made the tables.

    A database that is away may come back later.
    """
    try:
        database.refuse_draft()
    except Refused as problem:
        exit_with(str(problem))
    except ERRORS:
        database.disconnect()


def warnings(settings: Settings, carriers: Iterable[Carrier]) -> Iterator[str]:
    """Yield what keeps part of the service from working although texts can be sent."""
    carriers = [*carriers]
    yield from _without_callbacks(settings, carriers)
    yield from _without_register(settings, carriers)


def _without_callbacks(settings, carriers):
    for carrier in carriers:
        if not settings.public_url and type(carrier).callback is not Carrier.callback:
            yield (
                f"PUBLIC_URL is not set, so {carrier.name} cannot call back: there are no "
                "receipts, and nobody who replies STOP joins the Do Not Call list"
            )


def _without_register(settings, carriers):
    """Yield a line for each carrier that sends from a name to a country with rules for names.

    Registered names are warned about, too, because nobody can ask the registers.
    """
    countries_of = {config.name: config.countries for config in settings.carrier_configs}
    for carrier in carriers:
        both = settings.allowed_countries, countries_of.get(carrier.name)
        reached = [each for each in REGISTERS if all(some is None or each in some for some in both)]
        if carrier.from_name and reached:
            shown = ", ".join(f"{REGISTERS[country]} in {country}" for country in reached)
            yield (
                f"{carrier.name} sends from a name: where that is not registered or not allowed, "
                f"phones show something else, or the text is blocked ({shown})"
            )


# The other checks of `flask check`: each returns what it found, or raises Refused for a problem


def reach_database(settings: Settings) -> str:
    """Query the database."""
    try:
        database.db.execute_sql("SELECT 1").fetchone()
    except ERRORS as error:
        database.disconnect()
        raise Refused(f"cannot be reached: {database.reason(error)}") from None
    return database.db.product


def find_tables(settings: Settings) -> str:
    """Look whether every migration was applied."""
    database.refuse_draft()
    if not database.is_migrated():
        raise Refused("not up to date: run flask db upgrade")
    return "up to date"


def compare_clocks(settings: Settings) -> str:
    """Compare this machine's clock with the database's, if that has its own."""
    reading = clocks.against_database()
    if reading is None:
        return isoformat(clock.now())
    if abs(reading.ahead) > SKEW.total_seconds():
        raise Refused(str(reading))
    return "agrees with the database's"


def find_zones(settings: Settings) -> str:
    """Look how old IANA's time zones are: countries change their clocks each year."""
    version = recipients.tzdata_version()
    # It names only its year: it is from the middle of that, half a year more or less
    if clock.now() > datetime(int(version[:4]) + 1, 7, 1, tzinfo=UTC):
        return f"warning: tzdata is {version}: a newer one knows which clocks have changed since"
    return f"tzdata is {version}"


def find_room(settings: Settings) -> str:
    """Look whether the disk of SQLite's file is almost full."""
    _refuse(health.disk_problems(database.db.bytes_left()))
    return "has room" if database.db.sees_disk else "cannot be seen from here (Postgres)"


def find_receivers(settings: Settings) -> str:
    """Look for receivers that take no events."""
    _refuse(health.receiver_problems(queue.dead_receivers(clock.now() - health.DEAD_AFTER)))
    return "none has failed for five minutes"


def _refuse(problems):
    if sentences := [each.sentence for each in problems]:
        raise Refused("; ".join(sentences))


def find_keys(settings: Settings) -> str:
    """Look for the keys that CARRIER_URL names."""
    named = frozenset().union(*(config.keys or () for config in settings.carrier_configs))
    if missing := sorted(named - {*ids_of(named).values()}):
        return f"warning: CARRIER_URL names keys that do not exist: {health.listed(missing)}"
    return "all that CARRIER_URL names exist"


def find_addresses(settings: Settings) -> str:
    """Have Apprise read NOTIFY_URL."""
    try:
        addresses = [*map(str, notices.connect(settings))]
    except ValueError as problem:
        raise Refused(f"NOTIFY_URL: {problem}") from None
    if not addresses:
        return "warning: NOTIFY_URL is not set, so nobody is notified of problems"
    return f"Apprise knows {', '.join(addresses)}; flask notify test sends to each"


def connected(settings: Settings, some: Sequence[configs.CarrierConfig]) -> list[Carrier]:
    """Return some carriers of CARRIER_URL, ready to be asked; raise Refused if one is unusable."""
    try:
        return configs.connect_all(some, 1, settings.carrier_timeout, settings.public_url)
    except ValueError as problem:  # found by Apprise, which the start of the web does not load
        raise Refused(f"CARRIER_URL: {problem}") from None


def ask_carrier(settings: Settings) -> str:
    """Ask the carrier whether it would take texts."""
    if not settings.carrier_url:
        return "warning: CARRIER_URL is not set, so texts wait"
    said, noes, off = [], [], []
    carriers = connected(settings, settings.carrier_configs)
    for carrier in carriers:
        try:
            carrier.check()
            said.append(f"{carrier.name} accepts texts")
        except CarrierError as error:
            noes.append(f"{carrier.name}: {error}")
        except NotImplementedError:
            said.append(f"{carrier.name} cannot be asked without sending a text")
        finally:
            carrier.close()
        if (reading := clocks.against_carrier(carrier)) and reading.is_wrong:
            off.append(f"this machine's clock is {reading}")
    if noes:
        raise Refused("; ".join([*noes, *off]))
    own = [carrier.warning for carrier in carriers if carrier.warning]
    warned = [f"warning: {line}" for line in (*off, *own, *_without_register(settings, carriers))]
    return "\n".join(["; ".join(said), *warned])


def ask_public_address(settings: Settings) -> str:
    """Ask for the health of the service at PUBLIC_URL."""
    if not settings.public_url:
        carriers = configs.connect_all(settings.carrier_configs, sending=False)
        missed = [f"warning: {line}" for line in _without_callbacks(settings, carriers)]
        return "\n".join(missed) or "PUBLIC_URL is not set"
    if why := dead_web.why_silent(settings.public_url):
        return f"warning: the service does not answer there, as seen from here: {why}"
    return "answers"


def find_desk(settings: Settings) -> str:
    """Look whether there is a desk."""
    return "on" if settings.secret_key else DESK_OFF


NEED_TABLES = {"tables", "clock", "disk", "keys", "receivers of events"}
ALL: dict[str, Callable[[Settings], str]] = {
    "database": reach_database,
    "tables": find_tables,
    "clock": compare_clocks,
    "time zones": find_zones,
    "disk": find_room,
    "keys": find_keys,
    "receivers of events": find_receivers,
    "carrier": ask_carrier,
    "public address": ask_public_address,
    "desk": find_desk,
    "notices": find_addresses,
}
