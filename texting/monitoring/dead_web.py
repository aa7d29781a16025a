"""Check from the scheduler, once a minute, whether the web answers at PUBLIC_URL."""

import json
import logging
import threading
import time
from datetime import datetime, timedelta
from typing import Self

from peewee import BooleanField, TextField

from texting import database
from texting.database import PAST, InstantField, Table, clock
from texting.settings import Settings

ASK_EVERY = 60  # seconds
ANSWERS_WITHIN = 5  # seconds
PAUSES = (15, 15)  # seconds between the tries of a round: a restarting web is back by then
LATELY = timedelta(seconds=75)  # another scheduler may have reached it

log = logging.getLogger("notices")


class PublicAddress(Table):
    """PUBLIC_URL as schedulers see it; there is no row before its first answer."""

    url = TextField(primary_key=True)
    answered_at = InstantField(PAST)
    is_silent = BooleanField()  # as of the latest check

    @classmethod
    def record_answer(cls, url: str, now: datetime) -> None:
        """Note that the service answered there."""
        answered = {cls.answered_at: now, cls.is_silent: False}
        row = cls.insert(url=url, answered_at=now, is_silent=False)
        row.on_conflict(conflict_target=[cls.url], update=answered).execute()

    @classmethod
    def record_silence(cls, url: str, now: datetime) -> None:
        """Note that the service does not answer there, unless it never did, or just did."""
        silent = (cls.url == url) & (cls.answered_at <= now - LATELY)
        cls.update(is_silent=True).where(silent).execute()

    @classmethod
    def silent(cls, url: str) -> Self | None:
        """Return this address if the service has stopped answering there."""
        return cls.get_or_none(cls.url == url, cls.is_silent)


def start(settings: Settings) -> None:
    """Start a thread that keeps asking, if there is anybody to notify."""
    if settings.public_url and settings.notify_url:
        threading.Thread(target=ask_again, args=(settings.public_url,), daemon=True).start()


def look(settings: Settings) -> None:
    """Ask once, for a single pass."""
    if settings.public_url and settings.notify_url:
        _ask(settings.public_url, ())


def ask_again(url: str) -> None:
    """Ask for ever."""
    while True:
        _ask(url, PAUSES)
        time.sleep(ASK_EVERY)


def _ask(url, pauses):
    """Ask until there is an answer, with these pauses between tries; note whether there was one."""
    with database.log_errors(log, "PUBLIC_URL is not asked"):
        answered = why_silent(url) is None
        for pause in () if answered else pauses:
            time.sleep(pause)
            if answered := why_silent(url) is None:
                break
        if answered:
            PublicAddress.record_answer(url, clock.now())
        else:
            PublicAddress.record_silence(url, clock.now())


def why_silent(url: str) -> str | None:
    """Return why the service does not answer at PUBLIC_URL, or None if it does."""
    import urllib.request  # here, because each process imports this module
    from http.client import HTTPException

    from texting.carriers.tls import reason_of

    body = None
    try:
        with urllib.request.urlopen(f"{url}/healthz", timeout=ANSWERS_WITHIN) as answer:
            body = json.loads(answer.read(100_000))
    except urllib.request.HTTPError as error:
        with error:
            return f"HTTP {error.code}"
    except (OSError, HTTPException) as error:
        return reason_of(error)
    except (ValueError, RecursionError):
        pass
    is_ours = isinstance(body, dict) and "version" in body
    return None if is_ours else "something else answers"
