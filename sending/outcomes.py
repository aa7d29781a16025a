"""What becomes of a message: before it is sent, and after the carrier has answered, or has not.

Pure: no database, no clock, no log. docs/carriers.md has the same rules as a table.
"""

import random
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple, Self

import recipients
from carriers import CarrierError
from models import Message, Status
from recipients import Recipient
from recipients.hours import BusinessHours

LONGEST_DELAY = 30 * 86_400  # seconds, whatever RETRY_DELAY and MAX_RETRIES come to
MOST_TAKE_OVERS = 3  # schedulers that may die with a text; one of them may be its fault
ASK_AGAIN = 10  # seconds until a carrier is asked again where an equal text was under way
MAY_HAVE_TAKEN_IT = "the carrier may have taken it"


class Rules(NamedTuple):
    """The settings that decide, and whether the carrier can be asked what became of a text.

    `carrier` is its name, `first` that of the first one, and `others` are those of other carriers
    that can be asked.
    """

    askable: bool
    check_dnc: bool
    expire_after: timedelta
    retry_delay: int  # seconds
    hours: BusinessHours
    carrier: str = ""
    first: str = ""
    others: frozenset[str] = frozenset()
    are_several: bool = False

    @classmethod
    def of(cls, settings: Any, askable: bool, **carriers: Any) -> Self:
        hours = BusinessHours.from_settings(settings)
        rules = settings.check_dnc, settings.expire_after, settings.retry_delay, hours
        return cls(askable, *rules, **carriers)

    def doubts_elsewhere(self, message: Message) -> list[str]:
        """Return the other carriers that may have taken a message, one for each time."""
        return [name for name in message.doubts(self.first) if name != self.carrier]


class Step(Enum):
    """What a sender does next with a message that it has claimed."""

    ASK = "ask the carrier whether it has taken it"
    SEND = "give it to the carrier"


class Outcome(NamedTuple):
    """The next state of a message that a sender holds.

    `reason` is kept as the message's last error. `counted` uses up a retry. `doubt` says that the
    carrier may have taken it this time. Without `send_at` it keeps its place. `elsewhere` says that
    another carrier may be given it, or asked.
    """

    status: Status
    reason: str | None = None
    send_at: datetime | None = None
    counted: bool = False
    doubt: bool = False
    elsewhere: bool = False

    @property
    def move(self) -> str:
        """Return the word for it in the log and in the counts of a pass."""
        if self.status == Status.SCHEDULED:
            return "retrying" if self.reason else "rescheduled"
        return str(self.status)


# Before it is sent


def judge(message: Message, rules: Rules, listed: bool, now: datetime) -> Step | Outcome:
    """Say what to do with a claimed message; `listed` if its number is on the Do Not Call list.

    A doubt is settled first: a text that the carrier has taken cannot be kept back any more.
    """
    if must_ask(message, rules):
        return Step.ASK
    if rules.others.intersection(message.doubts(rules.first)):
        return Outcome(Status.QUEUED, elsewhere=True)
    if message.cancelled_by:
        return _kept_back(message, Status.CANCELLED)
    if listed and (message.check_dnc or rules.check_dnc):
        return _kept_back(message, Status.BLOCKED)
    if is_too_late(message, rules, now):
        return _kept_back(message, Status.EXPIRED)
    if message.take_overs > MOST_TAKE_OVERS:
        words = f"{message.take_overs} schedulers died with it"
        return Outcome(Status.FAILED, _perhaps_taken(words, message.in_doubt))
    if message.in_doubt > 1:
        words = "given to the carrier twice without an answer"
        return Outcome(Status.FAILED, _perhaps_taken(words, True))
    try:
        opening = _opening(message, rules, now)
    except recipients.InvalidNumber as error:  # libphonenumber knew less when it came in
        return Outcome(Status.FAILED, _perhaps_taken(f"the number {error}", message.in_doubt))
    return Outcome(Status.SCHEDULED, send_at=opening) if opening else Step.SEND


def judge_again(message: Message, rules: Rules, now: datetime) -> Outcome | None:
    """Return what becomes of a message that was judged a while ago; None if it still may go."""
    if is_too_late(message, rules, now):
        return _kept_back(message, Status.EXPIRED)
    if rules.hours.quiet:
        recipient = recipients.find(message.to)
        if rules.hours.quiet_until(recipient.clocks, now):
            until = waits_until(message, recipient, rules.hours, now)
            return Outcome(Status.SCHEDULED, send_at=until)
    return None


def must_ask(message: Message, rules: Rules) -> bool:
    """Say whether the carrier is asked about a message in doubt, and not given it."""
    return rules.askable and rules.carrier in message.doubts(rules.first)


