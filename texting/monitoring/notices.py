"""Notify people, through Apprise, of texts and replies that wait, of problems and of keys.

Every scheduler looks. What one of them notices is recorded together with what is to be sent to each
address, so only one notices it, and whichever runs then tries again.
"""

import logging
import math
import re
import shlex
import threading
import time
from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from peewee import SQL, CompositeKey, IntegerField, TextField

from texting import database, recipients
from texting.access.limits import SECOND
from texting.access.texted_countries import KeyCountry
from texting.database import EPOCH, PAST, InstantField, Table, db, isoformat
from texting.events.outbox import Event
from texting.monitoring import clocks, health
from texting.replies import inbox
from texting.reports import queue, usage
from texting.settings import Settings

PROBLEM = "problem "  # begins a problem's subject; its kind and name follow
WAITING_EVERY = timedelta(minutes=15)  # for texts that await approval, and for replies
AGAIN_EVERY = timedelta(days=1)  # for texts that still await approval
EXPIRES_SOON = timedelta(hours=12)
FAILURES_EVERY = timedelta(hours=1)
LOOK_EVERY = 5  # seconds
RETRY_AFTER = (timedelta(seconds=30), timedelta(minutes=2))  # each from the failure before
LEASE = timedelta(minutes=5)  # after which a scheduler that was sending a notice is taken for dead
KEPT = timedelta(days=1)  # for a notice that nobody sends: its address is gone from NOTIFY_URL
PATIENCE = 15  # seconds that the end of a scheduler, or a test, waits for addresses

log = logging.getLogger("notices")


class Notice(Table):
    """The latest notification about a subject."""

    subject = TextField(primary_key=True)
    told_at = InstantField(PAST, null=True)
    # 1 while a problem lasts; for approvals and replies, the fewest waiting since then
    level = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    newest = TextField(null=True)  # the id of the newest waiting message or reply

    @classmethod
    def about(cls, subject: str) -> Self:
        """Return the row of a subject; make it if it is missing."""
        if (row := cls.get_or_none(cls.subject == subject)) is None:
            cls.insert(subject=subject).on_conflict_ignore().execute()
            row = cls.get_by_id(subject)
        return row

    def change(self, **changes: Any) -> bool:
        """Change the row; return False if another scheduler has since it was read."""
        cls = Notice
        unchanged = (cls.level == self.level) & (cls.told_at == self.told_at)
        return cls.update(changes).where(cls.subject == self.subject, unchanged).execute() == 1

    @classmethod
    def tell(cls, subject: str, now: datetime, since: datetime) -> bool:
        """Record that a subject is notified now; return False if it was since an instant."""
        row = cls.about(subject)
        return not (row.told_at and row.told_at >= since) and row.change(told_at=now)


# What to send


class Notification(NamedTuple):
    """A title, the full text, and one of Apprise's types, for pagers."""

    title: str
    text: str
    kind: str
    subject: str = ""  # a later notification about it replaces this one


