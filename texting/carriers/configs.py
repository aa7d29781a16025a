"""Read CARRIER_URL: one or more carriers in the order of preference, and the use of each.

What follows the `#` of a URL is for this service:
`#name=us&countries=US,CA&keys=shop&rate=10/s`.
"""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote

from texting.carriers import Carrier, connect, urls
from texting.carriers.opt_outs import REGIONS

COUNTRIES = {*REGIONS, "001"}
PLACEHOLDERS = {
    *("ACCOUNT_SID", "AUTH_TOKEN", "SID", "TOKEN", "API_KEY", "KEY", "KEY_ID", "SECRET"),
    *("USER", "PASSWORD", "HOST", "FROM", "SIGNING_KEY", "BASE64", "UUID"),
}
"""What the pages write in a CARRIER_URL for what an operator has to fill in."""
USUAL_PLACEHOLDER = re.compile(
    r"…|(?-i:x{5,}|X{5,})|<[A-Za-z _-]+>"
    r"|\byour[_-](?:account|api|auth|key|password|secret|sid|token|user)",
    re.IGNORECASE,
)
"""What vendors' pages and other people write for it."""


class CarrierConfig(NamedTuple):
    """A carrier of CARRIER_URL, and the messages that it may be used for."""

    name: str
    url: str = ""  # without the `#` and what follows it
    countries: frozenset[str] | None = None  # None: all
    keys: frozenset[str] | None = None  # names of keys; None: all
    rate: float | None = None  # parts a second; None: SEND_RATE

    def may_serve(self, country: str | None, key: str) -> bool:
        """Return whether it may be used for texts of a key to a country."""
        of_country = self.countries is None or country in self.countries
        return of_country and (self.keys is None or key in self.keys)

    def shares_with(self, other: "CarrierConfig") -> bool:
        """Return whether there are texts for which both may be used."""
        pairs = (self.countries, other.countries), (self.keys, other.keys)
        return all(one is None or two is None or one & two for one, two in pairs)


@lru_cache
def parse(text: str) -> tuple[CarrierConfig, ...]:
    """Return the carriers that a CARRIER_URL names.

    Raise ValueError with one line for each problem; none repeats a value, which may be a password.
    """
    configs, problems = [], []
    words = text.split()
    for number, word in enumerate(words, 1):
        place = f"carrier {number}: " if len(words) > 1 else ""
        try:
            config, found = _read(word)
        except ValueError as problem:
            problems.append(f"{place}{problem}")
            continue
        configs.append(config)
        problems += [f"{place}{problem}" for problem in found]
    problems += _problems_of_names(configs)
    if problems:
        raise ValueError("\n".join(problems))
    return tuple(configs)


@lru_cache
def telling_receipts(text: str, public_url: str | None) -> frozenset[str]:
    """Return the names of the carriers of a CARRIER_URL that report whether texts arrived."""
    carriers = connect_all(parse(text), public_url=public_url, sending=False)
    return frozenset(each.name for each in carriers if each.tells_receipts)


def _problems_of_names(configs):
    """Return a problem for each name that several carriers have."""
    return [
        f"{times} carriers are called {name}: #name= tells them apart"
        for name, times in Counter(config.name for config in configs).items()
        if times > 1
    ]


def _read(word):
    """Return the carrier of one URL, and the problems of what follows its `#`.

    Raise ValueError for a word that is no URL.
    """
    url, mark, rest = word.partition("#")
    usual = default_name(url)
    left = PLACEHOLDERS & {*re.split("[:/@?&=]", url)} or {*USUAL_PLACEHOLDER.findall(url)}
    if left:
        raise ValueError(f"still has {min(left)} in it, which stands for your own")
    pairs = [option.partition("=")[::2] for option in rest.split("&")] if mark else []
    readers = {"name": _name, "countries": _countries, "keys": _list, "rate": rate}
    if any(name not in readers for name, _ in pairs):
        problem = f"after # it takes only {', '.join(readers)}"
        return CarrierConfig(usual, url), [problem]
    options, problems, found = dict(pairs), [], {}
    if len(options) < len(pairs):
        problems.append("an option after # is repeated")
    for name, read in readers.items():
        if name in options:
            try:
                found[name] = read(options[name])
            except ValueError as problem:
                problems.append(f"{name} after # {problem}")
    return CarrierConfig(**{"name": usual, "url": url} | found), problems


def default_name(url: str) -> str:
    """Return the name of a carrier that CARRIER_URL does not name: its scheme."""
    scheme = urls.scheme(url).lower()
    return {"nexmo": "vonage"}.get(scheme, scheme.partition("+")[0])


def _name(text):
    if not re.fullmatch("[A-Za-z0-9-]{1,64}", text):
        raise ValueError("must be letters, digits and hyphens")
    return text


def _list(text):
    values = [unquote(each) for each in text.split(",")]
    if not all(value.strip() for value in values):
        raise ValueError("must not be empty, nor have an empty entry")
    return frozenset(values)


def _countries(text):
    codes = _list(text)
    if codes - COUNTRIES:
        raise ValueError("must be ISO 3166 codes of countries, in capitals, like US,CA")
    return codes


def rate(text: str) -> float:
    """Return the parts a second that `10/s` or `600/min` means."""
    match = re.fullmatch(r"([1-9]\d{0,5})/(s|min)", text.strip(), re.ASCII)
    if not match:
        raise ValueError(
            "must be parts per second or minute, from 1 to 999999, like 10/s or 600/min"
        )
    return int(match[1]) / {"s": 1, "min": 60}[match[2]]


def connect_all(
    configs: Sequence[CarrierConfig],
    concurrency: int = 8,
    timeout: float = 60,
    public_url: str | None = None,
    *,
    sending: bool = True,
) -> list[Carrier]:
    """Return the carriers in order; raise ValueError with one line for each problem."""
    found, problems = [], []
    for number, config in enumerate(configs, 1):
        try:
            found.append(
                connect(
                    config.url, concurrency, timeout, public_url, name=config.name, sending=sending
                )
            )
        except ValueError as problem:
            problems.append(f"carrier {number}: {problem}" if len(configs) > 1 else str(problem))
    if problems:
        raise ValueError("\n".join(problems))
    return found
