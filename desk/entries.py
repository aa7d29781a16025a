"""What the desk says about a message, in plain words."""

import unicodedata
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from operator import itemgetter

import regex
from markupsafe import Markup, escape

import recipients
from access.rules import Rules
from carriers.alphabets import costly
from desk import lists
from desk.hours import for_reader
from models import RETRYABLE, WAITING, Message, Status
from recipients.hours import written
from reports import Cursor
from sending import outcomes
from sending.attempts import Attempt, Result
from sending.replies import READ, Reply

MOST_COSTLY = 5  # characters that are named where they make more parts
NAMED = {"\t": "a tab", "\N{NO-BREAK SPACE}": "a no-break space"}
EMOJI = "emoji"
_EMOJI_JOINERS = "\N{ZERO WIDTH JOINER}\N{VARIATION SELECTOR-16}\N{COMBINING ENCLOSING KEYCAP}"
# Not what is a letter or a sign elsewhere, such as © and ™
_EMOJI = regex.compile(
    r"[\p{Emoji_Presentation}\p{Emoji_Modifier}\p{Regional_Indicator}"
    r"[\p{Extended_Pictographic}&&[\u2600-\U0010FFFF]]]",
    regex.VERSION1,
)
FOLDED = 6  # lines that are shown of a longer text
WIDE, NARROW = 62, 38  # characters in a line, on a desktop and on a phone
MOST_NAMED = 20  # invisible characters in a text; each one's markup takes 80 characters
# Runs of characters that cannot be seen. Joiners (U+200C, U+200D) and presentation selectors
# (U+FE0E, U+FE0F) are needed in emoji, and joiners in words of some scripts: Arabic to Arabic
# Extended-A, Devanagari to Myanmar, Khmer, Mongolian, further Indic ones, Arabic's presentation
# forms. A digit is an emoji only with an enclosing keycap (U+20E3).
_HIDDEN = regex.compile(
    r"""(?:
    [[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\N{BRAILLE PATTERN BLANK}]--[\n\t]]
    (?<![[\p{Emoji}\uFE0E\uFE0F]--[0-9#*]][\u200C\u200D](?=[\p{Emoji}--[0-9#*]]))
    (?<![[\u0600-\u109F\u1780-\u18AF\uA800-\uABFF\uFB50-\uFDFF\uFE70-\uFEFC\U00010A00-\U00011FFF]
      &&[\p{L}\p{M}]][\u200C\u200D])
    (?<![\p{Emoji}--[0-9#*]][\uFE0E\uFE0F])
    (?<![\uFE0E\uFE0F](?=\u20E3))
    )+""",
    regex.VERBOSE | regex.VERSION1,
)
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
CAME_OF_IT = {  # of an attempt
    None: "has not answered yet",
    Result.TAKEN: "took it",
    Result.REFUSED: "refused it",
    Result.UNCLEAR: "may have taken it",
    Result.NOT_TAKEN: "had not taken it, when asked",
}


class Instants:
    """How the desk writes an instant, seen from now."""

    def __init__(self, now: datetime):
        self.now = now

    def write(self, at: datetime) -> str:
        """Write a local time, with the year unless it is the current one."""
        return for_reader(written(at)) + (f", {at.year}" if at.year != self.now.year else "")

    def ago(self, at: datetime) -> str:
        """Write an instant relative to now: "in 3 hours", "2 days ago"."""
        if abs(at - self.now) < timedelta(minutes=1):
            return "just now" if at <= self.now else "in less than a minute"
        return f"in {span(at - self.now)}" if at > self.now else f"{span(self.now - at)} ago"

    def became(self, message: Message) -> str:
        """Say what became of a message, and when: "delivered 2 hours ago"."""
        at = message.receipt_at or message.finished_at
        return f"{message.status} {self.ago(at)}" if at else str(message.status)


@dataclass
class ReplyEntry(Instants):
    """A reply as the desk shows it."""

    reply: Reply
    message: Message | None  # that it belongs to, if it is still there
    now: datetime
    listed: bool  # on the Do Not Call list

    @property
    def number(self) -> str:
        return international(self.reply.number)

    @property
    def cursor(self) -> Cursor:
        return self.reply.cursor

    @property
    def waits(self) -> bool:
        """Whether somebody has to read it."""
        return self.reply.rank < READ

    @property
    def badges(self) -> list[str]:
        """What is known of it, in a few words each."""
        words = [(self.reply.may_be_no, "maybe opting out"), (self.reply.opted_out, "opted out")]
        words.append((self.reply.read_by, f"read by {self.reply.read_by}"))
        return [each for holds, each in words if holds]


