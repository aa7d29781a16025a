"""The next state of a message, before it is sent and after the carrier's answer, or silence.

Pure: no database, no clock, no log. docs/carriers.md has the same rules as a table.
"""

import random
from datetime import datetime, timedelta
from typing import Any, NamedTuple, Self

from texting import recipients
from texting.access.rules import KeyRules, Rules
from texting.carriers import LISTED_WITHIN, Carrier, CarrierError, Fault
from texting.messages.model import WAITING, Message, Status
from texting.recipients import Recipient, Residence
from texting.recipients.hours import BusinessHours, NeverOpens

LONGEST_DELAY = 30 * 86_400  # seconds, whatever RETRY_DELAY and MAX_RETRIES amount to
MOST_DEATHS = 3  # of schedulers while they had a text
EQUAL_TEXT_DELAY = timedelta(minutes=1)  # for a text while the carrier may have an equal one
MAY_HAVE_TAKEN_IT = "the carrier may have taken it"
GIVEN_AGAIN_AFTER = timedelta(seconds=10)  # a text in doubt, if its carrier keeps ids
LONGEST_REPEAT_PAUSE = timedelta(minutes=1)
UNANSWERED = f"given to the carrier without an answer; {MAY_HAVE_TAKEN_IT}"


class Terms(NamedTuple):
    """The rules of a message's key, where its recipient lives, and what its carrier can do."""

    settles_doubts: bool  # the carrier can say whether it took a text in doubt, if only to a repeat
    are_several: bool  # there are other carriers
    retry_delay: int  # seconds
    key: Rules
    keeps_ids: bool = False  # a text in doubt is given again, which is the question
    shows_within: timedelta = timedelta(0)  # a report shows until then if it has a text in doubt
    residence: Residence | None = None  # of the recipient, if it is known

    @classmethod
    def of(cls, settings: Any, carrier: Carrier, are_several: bool = False) -> Self:
        """Return the terms of keys without rules of their own."""
        rules, keeps_ids = Rules.from_settings(settings), carrier.keeps_ids is not None
        return cls(
            carrier.settles_doubts,
            are_several,
            settings.retry_delay,
            rules,
            keeps_ids,
            carrier.shows_within if carrier.tells_receipts else timedelta(0),
        )

    def of_key(self, own: KeyRules, residence: Residence | None = None) -> Self:
        """Return the terms of a key with rules of its own, for a recipient."""
        return self._replace(key=self.key.of(own), residence=residence)


class Outcome(NamedTuple):
    """The next state of a message that a sender holds.

    `reason` becomes the message's last error. `counted` uses up a retry. `doubt` says that the
    carrier may have taken the text this time. Without `send_at`, it keeps its place in the queue.
    `waits_for` says what it waits for.
    """

    status: Status
    reason: str | None = None
    send_at: datetime | None = None
    counted: bool = False
    doubt: bool = False
    waits_for: str | None = None

    @property
    def why(self) -> str | None:
        """Return the reason for the log, if there is one."""
        return self.reason or self.waits_for

    @property
    def move(self) -> str:
        """Return the word for this outcome in the log and in the counts of a pass."""
        if self.status == Status.SCHEDULED:
            return "retrying" if self.reason else "rescheduled"
        return str(self.status)


# Before it is sent


def judge(
    message: Message,
    terms: Terms,
    opted_out: bool | None,
    now: datetime,
    has_equal: bool = False,
    again: bool = False,
) -> Outcome | None:
    """Return what becomes of a claimed message; None if it may be given to its carrier.

    `opted_out` says whether its number, on the Do Not Call list, opted out by itself; None if it is
    not on the list. `has_equal` says that an equal text to its number is being sent, or in doubt: a
    carrier that is asked about that one could not tell them apart. `again` says that the carrier
    keeps its id: it is no further copy, and in doubt, maybe from before a person retried it.
    """
    in_doubt = message.in_doubt or again
    if message.cancelled_by:
        return _kept_back(in_doubt, Status.CANCELLED)
    is_kept_off = opted_out is not None and terms.key.keeps_off(message.check_dnc, opted_out)
    if is_kept_off and not message.auto_reply_to:
        return _kept_back(in_doubt, Status.BLOCKED)
    if message.is_too_late(now):
        return _kept_back(in_doubt, Status.EXPIRED)
    if message.in_doubt > 1 and not again:
        words = "given to the carrier twice without an answer"
        return Outcome(Status.FAILED, _perhaps_taken(words, True))
    if message.auto_reply_to:
        is_tried = message.in_doubt and not again
        return _kept_back(in_doubt, Status.FAILED) if is_tried else None
    if not terms.key.allow(message.country):
        words = f"texts to {recipients.country_name(message.country)} are not allowed"
        return Outcome(Status.FAILED, _perhaps_taken(words, in_doubt))
    try:
        postponed = _postponed(message, terms, now)
    except recipients.InvalidNumber as error:  # libphonenumber knew less when it came in
        return Outcome(Status.FAILED, _perhaps_taken(f"the number {error}", in_doubt))
    if postponed is None and has_equal and terms.settles_doubts:
        return Outcome(Status.SCHEDULED, send_at=now + EQUAL_TEXT_DELAY, waits_for="an equal text")
    return postponed


