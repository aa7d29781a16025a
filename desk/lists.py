"""Places in lists, as addresses, buttons and the session's cookie have them."""

import uuid

import reports
from database import EPOCH, MILLISECOND
from sending import replies

PAGE = 50  # cards

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
