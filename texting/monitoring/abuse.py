"""Refusals to keys that ask for too much: a log line and a metric."""

import logging
import time

from texting.monitoring import metrics

WORDS = {
    "key_limit": "a limit of the key is reached",
    "recipient_limit": "the limit of a recipient is reached",
    "premium_rate": "the number is premium-rate, personal or a satellite's",
}
EVERY = 60  # seconds between log lines for a key and a reason: a flood must not fill the disk

log = logging.getLogger("web")


class Abuse:
    """Log and count refusals by key name and reason, without numbers."""

    def __init__(self):
        self._lines = {}  # by key and reason: when the latest was written, and the refusals since

    def note(self, key: str, reason: str) -> None:
        """Count a refusal; log it unless there was such a line in the last EVERY seconds."""
        metrics.REFUSALS.labels(key, reason).inc()
        now = time.monotonic()
        written_at, refusals = self._lines.get((key, reason), (-EVERY, 0))
        refusals += 1
        if now - written_at >= EVERY:
            line = "refused: key %s, %s, %d since the last line"
            log.warning(line, key, WORDS[reason], refusals, extra={"key": key})
            written_at, refusals = now, 0
        self._lines[key, reason] = written_at, refusals
