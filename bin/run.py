"""Prepare and run the service for `make run`, and print a curl line that works."""

import contextlib
import ipaddress
import json
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from datetime import timedelta
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))
signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the imports needs no traceback

from texting import database, logs  # noqa: E402
from texting.access.keys import ApiKey, Role  # noqa: E402
from texting.database import clock  # noqa: E402
from texting.settings import Settings, load_or_exit, warn_of_misspelt  # noqa: E402

NUMBER = "+12125550123"  # reserved for fiction
ALWAYS = (0, 24 * 60)
KEYS_LAST = timedelta(days=30)
HOURS = {"BUSINESS_HOURS", "BUSINESS_DAYS", "SKIP_HOLIDAYS", "QUIET_HOURS", "QUIET_HOURS_FILE"}
"""Settings of hours: without any, `.env` gets OPEN, because this service is for trying."""
OPEN = "BUSINESS_HOURS=00:00-24:00"


def main() -> int:
    """Run the service until it ends or a signal stops it; return the exit status."""
    os.chdir(ROOT)
    os.umask(0o077)  # only this user may read .env, the keys and the database
    settings = prepare()
    port, host = settings.port or 8000, listening_host()
    os.environ["PORT"] = str(port)
    check(port, host)
    logs.start(settings.log_level, settings.log_format)
    warn_of_misspelt()
    database.connect(settings.database_url)
    try:
        database.upgrade()
        key, operators = kept_key("first", Role.SENDER), kept_key("desk", Role.OPERATOR)
    except database.ERRORS as error:
        sys.exit(f"the database failed: {database.reason(error)}")
    except database.Refused as error:
        sys.exit(str(error))
    finally:
        database.disconnect()

    prefix = os.environ.get("SCRIPT_NAME", "").strip("/")
    usual = host in ("127.0.0.1", "0.0.0.0", "::", "::1")
    address = f"http://{with_port('localhost' if usual else host, port)}/{prefix}".rstrip("/")
    return serve(address, with_port(host, port), welcome(settings, address, key, operators, host))


def with_port(host: str, port: int) -> str:
    """Return an address with its port; one of IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def serve(address: str, bind: str, greeting: str) -> int:
    """Run the Procfile's web and scheduler until one ends or a signal comes; return the status.

    Print the greeting once the web answers.
    """
    signals = []
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: signals.append(number))
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    commands = dict(line.split(": ", 1) for line in Path("Procfile").read_text().splitlines())
    commands["web"] += f" --bind {bind}"
    processes = [  # in sessions of their own: Ctrl-C would make gunicorn drop requests under way
        subprocess.Popen(shlex.split(commands[name]), start_new_session=True)
        for name in ("web", "scheduler")
    ]
    try:
        while not signals and all(process.poll() is None for process in processes):
            time.sleep(0.2)
            if greeting and answers(f"{address}/healthz"):
                print(greeting, flush=True)
                greeting = ""
        return 0 if signals else 1
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def answers(url: str) -> bool:
    """Return whether the service answers 200."""
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=5):
        return True
    return False


def prepare() -> Settings:
    """Return the settings; write into `.env` what is missing there and assumed here."""
    if not os.access(ROOT, os.W_OK):
        sys.exit(f"cannot write to {ROOT}")
    env = Path(".env")
    if not env.exists():
        env.write_text(Path(".env.example").read_text())
    load_or_exit()
    made = ""
    if not HOURS & os.environ.keys():  # .env has been loaded into it
        made += f"\n# Made by `make run`, for trying: always open. Without it: 9 to 5\n{OPEN}\n"
    if "SECRET_KEY" not in os.environ:
        made += "\n# Made by `make run`; signs the desk's sessions\n"
        made += f"SECRET_KEY={secrets.token_hex(32)}\n"
    if made:
        try:
            env.chmod(0o600)
            with env.open("a") as file:
                file.write(made)
        except OSError as error:
            sys.exit(f".env: cannot be written ({error.strerror})")
    return load_or_exit()


def listening_host() -> str:
    """Return the address in HOST, or this machine's own: some shells set HOST to its name."""
    try:
        return str(ipaddress.ip_address(os.environ.get("HOST", "")))
    except ValueError:
        return "127.0.0.1"


def check(port: int, host: str) -> None:
    """End the process with a clear line if the port cannot be used."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
    except OSError as error:
        sys.exit(f"port {port} cannot be used ({error}); PORT=8001 make run uses another")


def kept_key(name: str, role: Role) -> str:
    """Return the API key of an earlier run if it can still be used, otherwise a new one."""
    path, now = Path(f".{name}-key"), clock.now()
    secret = path.read_text().strip() if path.exists() else ""
    key = ApiKey.authenticate(secret, now) if secret else None
    if not key or key.paused_at:
        taken = ApiKey.select().where(ApiKey.name == name, ApiKey.revoked_at.is_null()).exists()
        name += f"-{now:%Y%m%d-%H%M%S}" if taken else ""
        secret = ApiKey.issue(name, None, now, now + KEYS_LAST, role)
        path.write_text(f"{secret}\n")
    return secret


def welcome(settings: Settings, address: str, key: str, operators: str, host: str) -> str:
    """Return where the service is, and a request to try."""
    public = settings.public_url or address
    desk = f"\nSign in to the desk, {public}/desk/, with {operators}" if settings.secret_key else ""
    body = {"to": NUMBER, "message": "Hello from the service"[: settings.max_message_length]}
    return f"""
The service runs. {public}/docs describes it and lets you try requests.{desk}
{reach(host)}
{note(settings)}

export API_KEY=$(cat .first-key)

Send a first text, to a number that nobody has:

curl {address}/v1/text-messages \\
  -H 'X-Api-Key: {key}' \\
  -H 'Content-Type: application/json' \\
  -d '{json.dumps(body)}'

Ctrl-C stops it.
"""


def reach(host: str) -> str:
    """Return who can reach the service, and how long its first keys are valid."""
    keys = f"Its keys are valid for {KEYS_LAST.days} days;"
    keys += " `.venv/bin/flask keys list` shows them as first and desk"
    if ipaddress.ip_address(host).is_loopback:
        wider = "HOST=0.0.0.0 make run makes it reachable from your network"
        return f"It listens on this machine only: {wider}. {keys}"
    return f"It listens on {host}, without https: everybody in this network can reach it. {keys}"


def note(settings: Settings) -> str:
    """Return what to expect of the request."""
    if settings.allowed_countries and "US" not in settings.allowed_countries:
        return "ALLOWED_COUNTRIES refuses the number below: put in one of yours."
    carrier = (settings.carrier_url or "").partition(":")[0].partition("+")[0].lower()
    if not carrier:
        return "No carrier is set: texts wait. CARRIER_URL=console: in .env prints them here."
    go = "Texts appear here" if carrier == "console" else f"Texts go through {carrier}"
    if settings.business_hours == ALWAYS:
        return f"""{go} within seconds, at any hour: .env says {OPEN}.
Without that line, they go from 9 to 5 by the recipient's clock."""
    return f"""{go} within seconds in business hours, by the recipient's clock;
outside them, they wait."""


if __name__ == "__main__":
    sys.exit(main())
