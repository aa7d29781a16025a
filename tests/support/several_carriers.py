"""Several fake carriers and a scheduler with them."""

import pytest

from fake_carrier import FakeCarrier
from own_threads import IN_ORDER
from scheduler import Scheduler
from texting.carriers import CarrierError, Fault
from texting.carriers.configs import CarrierConfig

UNREACHED = CarrierError("there is no connection", unreached=True)
SILENT = CarrierError("it gave no answer", in_doubt=True, silent=True)
ACCOUNT = CarrierError("it refuses the account", Fault.ACCOUNT)
LONG_PAUSE = CarrierError("slow down", Fault.TOO_FAST, retry_after=90)
NO_ROUTE = CarrierError("its sender does not reach this country", Fault.ACCOUNT, no_route=True)

OF_US, OF_GB = {"countries": frozenset({"US"})}, {"countries": frozenset({"GB"})}
OF_APP, OF_SHOP = {"keys": frozenset({"app"})}, {"keys": frozenset({"shop"})}
STAND_INS = [
    ({}, {}, "eu"),
    (OF_US, OF_US, "eu"),
    (OF_US, OF_GB, None),
    (OF_APP, OF_APP, "eu"),
    (OF_APP, OF_SHOP, None),
    (OF_APP, OF_GB, "eu"),
    (OF_APP | OF_US, OF_APP | OF_GB, None),
    (OF_APP | OF_US, OF_SHOP | OF_US, None),
]
"""For what two carriers, us and eu, may be used, and who takes the place of us for some of it."""


class NamedCarrier(FakeCarrier):
    """A fake carrier with a name that does one thing with every text, unless told otherwise.

    It can be asked without sending if `health` is a CarrierError, or None for "it serves". One that
    `can_be_asked` has the texts of `has`.
    """

    def __init__(self, name, can_be_asked=False):
        super().__init__()
        self.name, self.can_be_asked = name, can_be_asked
        self.health = NotImplementedError
        self.has, self.checks, self.asked = {}, 0, []

    def send(self, outgoing):
        return super().send(outgoing) or f"{self.name}-{len(self.texts)}"

    def find(self, to, text, since):
        self.asked.append(to)
        if isinstance(self.health, CarrierError):
            raise self.health
        return self.has.get(to, [])

    @property
    def can_be_checked(self):
        return self.health is not NotImplementedError

    def check(self):
        self.checks += 1
        if self.health:
            raise self.health


@pytest.fixture
def us():
    return NamedCarrier("us")


@pytest.fixture
def eu():
    return NamedCarrier("eu")


@pytest.fixture
def run_both(settings, us, eu, at, without_waiting):
    """Run one pass with two carriers at an instant: `run_both(NOON, [CarrierConfig("us"), …])`.

    `run_both.runtime` is what it runs on.
    """

    def run(instant, configs=None, carriers=None, **changes):
        at(instant)
        changed = settings._replace(
            carrier_url=" ".join(map(written, configs or [])) or None, **changes
        )
        first, *others = carriers or (us, eu)
        return Scheduler(changed, first, run.runtime, others).run_pass()

    run.runtime = IN_ORDER
    return run


def written(config: CarrierConfig) -> str:
    """Write a CarrierConfig as part of CARRIER_URL; its URL is not used."""
    options = {"name": config.name, "countries": ",".join(config.countries or ())}
    options |= {
        "keys": ",".join(config.keys or ()),
        "rate": config.rate and f"{config.rate * 60:.0f}/min",
    }
    return "console:#" + "&".join(f"{name}={value}" for name, value in options.items() if value)
