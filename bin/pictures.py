"""Make the pictures of the desk by a real Chromium: `python bin/pictures.py [FOLDER]`.

Without a folder, those in docs/pictures/.
"""

import os
import sys
import tempfile
import threading
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]

from werkzeug.serving import make_server  # noqa: E402

import database  # noqa: E402
import models  # noqa: E402
import settings  # noqa: E402
from app import create_app  # noqa: E402
from browser import open_browser  # noqa: E402
from carrier_state import CarrierState  # noqa: E402
from keys import ApiKey, Role  # noqa: E402
from models import Message, Status  # noqa: E402

PICTURES = Path(sys.argv[1] if sys.argv[1:] else ROOT / "docs/pictures").absolute()
DESKTOP, PHONE = (1100, 900), (390, 844)
TEXTS = (
    (
        "+12125550123",
        "Hi Maya, your table for four is booked for tonight, 7:30 PM. Reply C to cancel.",
    ),
    ("+442079460958", "Your parcel is out for delivery and will arrive between 2 and 4 PM."),
    ("+61255501234", "Dr Nguyen's surgery: please ring us about your results. Not urgent."),
    ("+4930901820", "Ihr Termin am Donnerstag um 9:30 Uhr ist bestätigt. Bis dann!"),
    ("+97144567890", "مرحبا، موعدك يوم الأحد الساعة العاشرة صباحا. للإلغاء اتصل بنا."),
    ("+18085550123", "<b>FREE</b> prize! Claim at https://example.com/\u202etxt.exe"),
)
OUTCOMES = {
    Status.DELIVERED: 412,
    Status.SENT: 96,
    Status.UNDELIVERED: 9,
    Status.FAILED: 14,
    Status.BLOCKED: 6,
    Status.CANCELLED: 3,
}


def main() -> None:
    """Fill a database with a day's texts and take a picture of each page."""
    folder = Path(tempfile.mkdtemp(prefix="pictures-"))
    os.chdir(folder)
    url = f"sqlite:///{folder}/messages.db"
    app = create_app(settings.load()._replace(database_url=url, secret_key="pictures" * 4))
    database.upgrade()
    key = fill(models.clock())
    server = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with open_browser(folder / "profile") as browser:
        take(browser, f"http://127.0.0.1:{server.port}/desk/", key)
    server.shutdown()


def fill(now) -> str:
    """Store a day's texts; return the secret of an operator's key."""
    for name in ("shop", "clinic"):
        ApiKey.issue(name, "front", now)
    shop, clinic = ApiKey.named("shop"), ApiKey.named("clinic")
    for number, (to, text) in enumerate(TEXTS * 34):
        later = timedelta(minutes=37 * number) if number % 4 else timedelta(0)
        asked = now - timedelta(minutes=4 * number + 3)
        put(now, shop if number % 3 else clinic, to, text, asked, now + later, manual_mode=True)
    for number in range(340):
        at = now + timedelta(minutes=4 * number % 1440 if number % 3 else 200 + number % 90)
        put(now, shop, TEXTS[number % 5][0], TEXTS[number % 5][1], now, at)
    for status, count in OUTCOMES.items():
        for number in range(count):
            at = now - timedelta(minutes=number * 3 + 1)
            put(now, clinic, *TEXTS[number % 5], at, at, status=status)
    CarrierState.passed("twilio", now)
    return ApiKey.issue("Ann", None, now, role=Role.OPERATOR)


def put(now, key, to, text, asked, at, status=Status.SCHEDULED, manual_mode=False) -> None:
    failed = status in (Status.FAILED, Status.UNDELIVERED)
    Message.create(
        id=models.new_id(asked),
        key=key,
        to=to,
        message=text,
        first_send_at=at,
        send_at=at,
        status=status,
        manual_mode=manual_mode,
        available_to_group=True,
        check_dnc=False,
        approved=not manual_mode,
        attempts=int(status in models.FINISHED),
        max_retries=3,
        finished_at=at if status in models.FINISHED else None,
        last_error="21211: the number cannot be reached" if failed else None,
        last_error_at=at if failed else None,
        created_at=asked,
    )


def take(browser, desk: str, key: str) -> None:
    """Walk through the desk and keep what it looks like."""
    PICTURES.mkdir(exist_ok=True)
    browser.open(desk)
    browser.write("#key", key)
    browser.press("Sign in")
    for name, screen, page in (
        ("waiting", DESKTOP, ""),
        ("waiting-phone-dark", PHONE, ""),
        ("selected-phone", PHONE, "?select=all"),
        ("messages", DESKTOP, "messages?status=failed"),
        ("message-phone", PHONE, "messages?status=failed"),
    ):
        browser.look_like(*screen, dark="dark" in name)
        browser.open(desk + page)
        if name == "selected-phone":
            browser.run("window.scrollTo(0, 700)")
        if name == "message-phone":
            browser.follow(".to a")
        browser.screenshot(PICTURES / f"{name}.png")


if __name__ == "__main__":
    main()