def judge_again(message: Message, terms: Terms, now: datetime) -> Outcome | None:
    """Return what becomes of a message judged a while ago; None if it may still go."""
    if message.is_too_late(now):
        return _kept_back(message.in_doubt, Status.EXPIRED)
    if terms.key.quiet.are_none or message.auto_reply_to:
        return None
    recipient = recipients.find(message.to, terms.residence)
    if terms.key.hours(recipient).quiet_time(recipient.clocks, now):
        return _postponed(message, terms, now)
    return None


def deliver_by(message: Message, terms: Terms, now: datetime) -> datetime:
    """Return the latest time at which a carrier may deliver a text handed over now.

    The carrier's queue must not deliver in the recipient's next quiet hours.
    """
    if terms.key.quiet.are_none or message.auto_reply_to:
        return message.expires_at
    recipient = recipients.find(message.to, terms.residence)
    quiet_from = terms.key.hours(recipient).quiet_from(recipient.clocks, now)
    return min(message.expires_at, quiet_from or message.expires_at)


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


def _kept_back(in_doubt, status):
    """Return the outcome of a message that is not sent or, if in doubt, not sent again."""
    return Outcome(status, UNANSWERED if in_doubt else None)


def leaves_at(
    message: Message, recipient: Recipient, rules: Rules, now: datetime
) -> tuple[datetime, str | None]:
    """Return when a waiting message may go, and which hours hold it until then, if any."""
    hours, due = rules.hours(recipient), max(message.send_at, now)
    try:
        until = waits_until(message, recipient, hours, due)
        if until is None and (due == now or message.obeys_send_date(due)):
            return due, None
        at = until or due
        return at, recipients.what_keeps(recipient, hours, at)
    except (OverflowError, NeverOpens):  # in the year 10000, or never
        return due, None


def waits_for(
    message: Message, rules: Rules, now: datetime, residence: Residence | None = None
) -> str | None:
    """Return what a message waits for, and for whom; None if it does not wait."""
    if message.status not in WAITING:
        return None
    if message.in_doubt:
        return "the carrier's answer"
    if not message.approved:
        group = message.key.group if message.available_to_group else None
        of_group = f"an approver of the group {group}, or " if group else ""
        return f"approval by {of_group}an operator"
    if message.key.paused_at:
        return "its key, which is paused"
    try:
        recipient = recipients.find(message.to, residence)
        at, why = leaves_at(message, recipient, rules, now)
    except recipients.InvalidNumber:
        at, why = message.send_at, None
    if why:
        return recipients.why_until(recipient, rules.hours(recipient), at)
    if at <= now:
        return "the carrier"
    if message.obeys_send_date(at):
        return "its send_date"
    return "another attempt" if message.attempts else "its time"


def _postponed(message, terms, now):
    """Return the outcome of a message that may not go now by its recipient's hours, or None."""
    if message.obeys_send_date(now) and terms.key.quiet.are_none:
        return None
    recipient = recipients.find(message.to, terms.residence)
    hours = terms.key.hours(recipient)
    until = waits_until(message, recipient, hours, now)
    if until is None:
        return None
    why = recipients.why_until(recipient, hours, until)
    return Outcome(Status.SCHEDULED, send_at=until, waits_for=why)


# After the carrier's answer, or silence


