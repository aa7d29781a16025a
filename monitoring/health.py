"""The service's health, read from the database, and what an operator should be woken for."""

from datetime import datetime, timedelta
from typing import NamedTuple

import reports
from carrier_state import CarrierState
from schemas import isoformat

PATIENCE = timedelta(minutes=2)
"""How long nothing may go though something is due: a cron's pass and a first retry fit in."""

OVERDUE = timedelta(hours=1)
"""How long any message may be due, also while others go: longer than its retries take."""


class Health(NamedTuple):
    """The service at an instant. No number, no text and no credential is in it."""

    now: datetime
    oldest_due: datetime | None  # since when the message that has waited longest could have gone
    retrying: int
    last_sent_at: datetime | None
    last_pass_at: datetime | None
    carrier: str | None  # that of the last pass, "" without one; None before the first pass
    trouble: str | None  # why it refuses the account
    trouble_since: datetime | None
    commonest_error: tuple[str, int] | None  # of the last hour

    def seconds_since(self, instant: datetime | None) -> int | None:
        """Return how many seconds ago an instant was."""
        return instant and round((self.now - instant).total_seconds())

    def problems(self, patience: timedelta = PATIENCE) -> list[str]:
        """Say what is wrong, a sentence each: nothing where all that should go goes."""
        problems = []
        if self.trouble:
            since = isoformat(self.trouble_since)
            problems.append(f"{self.carrier} has refused the account since {since}: {self.trouble}")
        if self.oldest_due is None:
            return problems
        due, limit = self.now - self.oldest_due, self.now - patience
        if due > patience and not (self.last_sent_at and self.last_sent_at >= limit):
            words = f"nothing was sent for {patience.total_seconds():.0f} s though texts are due"
            if self.last_pass_at is None or self.last_pass_at < limit:
                words += ": no scheduler makes a pass"
            elif not self.carrier:
                words += ": CARRIER_URL is not set"
            problems.append(words)
        elif due > OVERDUE:
            problems.append(f"a message is due since {isoformat(self.oldest_due)}")
        return problems

    def error(self) -> dict | None:
        """Return the commonest error as JSON has it."""
        if not self.commonest_error:
            return None
        words, messages = self.commonest_error
        return {"error": words, "messages": messages}


def read(now: datetime) -> Health:
    """Read the service's health; an index serves each question, however many messages there are."""
    carrier = CarrierState.latest()
    return Health(
        now,
        oldest_due=reports.oldest_due(now),
        retrying=reports.retrying(),
        last_sent_at=reports.last_sent_at(),
        last_pass_at=carrier and carrier.last_pass_at,
        carrier=carrier and carrier.name,
        trouble=carrier and carrier.trouble,
        trouble_since=carrier and carrier.trouble_since,
        commonest_error=reports.commonest_error(now - timedelta(hours=1)),
    )
