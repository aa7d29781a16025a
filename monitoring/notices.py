"""Notify people, through Apprise, of texts and replies that wait, of problems and of limits.

Every scheduler looks. The database records each notification, so only one of them sends it.
"""

import logging
import math
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from queue import SimpleQueue
from typing import Any, NamedTuple, Self

from peewee import SQL, IntegerField, TextField

import database
import reports
from database import MILLISECOND, InstantField, Table, clock
from monitoring import health
from sending.replies import Reply
from settings import Settings

TITLE = "Text messages"  # followed by the subject
WAITING_EVERY = timedelta(minutes=15)  # of texts for approval, and of replies
FAILURES_EVERY = timedelta(hours=1)
LOOK_EVERY = 5  # seconds
PATIENCE = 15  # seconds that an end of a scheduler, or a test, waits for addresses
DAY = timedelta(days=1)
AFTER_MIDNIGHT = timedelta(minutes=15)  # how long the day before is still looked at

log = logging.getLogger("notices")


class Notice(Table):
    """The latest notification about a subject."""

    subject = TextField(primary_key=True)
    told_at = InstantField(null=True)
    # 1 while a problem lasts; of approvals and replies, the fewest that have waited since
    level = IntegerField(default=0, constraints=[SQL("DEFAULT 0")])
    newest = TextField(null=True)  # the id of the newest message or reply that waited

    @classmethod
    def about(cls, subject: str) -> Self:
        """Return the row of a subject; make it if there is none."""
        if (row := cls.get_or_none(cls.subject == subject)) is None:
            cls.insert(subject=subject).on_conflict_ignore().execute()
            row = cls.get_by_id(subject)
        return row

    def change(self, **changes: Any) -> bool:
        """Change the row; False if another scheduler has done so since it was read."""
        cls = Notice
        unchanged = (cls.level == self.level) & (cls.told_at == self.told_at)
        return cls.update(changes).where(cls.subject == self.subject, unchanged).execute() == 1

    def is_older_than(self, age: timedelta, now: datetime) -> bool:
        """Say whether it was told longer ago than that, or never."""
        return self.told_at is None or self.told_at <= now - age


# What to send


class Kind(StrEnum):
    """Apprise's types, by which a pager can tell."""

    FAILURE = "failure"
    WARNING = "warning"
    SUCCESS = "success"
    INFO = "info"


class Notification(NamedTuple):
    """A title, the text in full, and a type that says how bad it is."""

    title: str
    text: str
    kind: Kind


def pending(settings: Settings, now: datetime) -> Iterator[Notification]:
    """Return the notifications that this process is to send now; each is recorded as sent."""
    Notice.count_as_now(Notice.told_at, now)
    yield from _problem(settings, now)
    yield from _approvals(settings, now)
    yield from _replies(settings, now)
    yield from _limits(settings, now)


def _problem(settings, now):
    problems, told = health.read(now, settings.ways).problems(), Notice.about("problem")
    if bool(problems) == bool(told.level):
        return
    if told.change(level=int(bool(problems)), told_at=now):
        if not problems:
            yield Notification("well again", "The service is well again.", Kind.SUCCESS)
            return
        text = f"The service has a problem: {'; '.join(problems)}."
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        yield Notification(f"{problems[0]}{more}", text, Kind.FAILURE)


def _approvals(settings, now):
    """Return a notification of texts that wait for approval, if any of them is new."""
    waiting = reports.approvals()
    if _note_news("approvals", waiting.messages, waiting.newest, now):
        names = [f"{name} ({messages})" for name, messages in reports.approvals_by_key()]
        wait = "text waits" if waiting.messages == 1 else "texts wait"
        title = f"{waiting.messages} {wait} for approval"
        text = f"{title}, from {health.listed(names)}. "
        text += f"The first would leave at {waiting.first_at:%Y-%m-%d %H:%M} UTC."
        yield Notification(title, text + _link(settings), Kind.WARNING)


def _replies(settings, now):
    """Return a notification of replies that wait to be read, if any of them is new."""
    waiting = Reply.waiting(now)
    if _note_news("replies", waiting.replies, waiting.newest, now):
        wait = "reply waits" if waiting.replies == 1 else "replies wait"
        title = f"{waiting.replies} {wait} to be read"
        more = f"; {waiting.may_be_no} may be opting out." if waiting.may_be_no else "."
        yield Notification(title, title + more + _link(settings, "replies"), Kind.WARNING)


def _note_news(subject, count, newest, now):
    """Record a notification if something new waits: a newer one, or one more; return whether."""
    told = Notice.about(subject)
    is_new = count > told.level or (newest or "") > (told.newest or "")
    if count and is_new and told.is_older_than(WAITING_EVERY, now):
        return told.change(level=count, newest=newest, told_at=now)
    if count < told.level:
        told.change(level=count)
    return False