def is_too_late(message: Message, rules: Rules, now: datetime) -> bool:
    """Say whether a message has waited longer than EXPIRE_AFTER."""
    return message.first_send_at + rules.expire_after <= now


def waits_until(
    message: Message, recipient: Recipient, hours: BusinessHours, now: datetime
) -> datetime | None:
    """Return when a due message may go, by the recipient's hours; None if it may go now.

    A send_date is obeyed outside business hours, but not in quiet hours. They can outlast it.
    """
    if message.obeys_send_date(now):
        end = hours.quiet_until(recipient.clocks, now)
        if end is None or message.obeys_send_date(end):
            return end
    if hours.is_open(recipient.clocks, now):
        return None
    return hours.next_opening(recipient.clocks, now)


def _kept_back(message, status):
    """Return the end of a message that is not sent, or not again if that is in doubt."""
    reason = _perhaps_taken("given to the carrier without an answer", True)
    return Outcome(status, reason if message.in_doubt else None)


def _opening(message, rules, now):
    """Return when a message may go; None if it may go now."""
    if message.obeys_send_date(now) and not rules.hours.quiet:
        return None
    return waits_until(message, recipients.find(message.to), rules.hours, now)


# After the carrier has answered, or has not


def after_no(
    message: Message,
    error: CarrierError,
    rules: Rules,
    is_probe: bool,
    now: datetime,
    has_other: bool = False,
) -> Outcome:
    """Return what becomes of a text that the carrier did not say yes to.

    A probe is the one text that goes first after a pause. `has_other` says that there is another
    carrier for it, which need not be well.
    """
    if has_other and error.way:
        return Outcome(Status.QUEUED, str(error), elsewhere=True)
    moves_on = (has_other and error.account) or (rules.are_several and error.unreached)
    if error.too_fast or moves_on:
        return Outcome(Status.QUEUED, str(error))
    if error.account or (is_probe and error.silent and not error.in_doubt):
        return Outcome(Status.QUEUED, send_at=now)  # behind others: the fault may be its own
    last = message.attempts >= message.max_retries
    if error.in_doubt:
        last = not rules.askable and (last or message.in_doubt > 0)
    if error.permanent or last:
        reason = _perhaps_taken(str(error), message.in_doubt or error.in_doubt)
        return Outcome(Status.FAILED, reason, counted=True, doubt=error.in_doubt)
    at = now + retry_delay(message.attempts, rules.retry_delay)
    counted = not (is_probe and error.silent)
    return Outcome(Status.SCHEDULED, str(error), at, counted, error.in_doubt)


def after_asking_in_vain(
    message: Message, error: CarrierError, rules: Rules, now: datetime
) -> Outcome:
    """Return what becomes of a text in doubt about which the carrier gave no answer.

    It stays in doubt, however long that takes: it may have been taken. Among several carriers that
    ends when it expires.
    """
    if rules.are_several and is_too_late(message, rules, now):
        return _kept_back(message, Status.CANCELLED if message.cancelled_by else Status.EXPIRED)
    if error.account:
        return Outcome(Status.QUEUED, send_at=now)
    at = now + retry_delay(min(message.attempts, message.max_retries), rules.retry_delay)
    return Outcome(Status.SCHEDULED, str(error), at)


def not_taken(message: Message, elsewhere: bool = False) -> Outcome | None:
    """Return what becomes of a text that the carrier, asked, does not have; None if it may go.

    Another carrier may have taken it: `elsewhere`.
    """
    if message.attempts > message.max_retries:
        words = "the carrier gave no answer, and has not taken it"
        return Outcome(Status.FAILED, _perhaps_taken(words, elsewhere))
    return None


def equal_text_under_way(now: datetime) -> Outcome:
    """Return what becomes of a text in doubt whose copy in the carrier's list may be another's."""
    return Outcome(Status.SCHEDULED, "an equal text is under way", now + retry_delay(0, ASK_AGAIN))


def cannot_be_judged(message: Message, error: Exception, rules: Rules, now: datetime) -> Outcome:
    """Return what becomes of a message that broke the code of these rules.

    The words of `error` may hold the number.
    """
    reason = CarrierError(f"cannot be judged: {type(error).__name__}")
    return after_no(message, reason, rules, False, now)


def retry_delay(failures: int, first: int) -> timedelta:
    """Return the time until the next attempt: `first` seconds, and five times as long each time."""
    seconds = min(first * 5**failures, LONGEST_DELAY) * random.uniform(0.9, 1.1)
    return timedelta(seconds=seconds)


def _perhaps_taken(words, in_doubt):
    return f"{words}; {MAY_HAVE_TAKEN_IT}" if in_doubt else words
