"""One file a carrier: all that the tests which carriers share need to know of it.

NAME is that of the carrier's module, and the file's KIT is a Kit. Each kit with a server has a
fixture `NAME_server`. What only one carrier does is tested in `test_NAME.py`.

There are no assertions to rewrite: PYTEST_DONT_REWRITE lets tests import the kits as well.
"""

import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module

import pytest
from hypothesis.strategies import SearchStrategy

from app import create_app
from carrier_servers import Answer, CarrierServer, served
from texting import carriers
from texting.carriers import Callback, Carrier, IncomingText, OptOut
from texting.carriers.http import STATUSES, HttpCarrier

PUBLIC_URL = "https://sms.example.com/staging"
NUMBER = "+12125550123"
REFERENCE = "SM" + "1" * 32
FORM = "application/x-www-form-urlencoded"


class Callbacks:
    """A carrier's callbacks, signed by its own library, or else by code that shares none of ours.

    `sign` is the only signer: `report` and `reply` call it, and hand further arguments on to it.
    """

    url: str  # a CARRIER_URL that verifies them, with `from_`
    from_: str  # FROM, as a callback names it
    another_secret: object = "another"  # one of the right form, with which it does not sign
    covers_body = True  # whether the signature does; a password does not
    unverified: Collection[str] = ()  # CARRIER_URLs that cannot verify what this carrier signs
    # What `sign` may be given: all fields that the carrier could sign
    fields: SearchStrategy[dict]
    # The statuses of reports, each with a code or "", and what it says: "delivered", None if it is
    # not the last word, or else why the text was not delivered
    statuses: Collection[tuple[str, str, str | None]]
    no_numbers: Collection[str] = ("12345", "ACME", "")  # senders of replies that are no numbers

    def sign(
        self, fields: dict, kind: str = "status", *, secret: object = None, address: str = ""
    ) -> Callback:
        """Return a genuine callback with these fields, made now.

        `address` is that of the callback, if it is not the one below PUBLIC_URL with the carrier's
        usual name. The signature is by `secret`, if it is not that of the URL.
        """
        raise NotImplementedError

    def change(self, callback: Callback, fields: dict) -> Callback:
        """Return a genuine callback with other fields, under the signature that it has.

        Not needed if the signature does not cover the body.
        """
        raise NotImplementedError

    def report(
        self, status: str, code: str = "", *, message_id: str | None = None, **signed: object
    ) -> Callback:
        """Return a report on the text with REFERENCE to NUMBER, which was sent from `from_`.

        `message_id` is the id that the text was given with; without it the report names none.
        """
        raise NotImplementedError

    def reference(self, message_id: str) -> str:
        """Return the reference in a report on a message: its id, if that is the carrier's, too."""
        return REFERENCE

    def reply(
        self, text: str, number: str = NUMBER, to: str | None = None, **signed: object
    ) -> Callback:
        """Return a reply to `to`, or else to `from_`."""
        raise NotImplementedError

    def forgeries(self) -> Iterable[Callback]:
        """Return callbacks that look like this carrier's and are not genuine."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Kit:
    """What the shared tests need to know of a carrier beside what its class says."""

    url: str  # a CARRIER_URL that can be used, with the secret `s3cret`; nothing is sent to it
    # What makes a URL invalid, separated by white space, by the URL's beginning. Empty options, and
    # addresses that `base_url` does not take, need not be named
    bad_urls: Mapping[str, str]
    # Plays the carrier; its `url` is a CARRIER_URL of it, with the secret `s3cret` if it has one
    server: Callable[[], CarrierServer] | None = None
    # The answer with one of the class's codes, or with an HTTP status
    answer: Callable[[int | str], object] = Answer
    # Whether only the carrier's own JSON is an answer: if it is not, the HTTP status counts
    needs_json: bool = False
    for_now: Collection[int | str] = ()  # codes that are in no group
    in_doubt: Collection[int | str] = ()  # codes that leave a text in doubt
    callbacks: Callbacks | None = None


def codes_of(name: str, group: str) -> set[int | str]:
    """Return a carrier's codes of one meaning, and its statuses of HTTP; names are words."""
    codes = {
        int(each) if str(each).isdigit() else each for each in getattr(CLASSES[name].codes, group)
    }
    return codes | {*(getattr(STATUSES, group) if KITS[name].needs_json else ())}


def found() -> dict[str, Kit]:
    """Return all kits by the names of their files."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: import_module(f"kits.{name}").KIT for name in names}


def missing() -> list[str]:
    """Return the files that carriers lack."""
    return [f"tests/support/kits/{name}.py is missing" for name in sorted({*CLASSES} - {*KITS})]


def connected(name: str, options: str = "") -> Carrier:
    """Return a carrier that only reads callbacks."""
    url = KITS[name].callbacks.url + options
    return carriers.connect(url, public_url=PUBLIC_URL, sending=False)


def unidentified(carrier: Carrier, callback: Callback) -> list:
    """Return what a callback says, without what identifies it."""
    events = carrier.callback(callback)
    return [
        e._replace(message_ids=()) if isinstance(e, OptOut | IncomingText) else e for e in events
    ]


def asked(callback: Callback) -> dict:
    """Return a callback as arguments of werkzeug's `open`."""
    path, _, query = callback.url.removeprefix(PUBLIC_URL).partition("?")
    return {
        "path": path,
        "method": callback.method,
        "query_string": query,
        "data": callback.body,
        "headers": callback.headers,
    }


@pytest.fixture
def open_client(settings):
    """A client of the application for a carrier: `open_client(TWILIO, check_dnc="always")`."""

    def make(carrier_url, public_url=PUBLIC_URL, **changes):
        changed = settings._replace(carrier_url=carrier_url, public_url=public_url, **changes)
        return create_app(changed).test_client()

    return make


CLASSES = carriers.classes()
KITS = found()
WITH_CALLBACKS = [name for name, kit in KITS.items() if kit.callbacks]
WITH_SERVER = [name for name, kit in KITS.items() if kit.server]
OVER_HTTP = [name for name in WITH_SERVER if issubclass(KITS[name].server, CarrierServer)]
OURS = [name for name in OVER_HTTP if issubclass(CLASSES[name], HttpCarrier)]
for _name in WITH_SERVER:
    globals()[f"{_name}_server"] = served(KITS[_name].server)