def _link(settings, page=""):
    """Return the address of a page of the desk as the end of a notice, if there is a desk."""
    is_there = settings.public_url and settings.secret_key
    return f" {settings.public_url}/desk/{page}" if is_there else ""


def _limits(settings, now):
    """Return a notice of each daily limit that is used up, once a day."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if now - midnight < AFTER_MIDNIGHT:  # since the last look, a limit may have been used up
        yesterday = midnight - MILLISECOND
        yield from _limits_of_day(settings, yesterday, f" on {yesterday:%Y-%m-%d}")
    yield from _limits_of_day(settings, now, "")


def _limits_of_day(settings, at, when):
    """Return the notices of the day of an instant, at which they are recorded as sent."""
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    for key, use in reports.use_of_days(at, settings.key_limits):
        if not use.is_up:
            continue
        sent = Notice.about(f"limit of key {key.id}")
        # An older version recorded 80 % as level 1
        is_sent = sent.told_at and sent.told_at >= midnight and sent.level != 1
        if not is_sent and sent.change(level=2, told_at=at):
            what = f"{key.name} has used up all of its limit"
            yield Notification(what, f"The key {what} of {use.limit}{when}.", Kind.WARNING)


# Sending it


class Address:
    """One of Apprise's URLs."""

    def __init__(self, number: int, url: str):
        import apprise  # here, because it takes long and much memory

        from carriers.apprise import keep_from_log

        keep_from_log()
        asset = apprise.AppriseAsset(http_redirects=False, service_timeout=0)
        service = apprise.Apprise.instantiate(url, asset=asset)
        if service is None:
            raise ValueError(f"Apprise takes no address like number {number}")
        self.number, self.name = number, f"{url.partition(':')[0]}://"
        self._apprise = apprise.Apprise(asset=asset)
        self._apprise.add(service)

    def __str__(self) -> str:
        return f"address {self.number} of NOTIFY_URL ({self.name})"

    def send(self, notification: Notification) -> bool:
        """Send a notification; return whether the service accepted it."""
        title, text, kind = notification
        about = {"title": f"{TITLE}: {title}", "notify_type": kind.value, "body_format": "text"}
        try:
            return bool(self._apprise.notify(text, **about))
        except Exception:  # plugins leak their libraries' exceptions, which may hold the URL
            return False


def connect(urls: str) -> list[Address]:
    """Return the addresses; raise ValueError, without the URL, for one that cannot be used."""
    return [Address(number, url) for number, url in enumerate(urls.split(), 1)]


class Notices:
    """Look and send in threads, one for each address, so a slow one delays nothing else."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self._ending = threading.Event()
        self._queues = {address: SimpleQueue() for address in connect(settings.notify_url or "")}
        self._threads = [
            threading.Thread(target=self._serve, args=each, daemon=True)
            for each in self._queues.items()
        ]
        self._looking = threading.Thread(target=self._look_again, daemon=True)

    def start(self) -> None:
        """Begin to look, unless NOTIFY_URL is empty."""
        if self._queues:
            for thread in (*self._threads, self._looking):
                thread.start()

    def finish(self, look: bool, stop_by: float = math.inf) -> None:
        """End, after a last look with `look`; wait for what is being sent.

        Wait for at most PATIENCE, and not beyond `stop_by` on the monotonic clock.
        """
        if not self._queues:
            return
        give_up_at = min(time.monotonic() + PATIENCE, stop_by)
        self._ending.set()
        self._looking.join(max(0, give_up_at - time.monotonic()))
        if look:
            self.look()
        for queue in self._queues.values():
            queue.put(None)
        for thread in self._threads:
            thread.join(max(0, give_up_at - time.monotonic()))

    def look(self) -> None:
        """Send what is pending."""
        with database.survived(log, "no notices"):
            for notification in pending(self.settings, clock.now()):
                for queue in self._queues.values():
                    queue.put(notification)

    def _look_again(self):
        while not self._ending.wait(LOOK_EVERY):
            self.look()

    def _serve(self, address, queue):
        while (notification := queue.get()) is not None:
            try:
                if not address.send(notification):
                    self._note_failure(address)
            except Exception as error:
                log.error("%s: unexpected %s", address, type(error).__name__)

    def _note_failure(self, address):
        """Log that an address failed, once an hour over all schedulers."""
        now = clock.now()
        try:
            told = Notice.about(f"failure of address {address.number}")
            if told.is_older_than(FAILURES_EVERY, now) and told.change(told_at=now):
                log.error("%s did not take a notice", address)
        except database.ERRORS:
            database.disconnect()
        finally:
            database.db.close()
