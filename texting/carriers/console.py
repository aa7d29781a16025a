"""The carrier `console:`, which prints texts."""

import sys
import threading

from texting.carriers import Carrier, CarrierError, Outgoing


class Console(Carrier):
    """Print each text on a line of standard output, for a first try.

    Nothing else prints numbers and texts. Unprintable characters are escaped, so that no text can
    imitate another line or control a terminal.
    """

    title = "the console"

    def __init__(self, url: str, *_: object):
        super().__init__(url)
        self._lock = threading.Lock()
        if not sys.stdout.isatty():
            self.warning = "console: prints texts here and sends nothing"

    def send(self, outgoing: Outgoing) -> None:
        encoding = sys.stdout.encoding or "utf-8"
        line = f"{outgoing.to} {outgoing.text!r}\n"
        line = line.encode(encoding, "backslashreplace").decode(encoding)
        try:
            with self._lock:
                sys.stdout.write(line)
                sys.stdout.flush()
        except (OSError, ValueError):  # a closed pipe, a full disk, a closed file
            raise CarrierError("standard output cannot be written to") from None
