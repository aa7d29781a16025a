"""Apprise, for the carriers that have no module of their own here."""

import contextlib
import logging
import re
import threading
from urllib.parse import parse_qsl, quote, unquote

from carriers import CONNECT_TIMEOUT, Carrier, CarrierError, silence

HTTP_FOR_GOOD = {400, 413, 422}  # about this text; 401, 403 and 404 are about the settings


class Apprise(Carrier):
    """Any carrier that Apprise knows: a URL of Apprise's with `{to}` where the number belongs.

    Each text gets an instance of the plugin of its own, so Apprise throttles none. The plugin is
    handed the text directly: Apprise.notify() would cut trailing white space off and have no more
    than a few texts under way at once. A yes is the plugin's: some, Vonage's among them, do not
    look at what the carrier answers. Proxies that the environment names are used.
    """

    def __init__(self, url, concurrency, timeout):
        import apprise

        _keep_connections(concurrency)
        silence("urllib3", "requests", "smpp", "smpplib")
        logging.getLogger("apprise").setLevel(logging.WARNING)
        logging.getLogger("apprise").addFilter(_apprise_log)
        self._url = url
        self._timeout = timeout
        self._name = f"{url.partition(':')[0].lower()}://"
        self._instantiate = apprise.Apprise.instantiate
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
                raise ValueError(f"{self._name} needs a package that is not installed")
            raise ValueError(f"no carrier takes this {self._name} URL")
        if plugin.resolve_format("text") != "text":
            raise ValueError(f"{self._name} takes no plain text")
        if not _texts_only(plugin, "+12125550100"):
            raise ValueError(f"{self._name} does not text {{to}} alone where it stands")

    def send(self, to, text, **_):
        with _apprise_log.listening() as said:
            try:
                plugin = self._plugin(to)
            except Exception:  # the URL was good for another number
                plugin = None
            # A plugin drops a number that it holds too short, and some then text their own sender.
            if plugin is None or not _texts_only(plugin, to):
                raise CarrierError(f"{self._name} takes no such number", permanent=True)
            try:
                if plugin.send(body=text, **self._how):
                    return
            except Exception as problem:
                said.append(f"{type(problem).__name__}: {problem}")
        said = " ".join(said)
        status = re.search(r"error=(\d{3})\b", said)
        status = status and int(status[1])
        raise CarrierError(
            self._words(said or "gave no reason", text),
            permanent=status in HTTP_FOR_GOOD,
            too_fast=status == 429,
        )

    def _plugin(self, to):
        """Return a plugin that texts `to`, or None; raise what the plugin raises."""
        url = self._url.replace("{to}", quote(to, safe=""))
        plugin = self._instantiate(url, self._asset, suppress_exceptions=False)
        if plugin is not None:
            plugin.socket_connect_timeout = CONNECT_TIMEOUT
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
        return f"{self._name} {' '.join(said.split())[:300]}"


def _texts_only(plugin, to):
    """Say whether `plugin` has kept `to`, and nobody else, as its recipient."""
    targets = getattr(plugin, "targets", None)
    return to[1:] in unquote(plugin.url()) and (targets is None or len(targets) == 1)


class _Listener(logging.Filter):
    """Keep what a library logs from everybody but a thread that listens: numbers are in it."""

    def __init__(self):
        super().__init__()
        self._thread = threading.local()

    def filter(self, record):
        if hasattr(self._thread, "said"):
            self._thread.said.append(record.getMessage())
        return False

    @contextlib.contextmanager
    def listening(self):
        """Collect what the library warns of in this thread."""
        self._thread.said = []
        try:
            yield self._thread.said
        finally:
            del self._thread.said


_apprise_log = _Listener()


def _keep_connections(concurrency):
    """Let requests, which most plugins of Apprise's call, keep its connections.

    It would open one for each text and read a hundred certificates anew for each: 35 ms of CPU.
    """
    import requests

    adapter = requests.adapters.HTTPAdapter(pool_maxsize=concurrency)

    class Session(requests.Session):
        def __init__(self):
            super().__init__()
            self.mount("https://", adapter)
            self.mount("http://", adapter)

        def close(self):
            """Leave the connections to the next text."""

    requests.sessions.Session = Session  # what requests.post() and its like make