@dataclass
class Conversation:
    """What a number wrote, as one card: replies in the order of the page."""

    entries: list[ReplyEntry]

    @property
    def first(self) -> ReplyEntry:
        """The reply that gives the card its place."""
        return self.entries[0]

    @property
    def cursor(self) -> Cursor:
        return self.first.cursor

    @property
    def newest_first(self) -> list[ReplyEntry]:
        return sorted(self.entries, key=lambda each: (each.reply.at, each.reply.id), reverse=True)

    @property
    def left_out(self) -> int:
        """How many more replies the number wrote."""
        return max(0, self.first.reply.total - len(self.entries))

    @property
    def unread(self) -> list[ReplyEntry]:
        return [each for each in self.entries if each.waits]

    @property
    def value(self) -> str:
        """The value of its buttons: where the replies are that they change."""
        return ".".join(lists.write(each.cursor) for each in self.unread or [self.first])

    @property
    def longest(self) -> int:
        """How many characters are shown of each reply, and of the text that it answers."""
        return min(1_000, 2_000 // len(self.entries))


@dataclass
class Entry(Instants):
    """A message as the desk shows it."""

    message: Message
    now: datetime
    rules: Rules  # of its key
    texted: int = 0  # how often, in the last day

    @cached_property
    def recipient(self) -> recipients.Recipient | None:
        """The recipient; None if the number was cleared or libphonenumber rejects it by now."""
        try:
            return recipients.find(self.message.to) if self.message.to else None
        except recipients.InvalidNumber:
            return None

    @property
    def number(self) -> str:
        return international(self.message.to) if self.message.to else "cleared"

    @property
    def location(self) -> str:
        return recipients.location(self.recipient) if self.recipient else ""

    @property
    def parts(self) -> str:
        """How many parts the text has; nothing if an older version stored it, without counting."""
        return counted(self.message.parts, "part") if self.message.parts else ""

    @cached_property
    def cost(self) -> str:
        """Which characters make the text more parts, if any do."""
        parts = self.message.parts or 0
        characters, fewer = costly(self.message.message or "")
        if fewer >= parts:
            return ""
        named = named_characters(characters)
        some, more = named[:MOST_COSTLY], len(named) - MOST_COSTLY
        if more > 0:
            some.append(f"{more} more")
        listed = " and ".join(filter(None, (", ".join(some[:-1]), some[-1])))
        verb = "makes" if len(named) == 1 and named != [EMOJI] else "make"
        return f"{listed} {verb} this {parts} parts instead of {fewer}"

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
        return message.status in RETRYABLE and message.to is not None and not message.answers

    def undone_within(self, action: str, shown_for: int) -> int:
        """Return the seconds, of those given, in which a decision can be undone for certain."""
        message = self.message
        if action == "approve":
            waits = message.approved and message.status in WAITING and not message.in_doubt
            stays = (self.forecast[0] - self.now) // timedelta(seconds=1) if waits else 0
            return min(shown_for, stays)
        return shown_for if message.status == Status.CANCELLED or message.is_withdrawn else 0

    @cached_property
    def forecast(self) -> tuple[datetime, str | None]:
        """When it is sent, once approved, and the hours it waits for until then, in words."""
        if not self.recipient:
            return max(self.message.send_at, self.now), None
        return outcomes.leaves_at(self.message, self.recipient, self.rules, self.now)

    @property
    def waits_for(self) -> str | None:
        """What it waits for, in words, if its recipient's hours keep it until then."""
        hours = self.forecast[1]
        if not hours or hours.startswith("business"):
            return hours and "business hours"
        return f"the end of {for_reader(hours).partition(' until ')[0]}"

    def local(self, at: datetime) -> str:
        """Write an instant in the recipient's local time; nothing if that is unknown."""
        try:
            return self.write(at.astimezone(self.recipient.zone)) if self.recipient else ""
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
    def _origin(self):
        if self.message.answers:
            return f"automatic reply to {self.message.answers}"
        return f"requested by {self.message.key.name}"

    @property
    def attempts(self) -> list[tuple[datetime, str]]:
        """When the message was given to a carrier, and what came of it."""
        told = []
        for attempt in Attempt.of_messages([self.message.id])[self.message.id]:
            words = f": {attempt.words}" if attempt.words else ""
            carrier = attempt.carrier or "the carrier"
            told.append((attempt.begun_at, f"{carrier} {CAME_OF_IT[attempt.result]}{words}"))
        return told

    @property
    def history(self) -> list[tuple[datetime, str]]:
        """What happened to the message, in order, as far as it is recorded."""
        message, attempts = self.message, counted(self.message.attempts, "attempt")
        reason = f": {message.last_error}" if message.last_error else ""
        ended = "was sent" if message.receipt_at else self.state
        arrived = "reached the phone" if message.status == Status.DELIVERED else "did not arrive"
        events = [
            (message.created_at, self._origin),
            (message.approved_at, f"approved by {message.approved_by}"),
            (message.last_error_at, f"could not be sent, {attempts} so far{reason}"),
            (message.finished_at, ended),
            (message.receipt_at, f"{arrived}, according to the carrier{reason}"),
            (message.told_at, f"webhook delivered to {message.key.name}"),
        ]
        return sorted((event for event in events if event[0]), key=itemgetter(0))


def international(number: str) -> str:
    """Return a number as people write it, or as it is if libphonenumber rejects it by now."""
    try:
        return recipients.find(number).international
    except recipients.InvalidNumber:
        return number


def unbroken(number: str) -> Markup:
    """Return a number as people write it, which stays on one line."""
    return Markup('<span class="number">{}</span>').format(international(number))


def named_characters(characters: list[str]) -> list[str]:
    """Return characters as people call them, all emoji as one."""
    is_emoji = any(_EMOJI.fullmatch(each) for each in characters)
    joined = _EMOJI_JOINERS if is_emoji else ""
    named = (
        EMOJI if _EMOJI.fullmatch(each) or each in joined else NAMED.get(each, each)
        for each in characters
    )
    return list(dict.fromkeys(named))


def fold(text: str) -> str:
    """Return the class of a text that is folded: "long", "long on-phones" if only there, or "".

    It has more than six lines. They are estimated: a text that is not folded may have a few more.
    """
    lines = text.split("\n")
    wide, narrow = (sum(-(-len(line) // width) or 1 for line in lines) for width in (WIDE, NARROW))
    return "long" if wide > FOLDED else "long on-phones" if narrow > FOLDED else ""


def span(length: timedelta) -> str:
    """Write a length of time: "40 minutes", "2 h 40 min", "13 hours", "3 days"."""
    days, minutes = length.days, length // timedelta(minutes=1)
    if days >= 730:
        return f"{int(days / 365.25):,} years"
    if days >= 2:
        return f"{days} days"
    if minutes >= 600 or (minutes >= 60 and minutes % 60 == 0):
        return counted(minutes // 60, "hour")
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return counted(minutes, "minute") if minutes else "less than a minute"


def counted(count: int, noun: str, or_more: bool = False) -> str:
    """Write a number with its noun: "1 text", "2 texts", "1,000+ texts"."""
    return f"{number(count, or_more)} {noun}{'' if count == 1 else 's'}"


def number(count: int, or_more: bool = False) -> str:
    """Write a number, with a plus sign if counting stopped there: "1,000", "1,000+"."""
    return f"{count:,}{'+' if or_more else ''}"


def visible(text: str, longest: int | None = None) -> Markup:
    """Escape a text; replace characters that are invisible or change its direction by names.

    At most MOST_NAMED of these are named and `longest` characters are shown; the end says how many
    are left out.
    """
    text = text.replace("\r\n", "\n")
    shown, count = text[:longest], 0

    def named(match):
        nonlocal count
        some = match[0][: max(0, MOST_NAMED - count)]
        count += len(match[0])
        return "".join(map(_named, some))

    markup = _HIDDEN.sub(named, str(escape(shown)))
    if count > MOST_NAMED:
        markup += _control(f"and {count - MOST_NAMED:,} more that cannot be seen")
    if rest := len(text) - len(shown):
        markup += _control(f"and {counted(rest, 'more character')}")
    return Markup(markup)


def _named(character):
    """Return the markup in place of a character that cannot be seen."""
    name = unicodedata.name(character, "control character")
    return f'<span class="control" title="{name}">U+{ord(character):04X}</span>'


def _control(words):
    return f' <span class="control">{words}</span>'
