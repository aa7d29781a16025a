"""What the desk says about a message, in plain words."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from operator import itemgetter

from texting import recipients
from texting.access.rules import Rules
from texting.carriers.alphabets import costly
from texting.carriers.lanes import Lane
from texting.desk.words import ago, counted, date_and_time, international, named
from texting.messages.attempts import Attempt, Result
from texting.messages.model import RETRYABLE, WAITING, Message, Status
from texting.recipients import quiet
from texting.reports.listings import Cursor
from texting.sending import outcomes

MOST_COSTLY = 5  # characters that are named if they make more parts
WORDS = {
    Status.SCHEDULED: "waits for its time",
    Status.QUEUED: "waits for the carrier",
    Status.SENDING: "is being sent right now",
    Status.SENT: "was sent",
    Status.DELIVERED: "was sent and reached the phone",
    Status.UNDELIVERED: "was sent but did not reach the phone",
    Status.FAILED: "could not be sent",
    Status.BLOCKED: "was not sent: the number is on the Do Not Call list",
    Status.EXPIRED: "expired: it was not approved or sent in time",
}
RESULTS = {  # of an attempt
    None: "has not answered yet",
    Result.TAKEN: "accepted it",
    Result.REFUSED: "refused it",
    Result.UNCLEAR: "may have accepted it",
    Result.NOT_TAKEN: "did not have it when asked",
}


LISTS = {  # that were looked at
    "all": "not on the lists",
    "opted-out": "not opted out",
    None: "the lists did not count",
}
OF_RECIPIENT = " local time"


@dataclass
class Entry:
    """A message as the desk shows it."""

    message: Message
    now: datetime
    rules: Rules  # of its key
    texted: int = 0  # how often, in the last day
    residence: recipients.Residence | None = None  # of the recipient, if it is known

    @cached_property
    def recipient(self) -> recipients.Recipient | None:
        """The recipient; None if the number was cleared or libphonenumber now rejects it."""
        try:
            to = self.message.to
            return recipients.find(to, self.residence) if to else None
        except recipients.InvalidNumber:
            return None

    @property
    def number(self) -> str:
        return international(self.message.to) if self.message.to else "cleared"

    @property
    def location(self) -> str:
        return recipients.location(self.recipient) if self.recipient else ""

    @property
    def place(self) -> str:
        """Where it is the recipient's local time: the known place, or the number's own."""
        if self.recipient and (home := self.recipient.place_at(self.now)):
            return recipients.place_name(home)
        return self.location.partition(",")[0]

    @property
    def home(self) -> str:
        """Where the recipient is known to live, in words; "" if that is not known."""
        home = self.recipient and self.recipient.place_at(self.now)
        until = home and self.residence.until
        last = f" until {until:%b %-d, %Y}" if until else ""
        return f"known to live in {recipients.place_name(home)}{last}" if home else ""

    @property
    def parts(self) -> str:
        """How many parts the text has."""
        return counted(self.message.parts, "part")

    @cached_property
    def cost(self) -> str:
        """Which characters make the text more parts, if any do."""
        parts = self.message.parts
        characters, fewer = costly(self.message.message or "")
        if fewer >= parts:
            return ""
        names = [named(each) for each in characters]
        if more := names[MOST_COSTLY:]:
            names = [*names[:MOST_COSTLY], f"{len(more)} more"]
        *others, last = names
        listed = f"{', '.join(others)} and {last} make" if others else f"{last} makes"
        return f"{listed} this {parts} parts instead of {fewer}"

    @property
    def cursor(self) -> Cursor:
        return Cursor(0, self.message.send_at, self.message.id)

    @property
    def awaits_approval(self) -> bool:
        return self.message.status in WAITING and not self.message.approved

    @property
    def can_be_cancelled(self) -> bool:
        message = self.message
        return message.status in WAITING and message.approved and not message.is_withdrawn

    @property
    def can_be_retried(self) -> bool:
        message = self.message
        return message.status in RETRYABLE and message.to is not None and not message.auto_reply_to

    def undone_within(self, action: str, shown_for: int) -> int:
        """Return for how many of these seconds a decision can be undone for certain."""
        message = self.message
        if message.to is None:  # redacted, so it is never sent
            return 0
        if action == "approve":
            is_in_doubt = Lane.read(message.lane).doubts  # maybe from before a retry
            waits = message.approved and message.status in WAITING and not is_in_doubt
            stays = (self.forecast[0] - self.now) // timedelta(seconds=1) if waits else 0
            return min(shown_for, stays)
        return shown_for if message.status == Status.CANCELLED or message.is_withdrawn else 0

    @cached_property
    def forecast(self) -> tuple[datetime, str | None]:
        """When it is sent once approved, and which hours keep it until then, in words."""
        if not self.recipient:
            return max(self.message.send_at, self.now), None
        return outcomes.leaves_at(self.message, self.recipient, self.rules, self.now)

    @property
    def is_refused(self) -> bool:
        """Whether it will not be sent, because texts to its country are not allowed any more."""
        return not (self.message.auto_reply_to or self.rules.allow(self.message.country))

    @property
    def waits_until(self) -> str | None:
        """Until when and why its recipient's hours keep it, in words; None if they do not.

        Within a day without the date: "9:00 AM in Dallas: quiet hours of Texas".
        """
        leaves_at, why = self.forecast
        if why is None:
            return None
        there = self.local(leaves_at)
        if leaves_at - self.now < timedelta(days=1):
            there, _, _ = there.partition(",")
        return f"{there} in {self.place}: {why}"

    @property
    def is_soon(self) -> bool:
        """Whether the hours until it is sent tell on which day that is."""
        return self.forecast[0] - self.now < timedelta(days=2)

    def local(self, at: datetime) -> str:
        """Write an instant in the recipient's local time; return "" if that is unknown."""
        if not self.recipient:
            return ""
        try:
            return date_and_time(at.astimezone(self.recipient.zone_at(at)), self.now)
        except OverflowError:  # already in the year 10000
            return ""

    @property
    def state(self) -> str:
        """What became of the message, as the end of a sentence about it."""
        message = self.message
        if message.status == Status.CANCELLED:
            by = message.cancelled_by
            how = "cancelled" if message.approved or not by else "refused"
            return f"was {how} by {by}" if by else f"was {how}"
        if message.is_withdrawn:
            return f"was cancelled by {message.cancelled_by}, unless the carrier has it already"
        if self.awaits_approval:
            return "waits for approval"
        if message.status in WAITING and message.approved_by:
            return f"was approved by {message.approved_by} and {WORDS[message.status]}"
        if because := message.blocked_because:
            return f"was not sent: {because}"
        return WORDS[message.status]

    @property
    def already(self) -> str | None:
        """Who has stopped the message: "Bob has already refused this text." None if nobody."""
        message = self.message
        if message.status == Status.CANCELLED and message.cancelled_by:
            how = "cancelled" if message.approved else "refused"
            return f"{message.cancelled_by} has already {how} this text."
        return None

    @property
    def attempts(self) -> list[tuple[datetime, str, str]]:
        """When the message was given to a carrier, with what result, and why it was allowed."""
        told = []
        for attempt in Attempt.of_messages([self.message.id])[self.message.id]:
            words = f": {attempt.words}" if attempt.words else ""
            carrier = attempt.carrier or "the carrier"
            why = why_allowed(attempt.allowed, self.location) if attempt.allowed else ""
            told.append((attempt.begun_at, f"{carrier} {RESULTS[attempt.result]}{words}", why))
        return told

    @property
    def history(self) -> list[tuple[datetime, str]]:
        """What happened to the message, in order, as far as it is recorded."""
        message, attempts = self.message, counted(self.message.attempts, "attempt")
        reason = f": {message.last_error}" if message.last_error else ""
        ended = "was sent" if message.receipt_at else self.state
        arrived = "reached the phone" if message.status == Status.DELIVERED else "did not arrive"
        origin = f"requested by {message.key.name}"
        if message.auto_reply_to:
            origin = f"automatic reply to {message.auto_reply_to}"
        events = [
            (message.created_at, origin),
            (message.approved_at, f"approved by {message.approved_by}"),
            (message.last_error_at, f"could not be sent, {attempts} so far{reason}"),
            (message.finished_at, ended),
            (message.receipt_at, f"{arrived}, according to the carrier{reason}"),
            (message.event_delivered_at, f"webhook delivered to {message.key.name}"),
        ]
        return sorted((event for event in events if event[0]), key=itemgetter(0))


