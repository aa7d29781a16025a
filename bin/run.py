"""What `make run` does: tables, a first API key, web and scheduler, and a curl line that works."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import recipients  # noqa: E402
import settings as environment  # noqa: E402
from hours import BusinessHours  # noqa: E402
from models import clock  # noqa: E402

FIRST_KEY = ROOT / ".first-key"
TOOLS = Path(sys.executable).parent


def main():
    os.chdir(ROOT)
    if not os.access(ROOT, os.W_OK):
        sys.exit(f"cannot write to {ROOT}")
    if not Path(".env").exists():
        shutil.copy(".env.example", ".env")
    try:
        environment.load()
    except environment.SettingsError as problems:
        sys.exit(str(problems))
    port = os.environ.setdefault("PORT", "8000")
    check(port)
    os.environ["PATH"] = f"{TOOLS}:{os.environ['PATH']}"
    if upgrade := subprocess.run(["flask", "db", "upgrade"]).returncode:
        sys.exit(upgrade)
    threading.Thread(target=welcome, args=(f"http://localhost:{port}",), daemon=True).start()
    # honcho would let .env win over the environment; what it says is in the environment by now
    honcho = ["honcho", "start", "--env", os.devnull, "--port", port, "web", "scheduler"]
    processes = subprocess.Popen(honcho)
    signal.signal(signal.SIGTERM, lambda *_: processes.terminate())
    while True:
        try:
            sys.exit(processes.wait())
        except KeyboardInterrupt:  # the terminal has sent it to honcho as well
            continue


def check(port):
    """Stop with a clear line where the port cannot be used."""
    try:
        if not re.fullmatch("0*[1-9][0-9]*", port):
            raise ValueError("a port is a number from 1 to 65535")
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("", int(port)))
    except (OSError, ValueError, OverflowError) as error:
        sys.exit(f"port {port} cannot be used ({error}); PORT=8001 make run uses another")


# Numbers that are kept for fiction, around the world: mostly, it is business hours at one of them
NUMBERS = ("+12125550123", "+442079460958", "+61255501234", "+18085550123")


def number_to_try():
    """A number whose text goes now, so that a newcomer sees it go, and a note where none does."""
    options = environment.load()
    hours = BusinessHours.from_settings(options)
    for number in NUMBERS:
        if recipients.within_business_hours(recipients.find(number), clock(), hours):
            return number, "its number is nobody's; it appears here within seconds"
    return NUMBERS[0], "its number is nobody's; the answer says when it goes"


def welcome(base):
    """Wait until the service answers, then print a request to try."""
    for _ in range(300):
        if status(f"{base}/healthz") == 200:
            break
        time.sleep(0.1)
    else:
        print("the service does not answer; its output says why", file=sys.stderr)
        return
    path = f"{base}/v1/text-messages"
    key = FIRST_KEY.read_text().strip() if FIRST_KEY.exists() else ""
    if not key or status(path, key) == 401:  # a new database, or the key was revoked
        name = f"first-{time.strftime('%Y%m%d-%H%M%S')}"
        created = subprocess.run(
            ["flask", "keys", "create", name], stdout=subprocess.PIPE, text=True
        )
        if created.returncode:  # it has said why; or it was stopped by Ctrl-C, like all of us
            return
        key = created.stdout.strip()
        FIRST_KEY.touch(0o600)
        FIRST_KEY.write_text(f"{key}\n")
    number, note = number_to_try()
    print(
        f"""
The service runs. Send a first text ({note}):

curl {path} -H 'X-Api-Key: {key}' -H 'Content-Type: application/json' \\
  -d '{{"to": "{number}", "message": "Hello from the service"}}'

Ctrl-C stops it.
""",
        flush=True,
    )


def status(url, key=None):
    """The status of a GET, or of an empty POST with a key; None where nobody answers."""
    request = urllib.request.Request(url, headers={"X-Api-Key": key} if key else {})
    request.data = b"" if key else None
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


if __name__ == "__main__":
    main()