def after_error(
    message: Message,
    error: CarrierError,
    terms: Terms,
    is_probe: bool,
    now: datetime,
    has_other: bool = False,
) -> Outcome:
    """Return what becomes of a text that the carrier did not accept.

    A probe is the one text that goes first after a pause. `has_other` says that there is another
    carrier for the text, maybe in trouble. An automatic reply has one try.
    """
    if has_other and error.no_route:
        return Outcome(Status.QUEUED, str(error))
    refuses_account = error.fault is Fault.ACCOUNT
    moves_on = (has_other and refuses_account) or (terms.are_several and error.unreached)
    behind_others = now  # the text itself may be at fault
    if (error.fault is Fault.TOO_FAST or moves_on) and not message.auto_reply_to:
        return Outcome(Status.QUEUED, str(error), behind_others if is_probe else None)
    is_about_carrier = refuses_account or (is_probe and error.silent and not error.in_doubt)
    if is_about_carrier and not message.auto_reply_to:
        return Outcome(Status.QUEUED, send_at=behind_others)
    last = message.attempts >= message.max_retries
    if error.in_doubt:
        last = not terms.settles_doubts and (last or message.in_doubt > 0)
    if error.permanent or last:
        reason = _perhaps_taken(str(error), message.in_doubt or error.in_doubt)
        return Outcome(Status.FAILED, reason, counted=True, doubt=error.in_doubt)
    at = now + retry_delay(message.attempts, terms.retry_delay)
    if error.in_doubt and terms.keeps_ids:
        at = now + GIVEN_AGAIN_AFTER
    elif error.in_doubt and terms.settles_doubts:
        at = max(at, now + LISTED_WITHIN)
    elif error.in_doubt:
        at = max(at, now + terms.shows_within)
    counted = bool(message.auto_reply_to) or not (is_probe and error.silent)
    return Outcome(Status.SCHEDULED, str(error), at, counted, error.in_doubt)


def after_no_answer(message: Message, terms: Terms, now: datetime) -> Outcome | None:
    """Return what becomes of a waiting text in doubt if the question about it was not answered.

    It stays in doubt for as long as that takes, since it may have been taken. With several carriers
    this ends when it expires.
    """
    if terms.are_several and message.is_too_late(now):
        return _kept_back(True, Status.CANCELLED if message.cancelled_by else Status.EXPIRED)
    return None


def is_refusal(error: CarrierError) -> bool:
    """Return whether an error is a refusal of a text, and not about the carrier alone."""
    of_carrier = error.fault in (Fault.TOO_FAST, Fault.ACCOUNT)
    return not (error.in_doubt or error.silent or of_carrier)


def asked_again_after(
    message: Message, error: CarrierError, terms: Terms, age: timedelta
) -> timedelta:
    """Return how long after an unanswered question the carrier is asked again.

    The older a doubt is, the more rarely a text is given again.
    """
    if error.fault is Fault.ACCOUNT:  # its pause says when
        return timedelta(0)
    if terms.keeps_ids:
        return min(max(age, GIVEN_AGAIN_AFTER), LONGEST_REPEAT_PAUSE)
    first = max(terms.retry_delay, 1)  # or a pass would ask for as long as there is no answer
    return retry_delay(min(message.attempts, message.max_retries), first)


def not_taken(message: Message, deaths: int, otherwise: Outcome | None = None) -> Outcome | None:
    """Return what becomes of a waiting text that the carrier says it does not have.

    None if it may go. `deaths` counts the schedulers that died with it: the text may be the cause.
    `otherwise` is why it was not given again.
    """
    if message.cancelled_by:
        return _kept_back(message.in_doubt, Status.CANCELLED)
    if otherwise and otherwise.status in (Status.BLOCKED, Status.EXPIRED):
        return _kept_back(message.in_doubt, otherwise.status)
    if message.attempts > message.max_retries:
        words = "the carrier gave no answer, and has not taken it"
        return Outcome(Status.FAILED, _perhaps_taken(words, message.in_doubt))
    if deaths >= MOST_DEATHS:
        words = f"{deaths} schedulers died with it"
        return Outcome(Status.FAILED, _perhaps_taken(words, message.in_doubt))
    return None


def cannot_be_judged(message: Message, error: Exception, terms: Terms, now: datetime) -> Outcome:
    """Return what becomes of a message that broke the code of these rules.

    The words of `error` may hold the number.
    """
    reason = CarrierError(f"cannot be judged: {type(error).__name__}")
    return after_error(message, reason, terms, False, now)


def retry_delay(failures: int, first: int) -> timedelta:
    """Return the time until the next attempt: `first` seconds, and five times as long each time."""
    seconds = min(first * 5**failures, LONGEST_DELAY) * random.uniform(0.9, 1.1)
    return timedelta(seconds=seconds)


def _perhaps_taken(words, in_doubt):
    return f"{words}; {MAY_HAVE_TAKEN_IT}" if in_doubt else words
