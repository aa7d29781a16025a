"""`flask notify`: notices for people."""

import threading

from flask import current_app

from texting.cli import base
from texting.database import Refused
from texting.monitoring import notices
from texting.monitoring.notices import Notification

TEST = Notification("a test", "This is a test of the notices about text messages.", "info")

notify = base.Commands(
    "notify", help="Send notices to people, at NOTIFY_URL: those that are due, or a test."
)


def _made(make):
    """Call a function that reads NOTIFY_URL; raise Refused if that is not set or cannot be used."""
    settings = current_app.config["SETTINGS"]
    if not settings.notify_url:
        raise Refused("NOTIFY_URL is not set, so nobody is notified")
    try:
        return make(settings)
    except ValueError as problem:
        raise Refused(f"NOTIFY_URL: {problem}") from None


@notify.command()
def look() -> None:
    """Send the notices that are due now; schedulers do so every five seconds."""
    looking = _made(notices.Notices)
    looking.start()
    looking.finish(look=True)


@notify.command()
def test() -> None:
    """Send a test notice to each address in NOTIFY_URL; exit status 1 if one fails."""
    addresses = _made(notices.connect)
    took = set()

    def tell(address):
        if address.send(TEST):
            took.add(address)

    threads = [threading.Thread(target=tell, args=[each], daemon=True) for each in addresses]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(notices.PATIENCE)
    if failed := [str(address) for address in addresses if address not in took]:
        raise Refused(f"could not be sent to {', '.join(failed)}")
    for address in addresses:
        base.say(f"sent to {address}")
