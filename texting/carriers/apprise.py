"""Apprise, for carriers without a module in this package."""

import importlib
import logging
import re
from contextvars import ContextVar
from urllib.parse import parse_qsl, quote, unquote

import apprise

from texting.carriers import CONNECT_TIMEOUT, Carrier, CarrierError, Codes, Fault, Outgoing, mute

# Plugins report only the HTTP status. 400 and 422 can be about the account or about the text, so
# they are temporary: one more retry does no harm.
CODES = Codes(permanent={413}, account={401, 402, 403}, too_fast={429})
NO_ANSWER = "Socket Exception"  # prefix of a plugin's DEBUG line about an exception of requests
# Exceptions of urllib3 in such a line which are certain to mean that no connection was made.
UNREACHED = r"NewConnectionError|NameResolutionError|ConnectTimeoutError|CERTIFICATE_VERIFY_FAILED"
GATEWAY = {502, 503, 504}  # more often a gateway's word than the carrier's
UNANSWERED = {502, 504}  # a gateway got no answer from the carrier


_said: ContextVar[list[str]] = ContextVar("said")  # what Apprise logged about this thread's text


def _listen(record: logging.LogRecord) -> bool:
    """Keep Apprise's records out of the log, because they contain numbers; note its warnings."""
    if record.levelno >= logging.WARNING or str(record.msg).startswith(NO_ANSWER):
        _said.get([]).append(record.getMessage())
    return False


def keep_from_log() -> None:
    """Keep everything that Apprise says out of the log."""
    mute("urllib3", "requests")
    logging.getLogger("apprise").setLevel(logging.DEBUG)
    logging.getLogger("apprise").addFilter(_listen)


class Apprise(Carrier):
    """Send through any of Apprise's plugins, by its URL with `{to}` for the number.

    Each text gets a new instance of the plugin, because Apprise throttles per instance. The plugin
    gets the text directly: Apprise.notify() would strip trailing white space and send only a few
    texts at once. Each text uses a new connection by requests: 300 texts a second in the clear,
    some 30 with TLS. Proxies from the environment are used. Timeouts are the socket's, so a carrier
    that drips its answer can prolong them.
    """

    title = "Apprise"
    codes = CODES

    def __init__(self, url: str, concurrency: int, timeout: float, *_: object):
        super().__init__(url)
        keep_from_log()
        self._url, self._scheme = url, self.name
        self._timeout = timeout
        self._asset = apprise.AppriseAsset(http_redirects=False)
        _said.set(said := [])
        try:
            plugin = self._plugin("+12125550100")
        except Exception as problem:  # plugins leak their libraries' exceptions
            raise ValueError(self._safe(f"cannot be used: {problem}")) from None
        if plugin is None:
            if any("disabled on this system" in line for line in said):
                raise ValueError(f"{self._scheme}:// needs a package that is not installed")
            raise ValueError(f"Apprise has no carrier for this {self._scheme}:// URL")
        if plugin.resolve_format("text") != "text":
            raise ValueError(f"{self._scheme}:// does not take plain text")
        if not _texts_only(plugin, "+12125550100"):
            raise ValueError(f"{self._scheme}:// would not text {{to}}, or not {{to}} alone")
        self.warning = (
            f"{self._scheme}:// goes through Apprise: many plugins look at the HTTP status alone, "
            "so a text can count as sent although the carrier's answer refuses it"
        )

    def load(self) -> None:
        for module in ("encodings.idna", "netrc"):  # which socket and requests import late
            importlib.import_module(module)

    def send(self, outgoing: Outgoing) -> str | None:
        _said.set(said := [])
        try:
            plugin = self._plugin(outgoing.to)
        except Exception:  # the plugin accepted the URL with another number
            plugin = None
        # Plugins drop numbers that seem too short to them; some then text their own sender.
        if plugin is None or not _texts_only(plugin, outgoing.to):
            raise CarrierError(f"{self._scheme}:// does not take this number", Fault.PERMANENT)
        in_doubt = False
        try:
            if plugin.send(
                body=outgoing.text,
                title="",
                notify_type=apprise.NotifyType.INFO,
                body_format=apprise.NotifyFormat.TEXT,
            ):
                return None
        except Exception as problem:  # possibly while it was reading an acceptance
            in_doubt = True
            said.append(f"{type(problem).__name__}: {problem}")
        # requests says "Max retries exceeded" only if no connection was made.
        failed = [line for line in said if line.startswith(NO_ANSWER)]
        in_doubt |= any("Max retries exceeded" not in line for line in failed)
        unreached = bool(failed) and all(re.search(UNREACHED, line) for line in failed)
        said = " ".join(line for line in said if line not in failed)
        status = re.search(r"error=(\d{3})\b", said)
        status = None if in_doubt or not status else int(status[1])
        in_doubt |= status in UNANSWERED
        reason = self._safe(said or "gave no reason", outgoing.text)
        silent = in_doubt or bool(failed) or status in GATEWAY
        facts = {"silent": silent, "unreached": unreached and not in_doubt}
        raise self.codes.error(reason, status, in_doubt=in_doubt, **facts)

    def _plugin(self, to):
        """Return a plugin for `to`, or None; let the plugin's exceptions through."""
        url = self._url.replace("{to}", quote(to, safe=""))
        plugin = apprise.Apprise.instantiate(url, self._asset, suppress_exceptions=False)
        if plugin is not None:
            plugin.socket_connect_timeout = min(CONNECT_TIMEOUT, self._timeout)
            plugin.socket_read_timeout = self._timeout
        return plugin

    def _safe(self, said, text=""):
        """Return one line of Apprise's words without the text, numbers and parts of the URL."""
        place, _, query = self._url.partition("://")[2].partition("?")
        parts = [*re.split("[/:@]", place), *(value for _, value in parse_qsl(query))]
        secrets = {text, *parts, *map(unquote, parts)} - {"", "{to}"}
        longest_first = sorted(map(re.escape, secrets), key=len, reverse=True)
        number = r"\+?\d(?:[\s().-]{0,2}\d){6,}"
        private = "|".join([*(rf"(?<!\w){secret}(?!\w)" for secret in longest_first), number])
        said = re.sub(private, "***", said)
        return f"{self._scheme}:// {' '.join(said.split())[:300]}"


def _texts_only(plugin, to):
    """Return whether `to` is the only recipient of `plugin`."""
    targets = getattr(plugin, "targets", None)
    return to[1:] in unquote(plugin.url()) and (targets is None or len(targets) == 1)
