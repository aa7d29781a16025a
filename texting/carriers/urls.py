"""Read the URLs of carriers."""

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

SHORT = r"\d{3,8}|(?=.*[A-Za-z])[\w &+-]{1,11}"  # a FROM that is a short code or a name

NO_URL = (
    "not the URL of a carrier: console:, simulator:, twilio://… or another, "
    "in which a space is written %20"
)


def scheme(url: str) -> str:
    """Return the scheme of a carrier's URL; raise ValueError if it is not a URL.

    The error repeats no part of it.
    """
    match = re.fullmatch("([a-z0-9][a-z0-9+]*):(//.*)?", url, re.IGNORECASE | re.DOTALL)
    if not match:
        raise ValueError(NO_URL)
    return match[1]


class Account(NamedTuple):
    """What a carrier's URL says."""

    login: tuple[str, ...]
    place: str  # FROM, or HOST/FROM
    options: dict[str, str | None]


def account(url: str, options: Mapping[str, str | None], login: str = "USER:PASSWORD") -> Account:
    """Return the parts of `SCHEME://USER:PASSWORD@PLACE?OPTIONS`, or of `SCHEME://KEY@PLACE`.

    `login` names what precedes the @: one word or several. Each part may be percent-encoded. A
    `/{to}` at the end of the place is ignored. `options` are all possible options and their
    defaults. Raise ValueError if a part is missing or an option is unknown.
    """
    scheme, _, rest = url.partition(":")
    scheme = scheme.lower()
    parts, _, query = rest.removeprefix("//").partition("?")
    credentials, _, place = parts.rpartition("@")
    names = login.split(":")
    words = tuple(map(unquote, credentials.split(":", len(names) - 1)))
    if len(words) < len(names) or not all(words):
        raise ValueError(f"{scheme}://{login}@… lacks the {' or the '.join(names)}")
    given = dict(parse_qsl(query, keep_blank_values=True))
    if given.keys() - options:
        raise ValueError(f"{scheme}://… takes no option but {', '.join(sorted(options))}")
    if any(value == "" and options[name] != "" for name, value in given.items()):
        raise ValueError(f"an option of {scheme}://… is empty")
    return Account(words, unquote(place.removesuffix("/{to}")), {**options, **given})


def split(address: str) -> SplitResult | None:
    """Return the parts of an address, or None if its host or port cannot be used."""
    try:
        parts = urlsplit(address)
        return parts if parts.hostname and parts.port != 0 else None
    except ValueError:
        return None


def is_address(text: str) -> bool:
    """Return whether a text is a usable `http://` or `https://` address."""
    parts = split(text) if text.isprintable() and " " not in text else None
    return parts is not None and parts.scheme in ("http", "https") and not parts.fragment


def masked(address: str) -> str:
    """Return an address for display, without user, password and the values of its query.

    A slash in a password may be unencoded, so what precedes an @ in the path is left out.
    """
    parts = urlsplit(address)
    _, login, place = (parts.netloc + parts.path).rpartition("@")
    query = "&".join(map(_masked, parts.query.split("&")))
    return parts._replace(netloc=f"{login and '***@'}{place}", path="", query=query).geturl()


def _masked(option):
    name, equals, _ = option.partition("=")
    if equals:
        return f"{name}=***"
    return option and "***"  # a lone token has no name


def base(url: str) -> SplitResult:
    """Return the parts of an address that can be extended by paths; raise ValueError if invalid."""
    parts = split(url)
    usable = parts and parts.scheme in ("http", "https") and parts.username is None
    if not usable or parts.query or parts.fragment:
        raise ValueError("base_url must be an http:// or https:// address")
    return parts
