"""What `make run` does: tables, keys, web and scheduler, and a curl line that works."""

import contextlib
import json
import logging
import os
import re
import secrets
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import database  # noqa: E402
import logs  # noqa: E402
import models  # noqa: E402
import recipients  # noqa: E402
import settings as environment  # noqa: E402
from keys import ApiKey, Role  # noqa: E402
from recipients.hours import BusinessHours  # noqa: E402
from settings import Settings  # noqa: E402

TOOLS = Path(sys.executable).parent
STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PAUSE = 5  # seconds until a scheduler that ended is started again

# Numbers that are kept for fiction, around the world: mostly, it is business hours at one of them
NUMBERS = ("+12125550123", "+442079460958", "+61255501234", "+18085550123")
TIME_TO_PASTE = timedelta(seconds=60)  # the curl line, where it is business hours at none

log = logging.getLogger("run")


def main() -> int:
    """Run the service until it is stopped; return the exit status."""
    os.chdir(ROOT)
    os.umask(0o077)  # .env and the database are for nobody else
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
    stage = os.environ.get("SCRIPT_NAME", "").strip("/")
    address = f"http://localhost:{port}" + (f"/{stage}" if stage else "")
    threading.Thread(target=welcome, args=(settings, address, key, operators), daemon=True).start()
    return supervise()


def prepare() -> Settings:
    """Return the settings; make a `.env` where there is none, and a SECRET_KEY."""
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
            file.write("\n# Made by `make run`: signs the sessions of the desk\n")
            file.write(f"SECRET_KEY={secrets.token_hex(32)}\n")
    except OSError as error:
        sys.exit(f".env: cannot be written ({error.strerror})")
    return environment.load_or_exit()


def check(port: str) -> None:
    """Stop with a clear line where the port cannot be used."""
    try:
        if not re.fullmatch("0*[1-9][0-9]*", port):
            raise ValueError("a port is a number from 1 to 65535")
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("", int(port)))
    except (OSError, ValueError, OverflowError) as error:
        sys.exit(f"port {port} cannot be used ({error}); PORT=8001 make run uses another")


def kept_key(name: str, role: Role) -> str:
    """Return the API key that an earlier run has kept, or a new one where it is not good."""
    path, now = Path(f".{name}-key"), models.clock()
    secret = path.read_text().strip() if path.exists() else ""
    if not secret or not ApiKey.authenticate(secret, now):
        secret = ApiKey.issue(f"{name}-{now:%Y%m%d-%H%M%S}", None, now, role=role)
        path.write_text(f"{secret}\n")
    return secret


def supervise() -> int:
    """Run web and scheduler until we are stopped, or the web ends; return the exit status.

    A scheduler that ended is started again: without it, the web still takes messages.
    """
    commands = dict(line.split(": ", 1) for line in Path("Procfile").read_text().splitlines())
    environ = os.environ | {"PATH": f"{TOOLS}:{os.environ['PATH']}"}
    processes = {}

    def start(name):
        # in a group of its own: Ctrl-C is for us, and we let each end what is under way
        words = shlex.split(commands[name])
        processes[name] = subprocess.Popen(words, env=environ, process_group=0)

    try:
        start("web")
        start("scheduler")
        while not nobody_reads():
            if processes["web"].poll() is not None:
                return processes["web"].returncode
            if (status := processes["scheduler"].poll()) is not None:
                log.error("the scheduler ended (%s) and is started again in %s s", status, PAUSE)
                time.sleep(PAUSE)
                start("scheduler")
            time.sleep(0.2)
    finally:
        for number in STOP:
            signal.signal(number, signal.SIG_IGN)
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.wait()
    return 0


def nobody_reads() -> bool:
    """Say whether standard output leads nowhere, as in `make run | head`; then forget it."""
    poll = select.poll()
    poll.register(logs.STDOUT, 0)
    gone = any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    if gone:
        logs.discard_output()
    return gone


def welcome(settings: Settings, address: str, key: str, operators: str) -> None:
    """Wait until the service answers, then print where things are and a request to try."""
    for _ in range(300):
        if status(f"{address}/healthz") == 200:
            break
        time.sleep(0.1)
    else:
        print("the service does not answer; its output says why", file=sys.stderr)
        return
    public = settings.public_url or address
    desk = f"\n{public}/desk/ is for people: sign in with {operators}"
    if status(f"{address}/desk/") != 200:
        desk = ""
    body, note = text_to_try(settings)
    with contextlib.suppress(BrokenPipeError):
        print(
            f"""
The service runs. {public}/docs describes it, and lets you try requests.{desk}
{note}

curl {address}/v1/text-messages \\
  -H 'X-Api-Key: {key}' \\
  -H 'Content-Type: application/json' \\
  -d '{json.dumps(body)}'

Ctrl-C stops it.
""",
            flush=True,
        )


def text_to_try(settings: Settings) -> tuple[dict, str]:
    """Return a request for a text that goes at once or soon, and what to expect of it."""
    carrier = (settings.carrier_url or "").partition(":")[0].lower()
    if not carrier:
        note = "No carrier is set, so texts wait; CARRIER_URL=console: in .env shows them here."
    elif carrier == "console":
        note = "Send a first text; its number is nobody's, and it appears here within seconds."
    else:
        note = f"Send a first text, through {carrier}; its number is nobody's."
    allowed, now = settings.allowed_countries, models.clock()
    hours = BusinessHours.from_settings(settings)
    found = [recipients.find(number) for number in NUMBERS]
    found = [one for one in found if not allowed or one.country in allowed] or found
    body = {"to": found[0].e164, "message": "Hello from the service"[: settings.max_message_length]}
    for recipient in found:
        if recipients.within_business_hours(recipient, now, hours):
            return body | {"to": recipient.e164}, note
    at = (now + TIME_TO_PASTE).replace(microsecond=0)
    note += f"\nIt is night there, so it has a send_date, {at:%H:%M:%S} UTC: paste it before."
    return body | {"send_date": at.isoformat().replace("+00:00", "Z")}, note


def status(url: str) -> int | None:
    """Return the status of a GET; None where nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


@contextlib.contextmanager
def foreground() -> Iterator[None]:
    """Have the terminal send Ctrl-C to us alone: make would make an error of it."""
    try:
        terminal = os.open("/dev/tty", os.O_RDWR)
        before = os.tcgetpgrp(terminal)
    except OSError:  # there is no terminal
        before = None
    if before != os.getpgrp() or before == os.getpid():
        yield
        return
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # or we may not take the terminal
    signal.signal(signal.SIGTSTP, signal.SIG_IGN)  # make and its shell would not notice Ctrl-Z
    os.setpgid(0, 0)
    os.tcsetpgrp(terminal, os.getpid())
    try:
        yield
    finally:
        os.tcsetpgrp(terminal, before)


if __name__ == "__main__":
    for number in STOP:
        signal.signal(number, signal.default_int_handler)
    with foreground(), contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