class OutgoingNotice(Table):
    """A notification that an address has yet to accept."""

    subject = TextField()
    address = IntegerField()  # its number in NOTIFY_URL
    title = TextField()
    text = TextField()
    kind = TextField()
    place = IntegerField()  # among those of one look
    tries = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    # While it is being sent: when another scheduler may try
    next_try_at = InstantField(LEASE)

    class Meta:
        primary_key = CompositeKey("subject", "address")

    @classmethod
    def write(
        cls, addresses: Collection[int], now: datetime, place: int, notification: Notification
    ) -> None:
        """Have a notification sent to these addresses, in place of an earlier one of its subject.

        So nobody is told that a problem has begun after hearing that it is over.
        """
        row = notification._asdict() | {"place": place, "next_try_at": now}
        rows = [row | {"address": each} for each in addresses]
        key = cls.subject, cls.address
        anew = cls.title, cls.text, cls.kind, cls.place, cls.next_try_at
        insert = cls.insert_many(rows)
        insert.on_conflict(conflict_target=key, preserve=anew, update={cls.tries: 0}).execute()

    @classmethod
    def claim(cls, address: int, now: datetime) -> Self | None:
        """Claim the next notification that an address is to be sent now, if there is one."""
        due = cls.select().where(cls.address == address, cls.next_try_at <= now)
        while row := due.order_by(cls.next_try_at, cls.place).first():
            if row._change(tries=row.tries + 1, next_try_at=now + LEASE):
                return row
        return None

    @property
    def notification(self) -> Notification:
        """The notification as it was written."""
        return Notification(self.title, self.text, self.kind, self.subject)

    def end(self) -> None:
        """Forget a claimed notification, unless it has been replaced meanwhile."""
        OutgoingNotice.delete().where(self._is_as_read()).execute()

    def put_off(self, now: datetime) -> None:
        """Have a claimed notification tried again later, unless it was tried often enough."""
        if self.tries > len(RETRY_AFTER):
            self.end()
        else:
            self._change(next_try_at=now + RETRY_AFTER[self.tries - 1])

    def _change(self, **changes):
        """Change the row; return False if somebody else has since it was read."""
        done = OutgoingNotice.update(changes).where(self._is_as_read()).execute() == 1
        self.__data__.update(changes)
        return done

    def _is_as_read(self):
        cls = OutgoingNotice
        this = (cls.subject == self.subject) & (cls.address == self.address)
        return this & (cls.tries == self.tries) & (cls.next_try_at == self.next_try_at)

    @classmethod
    def _key_of_batches(cls):
        return cls.subject


def pending(
    settings: Settings, now: datetime, keep: Callable[[Notification], None] = lambda each: None
) -> Iterator[Notification]:
    """Return what this process noticed first, in notifications.

    Each is recorded as noticed in the transaction in which `keep` is called with it.
    """
    with db.atomic():
        found = [*_countries(now)]
        for each in found:
            keep(each)
    yield from found
    for look in (_problems, _approvals, _replies, _limits):
        for claim, notification in look(settings, now):
            with db.atomic():
                if is_ours := claim():
                    keep(notification)
            if is_ours:
                yield notification


# Each of these returns notifications with functions: they record that it is noticed, and return
# False if another scheduler was faster


def _problems(settings, now):
    """Return a notification for each problem that has begun, and each that is over."""
    problems = health.read(now, settings).problems()
    found = {f"{PROBLEM}{each.kind} {each.name}": each for each in problems}
    for subject, problem in found.items():
        told = Notice.about(subject)
        if not told.level:
            text = (
                f"{problem.sentence}. Noticed at {isoformat(now)}. {_waiting(problem, now)}. "
                f"{problem.what_to_do}"
            )
            begun = partial(told.change, level=1, told_at=now)
            yield begun, Notification(problem.title, text, "failure", subject)
    # What is not reported beside its cause may last all the same
    kinds = {each.kind for each in problems}
    hidden = {*health.BY_SCHEDULERS} if "scheduler" in kinds else set()
    if any(each.stops and each.kind != "stalled" for each in problems):
        hidden.add("stalled")
    for told in Notice.select().where(Notice.subject.startswith(PROBLEM), Notice.level == 1):
        kind, _, name = told.subject.removeprefix(PROBLEM).partition(" ")
        if told.subject in found or kind in hidden:
            continue
        title = health.Problem(kind, name=name).title
        text = f"The problem reported at {isoformat(told.told_at)} is over: {title}."
        over = partial(told.change, level=0, told_at=now)
        yield over, Notification(f"over: {title}", text, "success", told.subject)


def _waiting(problem, now):
    """Return how many texts wait to be sent, or events if the problem is about those."""
    if problem.kind not in ("events", "receiver"):
        return f"Texts waiting to be sent: {queue.to_be_sent(now)}"
    by_name = Event.by_name().items()
    waiting = sum(each.waiting for key, each in by_name if problem.name in ("", key))
    return f"Events waiting: {waiting}"


