"""Prepare and run the service for `make run`, and print a curl line that works."""

import contextlib
import json
import multiprocessing
import os
import re
import secrets
import signal
import socket
import sys
import time
import urllib.request
from collections import deque
from datetime import timedelta
from pathlib import Path
from threading import Thread

from honcho.environ import parse_procfile
from honcho.manager import Manager
from honcho.printer import Message, Printer

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the imports needs no traceback

import database  # noqa: E402
import logs  # noqa: E402
import models  # noqa: E402
import recipients  # noqa: E402
import settings as environment  # noqa: E402
from keys import ApiKey, Role  # noqa: E402
from recipients.hours import BusinessHours  # noqa: E402
from settings import Settings  # noqa: E402

# Numbers reserved for fiction, around the world: at most hours, one of them is open
NUMBERS = ("+12125550123", "+442079460958", "+61255501234", "+18085550123")
TIME_TO_PASTE = timedelta(seconds=60)  # until the send_date of the curl line, if all are closed


PROCESSES = ("web", "scheduler")


def main() -> int:
    """Run the service until it ends or a signal stops it; return the exit status."""
    os.chdir(ROOT)
    os.umask(0o077)  # only this user may read .env, the keys and the database
    settings = prepare()
    port = os.environ.setdefault("PORT", "8000")
    check(port)
    logs.start(settings.log_level, settings.log_format)
    environment.warn_of_misspelt()
    database.connect(settings.database_url)
    try:
        database.upgrade()
        key, operators = kept_key("first", Role.SENDER), kept_key("operator", Role.OPERATOR)
    except database.ERRORS as error:
        sys.exit(f"the database failed: {database.reason(error)}")
    except database.Refused as error:
        sys.exit(str(error))
    finally:
        database.disconnect()

    prefix = os.environ.get("SCRIPT_NAME", "").strip("/")
    address = f"http://localhost:{port}/{prefix}".rstrip("/")
    Thread(target=welcome, args=(settings, address, key, operators), daemon=True).start()
    return serve()


def serve() -> int:
    """Run the Procfile's web and scheduler until one ends or a signal comes; return the status."""
    multiprocessing.set_start_method("fork")  # others would import this file in each process
    for number in (signal.SIGHUP, signal.SIGALRM):  # honcho handles SIGINT and SIGTERM only
        signal.signal(number, lambda *_: signal.raise_signal(signal.SIGTERM))
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    commands = parse_procfile(Path("Procfile").read_text()).processes
    service = Service(output)
    for name in PROCESSES:
        service.add_process(name, commands[name])
    service.loop()
    stopped = service.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    return int(output.closed) if stopped else service.returncode


class Service(Manager):
    """Processes that honcho runs, each in a session of its own, and ends together."""

    def terminate(self) -> None:
        """Stop all processes; while honcho is still starting them, try again soon."""
        if output.started == len(PROCESSES):
            super().terminate()
        else:  # honcho does not know their pids yet
            signal.setitimer(signal.ITIMER_REAL, 0.1)


class Output(Printer):
    """Print the lines of all processes; end the service when the output is closed."""

    closed, started, busy = False, 0, False

    def __init__(self, *arguments) -> None:
        super().__init__(*arguments)
        self.waiting = deque()

    def write(self, message: Message) -> None:
        self.started += " started (pid=" in str(message.data)
        self.waiting.append(message)
        if self.busy:  # in honcho's handler of a signal: print cannot be called within print
            return
        self.busy = True
        try:
            while self.waiting:
                super().write(self.waiting.popleft())
        except OSError:  # nobody reads the output of `make run | head`
            self.closed = True
            logs.discard_output()
            signal.raise_signal(signal.SIGTERM)
        finally:
            self.busy = False


def prepare() -> Settings:
    """Return the settings; create `.env` and its SECRET_KEY if they are missing."""
    if not os.access(ROOT, os.W_OK):
        sys.exit(f"cannot write to {ROOT}")
    env = Path(".env")
    if not env.exists():
        env.write_text(Path(".env.example").read_text())
    settings = environment.load_or_exit()
    if "SECRET_KEY" in os.environ:
        return settings
    try:
        env.chmod(0o600)
        with env.open("a") as file:
            file.write("\n# Made by `make run`; signs the desk's sessions\n")
            file.write(f"SECRET_KEY={secrets.token_hex(32)}\n")
    except OSError as error:
        sys.exit(f".env: cannot be written ({error.strerror})")
    return environment.load_or_exit()


def check(port: str) -> None:
    """End the process with a clear line if the port cannot be used."""
    try:
        if not re.fullmatch("0*[1-9][0-9]*", port):
            raise ValueError("a port is a number from 1 to 65535")
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("", int(port)))
    except (OSError, ValueError, OverflowError) as error:
        sys.exit(f"port {port} cannot be used ({error}); PORT=8001 make run uses another")


def kept_key(name: str, role: Role) -> str:
    """Return the API key of an earlier run if it is still valid, otherwise a new one."""
    path, now = Path(f".{name}-key"), models.clock()
    secret = path.read_text().strip() if path.exists() else ""
    if not secret or not ApiKey.authenticate(secret, now):
        secret = ApiKey.issue(f"{name}-{now:%Y%m%d-%H%M%S}", None, now, role=role)
        path.write_text(f"{secret}\n")
    return secret


def welcome(settings: Settings, address: str, key: str, operators: str) -> None:
    """Wait until the service answers; print where it is, and a request to try."""
    answered = False
    while not answered:
        time.sleep(0.3)  # at first for honcho: a process should not fork while threads are busy
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/healthz", timeout=5):
            answered = True
    public = settings.public_url or address
    desk = f"\nSign in to the desk, {public}/desk/, with {operators}" if settings.secret_key else ""
    body, note = text_to_try(settings)
    text = f"""
The service runs. {public}/docs describes it and lets you try requests.{desk}
{note}

curl {address}/v1/text-messages \\
  -H 'X-Api-Key: {key}' \\
  -H 'Content-Type: application/json' \\
  -d '{json.dumps(body)}'

Ctrl-C stops it.
"""
    with contextlib.suppress(BrokenPipeError):  # Output ends the service with the next line
        print(text, flush=True)


def text_to_try(settings: Settings) -> tuple[dict, str]:
    """Return a request for a text that goes at once or soon, and a note on what to expect."""
    carrier = (settings.carrier_url or "").partition(":")[0].lower()
    if not carrier:
        note = "No carrier is set: texts wait. CARRIER_URL=console: in .env prints them here."
    elif carrier == "console":
        note = "Send a first text. It appears here within seconds; nobody has its number."
    else:
        note = f"Send a first text through {carrier}; nobody has its number."
    allowed, now = settings.allowed_countries, models.clock()
    hours = BusinessHours.from_settings(settings)
    found = [recipients.find(number) for number in NUMBERS]
    found = [one for one in found if not allowed or one.country in allowed] or found
    body = {"to": found[0].e164, "message": "Hello from the service"[: settings.max_message_length]}
    for recipient in found:
        if hours.is_open(recipient.clocks, now):
            return body | {"to": recipient.e164}, note
    at = (now + TIME_TO_PASTE).replace(microsecond=0)
    at = hours.quiet_until(found[0].clocks, at) or at
    note += "\nIt is outside business hours there, so its send_date is "
    note += f"{at:%H:%M:%S} UTC: paste it before then."
    return body | {"send_date": at.isoformat().replace("+00:00", "Z")}, note


output = Output(sys.stdout)

if __name__ == "__main__":
    sys.exit(main())
