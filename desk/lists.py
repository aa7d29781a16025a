"""Lists: where pages begin and cards are, as addresses, buttons and the cookie have it."""

import uuid
from collections.abc import Iterable
from urllib.parse import urlencode

from flask import abort, request

import reports
from database import EPOCH, MILLISECOND
from sending import replies

PAGE = 50  # cards
MANY = 1_000  # messages; waiting ones, and those of an hour, are counted up to here

Place = reports.Place | replies.Place


def fields(place: Place) -> list[int | str]:
    """Return the fields of a place as JSON has them; those of a reply begin with its rank."""
    *rank, at, id = place
    return [*rank, (at - EPOCH) // MILLISECOND, id.hex]


def place_of(kind: type[Place], fields: list[int | str]) -> Place:
    """Return the place with some fields; raise ValueError if there is none."""
    *rank, at, id = fields
    try:
        return kind(*map(int, rank), EPOCH + int(at) * MILLISECOND, uuid.UUID(id))
    except (TypeError, OverflowError):
        raise ValueError("a place of this kind has other fields") from None


def write(place: Place) -> str:
    """Write a place as addresses have it: its fields with hyphens between them."""
    return "-".join(str(field) for field in fields(place))


def read(kind: type[Place], text: str) -> Place:
    """Return the place that `write` wrote; raise ValueError for any other text."""
    return place_of(kind, text.split("-"))


def read_place(kind: type[Place]) -> Place | None:
    """Return the place after which this page begins; None for the first page."""
    text = request.args.get("after")
    try:
        return read(kind, text) if text else None
    except ValueError:
        abort(404, "There is no such page.")


def pressed(actions: Iterable[str]) -> str:
    """Return the name of the button that was pressed; abort if it is none of these."""
    action = next((name for name in actions if name in request.form), None)
    if action is None:
        abort(400, "No button was pressed.")
    return action


def address_after(ids: list[uuid.UUID], fragment: str) -> str:
    """Return the address of the page where a button was pressed, with the boxes left ticked."""
    query = [(name, value) for name, value in request.args.items() if name != "select"]
    decided = {str(id) for id in ids}
    ticked = [each for each in request.form.getlist("id") if each not in decided]
    if ticked:
        query.append(("select", ".".join(ticked[:PAGE])))
    asked = f"?{urlencode(query)}" if query else ""
    return f"{request.script_root}{request.path}{asked}#{fragment}"