def _approvals(settings, now):
    """Return a notification of texts that await approval, if any of them is new.

    It is repeated each day, and once when the first of them is about to expire.
    """
    waiting = queue.approvals()
    warn_at = waiting.expires_at and waiting.expires_at - EXPIRES_SOON
    is_soon = warn_at is not None and warn_at <= now

    def again(told_at):
        return told_at <= now - AGAIN_EVERY or (is_soon and told_at < warn_at)

    if news := _news("approvals", waiting.messages, waiting.newest, now, again):
        names = [f"{name} ({messages})" for name, messages in queue.approvals_by_key()]
        wait = "text waits" if waiting.messages == 1 else "texts wait"
        title = f"{waiting.messages} {wait} for approval"
        text = f"{title}, from {health.listed(names)}. "
        is_due = waiting.first_at <= now
        text += f"The first would be sent at {'once' if is_due else isoformat(waiting.first_at)}."
        if is_soon:
            text += f" Without approval, the first expires at {isoformat(waiting.expires_at)}."
        yield news, Notification(title, text + _link(settings), "warning", "approvals")


def _replies(settings, now):
    """Return a notification of unread replies, if any of them is new."""
    waiting = inbox.waiting(now)
    if news := _news("replies", waiting.replies, waiting.newest, now):
        wait = "reply waits" if waiting.replies == 1 else "replies wait"
        title = f"{waiting.replies} {wait} to be read"
        more = f"; {waiting.may_be_no} may be opting out." if waiting.may_be_no else "."
        text = title + more + _link(settings, "replies")
        yield news, Notification(title, text, "warning", "replies")


def _news(subject, count, newest, now, again=lambda told_at: False):
    """Return the function that records a notification, if something newer waits, or one more.

    Do so, too, if `again` is true of the time of the last one.
    """
    told = Notice.about(subject)
    is_new = count > told.level or (newest or "") > (told.newest or "")
    is_due = is_new and not (told.told_at and told.told_at > now - WAITING_EVERY)
    if count and (is_due or (told.told_at and again(told.told_at))):
        return partial(told.change, level=count, newest=newest, told_at=now)
    if count < told.level:
        told.change(level=count)
    return None


def _link(settings, page=""):
    """Return the end of a notice: the address of a page of the desk, if there is a desk."""
    is_there = settings.public_url and settings.secret_key
    return f" {settings.public_url}/desk/{page}" if is_there else ""


