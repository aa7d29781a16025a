"""Apprise, for the carriers that have no module of their own here."""

import contextlib
import logging
import re
import threading
from collections.abc import Iterator
from urllib.parse import parse_qsl, quote, unquote

import apprise

from carriers import CONNECT_TIMEOUT, Carrier, CarrierError, silence

# A plugin tells of the HTTP status alone. 400 and 422 are about the account as often as about the
# text, so they are for now: a retry more does no harm.
FOR_GOOD = {413}
ACCOUNT = {401, 402, 403}


class Apprise(Carrier):
    """Any carrier that Apprise knows: a URL of Apprise's with `{to}` where the number belongs.

    Each text gets an instance of the plugin of its own, so Apprise throttles none. The plugin is
    handed the text directly: Apprise.notify() would cut trailing white space off and have no more
    than a few texts under way at once. Each text has a connection of its own, as requests makes
    it: 300 texts a second in the clear, some 30 with TLS. Proxies that the environment names are
    used. Time-outs are the socket's: a carrier that drips its answer can prolong them.
    """

    def __init__(self, url: str, concurrency: int, timeout: float):
        silence("urllib3", "requests")
        logging.getLogger("apprise").setLevel(logging.DEBUG)
        logging.getLogger("apprise").addFilter(_apprise_log)
        self._url = url
        self._timeout = timeout
        self.name = url.partition(":")[0].lower()
        self._asset = apprise.AppriseAsset(http_redirects=False)
        self._how = {
            "title": "",
            "notify_type": apprise.NotifyType.INFO,
            "body_format": apprise.NotifyFormat.TEXT,
        }
        with _apprise_log.listening() as said:
            try:
                plugin = self._plugin("+12125550100")
            except Exception as problem:  # plugins let out whatever their libraries raise
                raise ValueError(self._words(f"cannot be used: {problem}")) from None
        if plugin is None:
            if any("disabled on this system" in line for line in said):
                raise ValueError(f"{self.name}:// needs a package that is not installed")
            raise ValueError(f"Apprise has no carrier for this {self.name}:// URL")
        if plugin.resolve_format("text") != "text":
            raise ValueError(f"{self.name}:// takes no plain text")
        if not _texts_only(plugin, "+12125550100"):
            raise ValueError(f"{self.name}:// does not text {{to}} alone where it stands")
        self.warning = (
            f"{self.name}:// goes through Apprise: many plugins look at the HTTP status alone, "
            "so a text can count as sent although the carrier's answer refuses it"
        )

    def send(self, to: str, text: str, *, message_id: str, valid_for: int) -> str | None:
        with _apprise_log.listening() as said:
            try:
                plugin = self._plugin(to)
            except Exception:  # the URL was good for another number
                plugin = None
            # A plugin drops a number that it holds too short, and some then text their own sender.
            if plugin is None or not _texts_only(plugin, to):
                raise CarrierError(f"{self.name}:// takes no such number", permanent=True)
            in_doubt = False
            try:
                if plugin.send(body=text, **self._how):
                    return None
            except Exception as problem:  # perhaps while it read the carrier's yes
                in_doubt = True
                said.append(f"{type(problem).__name__}: {problem}")
        # requests says "Max retries exceeded" of a connection that was not made, and only of that.
        failed = [line for line in said if line.startswith(NO_ANSWER)]
        in_doubt |= any("Max retries exceeded" not in line for line in failed)
        said = " ".join(line for line in said if line not in failed)
        status = re.search(r"error=(\d{3})\b", said)
        status = None if in_doubt or not status else int(status[1])
        raise CarrierError(
            self._words(said or "gave no reason", text),
            permanent=status in FOR_GOOD,
            account=status in ACCOUNT,
            too_fast=status == 429,
            in_doubt=in_doubt,
        )

    def _plugin(self, to):
        """Return a plugin that texts `to`, or None; raise what the plugin raises."""
        url = self._url.replace("{to}", quote(to, safe=""))
        plugin = apprise.Apprise.instantiate(url, self._asset, suppress_exceptions=False)
        if plugin is not None:
            plugin.socket_connect_timeout = min(CONNECT_TIMEOUT, self._timeout)
            plugin.socket_read_timeout = self._timeout
        return plugin

    def _words(self, said, text=""):
        """Return what Apprise said, in one line, without the text, numbers or parts of the URL."""
        place, _, query = self._url.partition("://")[2].partition("?")
        parts = [*re.split("[/:@]", place), *(value for _, value in parse_qsl(query))]
        secrets = {text, *parts, *map(unquote, parts)} - {"", "{to}"}
        longest_first = sorted(map(re.escape, secrets), key=len, reverse=True)
        number = r"\+?\d(?:[\s().-]{0,2}\d){6,}"
        private = "|".join([*(rf"(?<!\w){secret}(?!\w)" for secret in longest_first), number])
        said = re.sub(private, "***", said)
        return f"{self.name}:// {' '.join(said.split())[:300]}"


def _texts_only(plugin, to):
    """Say whether `to`, and nothing else, is the recipient of `plugin`."""
    targets = getattr(plugin, "targets", None)
    return to[1:] in unquote(plugin.url()) and (targets is None or len(targets) == 1)


NO_ANSWER = "Socket Exception"  # how plugins begin to tell, at DEBUG, what requests raised


class _Listener(logging.Filter):
    """Pass what a library logs to the thread that listens alone, since numbers are in it."""

    def __init__(self):
        super().__init__()
        self._thread = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        wanted = record.levelno >= logging.WARNING or str(record.msg).startswith(NO_ANSWER)
        if wanted and hasattr(self._thread, "said"):
            self._thread.said.append(record.getMessage())
        return False

    @contextlib.contextmanager
    def listening(self) -> Iterator[list[str]]:
        """Collect what the library warns of in this thread."""
        self._thread.said = []
        try:
            yield self._thread.said
        finally:
            del self._thread.said


_apprise_log = _Listener()
