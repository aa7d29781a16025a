"""Notify people from the web, once a minute, while no scheduler does."""

import logging
import os
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path

from texting import database
from texting.monitoring import clocks, health
from texting.monitoring.notices import Notice
from texting.settings import Settings

LOOK_EVERY = 15  # seconds
TRY_EVERY = timedelta(minutes=1)
APP = Path(__file__).parents[2] / "app.py"

log = logging.getLogger("notices")


def start(settings: Settings) -> None:
    """Start a thread that looks, unless NOTIFY_URL is empty."""
    if settings.notify_url:
        threading.Thread(target=_look_again, args=(settings,), daemon=True).start()


def _look_again(settings):
    while True:
        time.sleep(LOOK_EVERY)  # first: a scheduler may be starting, too
        with database.log_errors(log, "no notices"):
            now = clocks.now()
            if health.read(now, settings).is_silent and is_first(now):
                notify()


def is_first(now: datetime) -> bool:
    """Return whether no other worker, on any machine, has begun to notify within TRY_EVERY."""
    return Notice.tell("a look of the web", now, since=now - TRY_EVERY)


def notify() -> None:
    """Send the notices from another process, which ends: Apprise takes much memory."""
    command = [sys.executable, "-m", "flask", "--app", str(APP), "notify", "look"]
    # The metrics belong to the web processes
    environ = {k: v for k, v in os.environ.items() if k != "PROMETHEUS_MULTIPROC_DIR"}
    subprocess.run(command, env=environ, check=False)
