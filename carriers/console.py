"""The carrier `console:`: standard output, for a first try."""

import sys
import threading

from carriers import Carrier, CarrierError


class Console(Carrier):
    """Write each text to standard output, a line each: for a first try.

    The one place where numbers and texts are shown. What is not printable is escaped, so that no
    text can pass for another line or steer a terminal.
    """

    name = "console"

    def __init__(self):
        self._lock = threading.Lock()
        if not sys.stdout.isatty():
            self.warning = "console: sends nothing, it prints texts here"

    def send(self, to: str, text: str, **_: object) -> None:
        encoding = sys.stdout.encoding or "utf-8"
        line = f"{to} {text!r}\n".encode(encoding, "backslashreplace").decode(encoding)
        try:
            with self._lock:
                sys.stdout.write(line)
                sys.stdout.flush()
        except (OSError, ValueError):  # a closed pipe, a full disk, a closed file
            raise CarrierError("standard output cannot be written to") from None