def why_allowed(allowed: dict, location: str) -> str:
    """Return why a copy of a text was allowed to go, as a sentence without its end.

    "11:02 AM, Tuesday, Mar 3 in Houston, by the number; business hours 9:00 AM - 5:00 PM; no quiet
    hours of Texas (9:00 PM - 9:00 AM); not on the lists; approved by Ann".
    """
    by_number = allowed["zone_from"] == "number"
    where = (by_number and location.partition(",")[0]) or allowed["zone"] or "the time zone there"
    by = "by the number" if by_number else "by the known place"
    said = [f"{allowed['local_time'] or 'its time'} in {where}, {by}"]
    if allowed["send_date"]:
        said.append("sent at its send_date")
    elif window := allowed["business_hours"]:
        said.append(f"business hours {window.removesuffix(OF_RECIPIENT)}")
    for each in allowed["quiet_hours"]:
        window = each["window"] and f" ({each['window'].replace(OF_RECIPIENT, '')})"
        said.append(f"no {quiet_hours_from(each['from'])}{window or ''}")
    said.append(LISTS[allowed["lists"]])
    if by := allowed["approved_by"]:
        said.append(f"approved by {by}")
    return "; ".join(said)


def quiet_hours_from(origin: str) -> str:
    """Return what quiet hours are called that an operator has written there."""
    if origin == quiet.KEY:
        return "quiet hours of the key"
    _, _, place = origin.partition(" ")
    return f"quiet hours of {recipients.place_name(place)}" if place else "quiet hours"


def outcome(message: Message, now: datetime) -> str:
    """Return what became of a message, and when: "delivered 2 hours ago"."""
    at = message.receipt_at or message.finished_at
    return f"{message.status} {ago(at, now)}" if at else str(message.status)
