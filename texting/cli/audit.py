"""`flask audit`: who did what and when."""

import re
import uuid
from contextlib import suppress
from functools import reduce
from itertools import islice
from operator import or_
from typing import Any

import click
from peewee import Expression

from texting import recipients
from texting.access.audit import Actor, Audit
from texting.access.keys import ApiKey
from texting.cli import base
from texting.database import Refused
from texting.messages.model import Message
from texting.replies.model import read_number

HEADER = ("at", "who", "what", "about", "details")


def actor(value: str) -> Actor:
    """Read a name as the command prints it: Ann, or Ann (key 7)."""
    match = re.fullmatch(r"(.*) \(key (\d{1,9})\)", value, re.ASCII | re.DOTALL)
    return Actor(match[1], int(match[2])) if match else Actor(value.removesuffix(" (shell)"))


@base.command
@base.since_option
@base.until_option
@click.option(
    "--by", type=actor, metavar="WHO", help='Only what this person did: Ann, or "Ann (key 7)".'
)
@click.option(
    "--about",
    type=base.name,
    metavar="NUMBER|ID|KEY",
    help="Only about a number and the messages to it, a message, or a key: shop, or "
    '"shop (key 7)".',
)
@base.list_options
def audit(limit: int | None, as_json: bool, about: str | None, **chosen: Any) -> None:
    """Print who did what and when, newest first.

    This covers messages, keys, events and the Do Not Call list. Records are never changed.
    """
    most = base.newest(limit, as_json)
    found = islice(Audit.listing(**chosen, about=about and is_about(about)), most)
    base.print_list(as_json, map(as_object, found), HEADER, map(row, found), "Nothing", most)


def is_about(text: str) -> Expression:
    """Match rows about a number and the messages to it, about a message, or about a key.

    Raise Refused if it is none of these: "Nothing" means that nothing was done.
    """
    found = []
    with suppress(ValueError):
        found.append(Audit.message_id == uuid.UUID(text))
    with suppress(recipients.InvalidNumber):
        number = read_number(text, None)
        texts = Message.select(Message.id).where(Message.to == number)
        found.append((Audit.number == number) | Audit.message_id.in_(texts))
    name, id = actor(text)
    keys = ApiKey.select(ApiKey.id).where(ApiKey.name == name)
    keys = keys.where(ApiKey.id == id) if id else keys
    if keys.exists():
        found.append(Audit.key.in_(keys))
    if not found:
        raise Refused(
            f"--about: {text!r} is neither a number with a plus sign, nor the id of a message, nor "
            "the name of a key"
        )
    return reduce(or_, found)


def as_object(done: Audit) -> dict:
    """Return a row as a JSON object."""
    return {
        "at": done.at,
        "who": done.who,
        "who_key_id": done.who_key,
        "from": "desk" if done.who_key else "shell",
        **base.fields(done, "what", "message_id"),
        "key": done.key_name,
        "key_id": done.key,
        **base.fields(done, "number", "count", "details"),
    }


def row(done: Audit) -> tuple[Any, ...]:
    """Return a row for people."""
    who = key(done.who, done.who_key) if done.who_key else f"{done.who} (shell)"
    about = [done.message_id, done.number, done.count]
    about.append(done.key_name and key(done.key_name, done.key))
    told = " ".join(str(each) for each in about if each is not None)
    return done.at, who, done.what, told or None, done.details or None


def key(name: str, id: int) -> str:
    """Return a key's name with its id, since the name of a revoked key can be used again."""
    return f"{name} (key {id})"