def _limits(settings, now):
    """Return a notice of each daily or monthly limit that is used up, once per day or month."""
    for key, limit in usage.limits_used_up(now, settings.key_limits):
        begins, ends = limit.span((now - EPOCH) // SECOND)
        parts = " in parts" if limit.in_parts else ""
        subject = f"limit per {limit.unit}{parts} of key {key.id}"
        if limit.unit in ("d", "mo"):
            first = partial(Notice.tell, subject, now, EPOCH + begins * SECOND)
            what = f"{key.name} has used up its limit"
            until = f"its texts are refused until {isoformat(EPOCH + ends * SECOND)}"
            text = f"The key {what} of {limit}: {until}. flask keys limit replaces it."
            yield first, Notification(what, text, "warning", subject)


def _countries(now):
    """Return a notice of each key that texts new countries, since it may have leaked."""
    for key, codes in KeyCountry.claim_news(now):
        names = [f"{recipients.country_name(code)} ({code})" for code in codes]
        told = f"texts {health.listed(names, 'countries')} for the first time"
        name = shlex.quote(key.name)
        text = (
            f"The key {key.name} {told}. If it has leaked: flask keys pause {name} stops it, and "
            f"flask messages cancel --key {name} --country {codes[0]} cancels what waits."
        )
        new = names[0] if len(names) == 1 else f"{len(names)} new countries"
        subject = f"countries {' '.join(codes)} of key {key.id}"
        yield Notification(f"{key.name} texts {new}", text, "warning", subject)


# Sending it


class Address:
    """One of Apprise's URLs."""

    def __init__(self, number: int, url: str, service_name: str):
        import apprise  # here, because it takes time and memory

        from texting.carriers.apprise import keep_from_log

        keep_from_log()
        asset = apprise.AppriseAsset(http_redirects=False, service_timeout=0)
        service = apprise.Apprise.instantiate(url, asset=asset)
        if service is None:
            scheme = re.match(r"[a-z][a-z0-9+.-]*://", url, re.IGNORECASE)  # no more may be shown
            shown = f" ({scheme[0]})" if scheme else ""
            raise ValueError(f"Apprise does not know address {number}{shown}")
        self.number, self.name = number, f"{url.partition(':')[0]}://"
        self.service_name = service_name
        self._apprise = apprise.Apprise(service, asset=asset)

    def __str__(self) -> str:
        return f"address {self.number} of NOTIFY_URL ({self.name})"

    def send(self, notification: Notification) -> bool:
        """Send a notification; return whether the service accepted it."""
        title, text, kind, _ = notification
        title = f"{self.service_name}: {title}"
        try:
            return bool(self._apprise.notify(text, title, kind, body_format="text"))
        except Exception:  # plugins leak their libraries' exceptions, which may hold the URL
            return False


def connect(settings: Settings) -> list[Address]:
    """Return the addresses; raise ValueError, without the URL, for an unusable one."""
    host = urlsplit(settings.public_url or "").hostname
    name = f"Text messages ({host})" if host else "Text messages"
    urls = (settings.notify_url or "").split()
    return [Address(number, url, name) for number, url in enumerate(urls, 1)]


class Notices:
    """Look and send in threads, one for each address, so that a slow one delays nothing else."""

    def __init__(self, settings: Settings):
        self.settings, self._ending = settings, threading.Event()
        self._queues = {address: SimpleQueue() for address in connect(settings)}
        self._numbers = [address.number for address in self._queues]
        work = [(self._look_again, ()), *((self._serve, each) for each in self._queues.items())]
        self._threads = [
            threading.Thread(target=do, args=args, name="notices", daemon=True) for do, args in work
        ]

    def start(self) -> None:
        """Begin to look, unless NOTIFY_URL is empty."""
        if self._queues:
            for thread in self._threads:
                thread.start()

    def finish(self, look: bool, stop_by: float = math.inf) -> None:
        """End, with `look` after one last look; wait for what is being sent.

        Wait for at most PATIENCE, and not beyond `stop_by` on the monotonic clock.
        """
        if not self._queues:
            return
        give_up_at = min(time.monotonic() + PATIENCE, stop_by)
        looking, *serving = self._threads
        self._ending.set()
        looking.join(max(0, give_up_at - time.monotonic()))
        if look:
            self.look()
        for looks in self._queues.values():
            looks.put(False)
        for thread in serving:
            thread.join(max(0, give_up_at - time.monotonic()))

    def look(self) -> None:
        """Notice what is new, and send what is due."""
        with database.log_errors(log, "no notices"):
            now = clocks.now()
            OutgoingNotice.delete_some(OutgoingNotice.next_try_at < now - KEPT)
            write, places = partial(OutgoingNotice.write, self._numbers, now), count()
            for _ in pending(self.settings, now, lambda each: write(next(places), each)):
                pass
        for looks in self._queues.values():
            looks.put(True)

    def _look_again(self):
        while not self._ending.wait(LOOK_EVERY):
            self.look()

    def _serve(self, address, looks):
        """Send an address what is due, after each look."""
        while looks.get():
            with database.log_errors(log, str(address)):
                while notice := OutgoingNotice.claim(address.number, clocks.now()):
                    if address.send(notice.notification):
                        notice.end()
                        continue
                    notice.put_off(clocks.now())
                    if is_first_failure(address, clocks.now()):
                        log.error("%s did not take a notice", address)


def is_first_failure(address: Address, now: datetime) -> bool:
    """Return whether no scheduler has logged a failure of this address for an hour."""
    return Notice.tell(f"failure of address {address.number}", now, since=now - FAILURES_EVERY)
