"""`flask replies`: what recipients wrote back."""

import uuid
from typing import Any

import click

from texting.cli import base
from texting.database import clock
from texting.replies import inbox
from texting.replies.model import Reply

LONGEST_SHOWN = 60  # characters of a text in the table

replies = base.Commands("replies", help="List what recipients wrote back, and mark it as read.")


@replies.command("list")
@base.to_options("Only replies of this number.")
@click.option("--unread", is_flag=True, help="Only replies that somebody has to read.")
@click.option("--may-be-no", is_flag=True, help="Only possible opt-outs that need a decision.")
@base.since_option
@base.list_options
def list_replies(limit: int | None, as_json: bool, **chosen: Any) -> None:
    """List replies, newest first. Options can be combined.

    Numbers are masked in the table and whole in JSON.
    """
    most = base.newest(limit, as_json)
    found = inbox.listing(clock.now(), most, **chosen)
    header = ("reply_id", "at", "from", "state", "text")
    base.print_list(as_json, map(as_object, found), header, map(row, found), "No replies", most)


def as_object(reply: Reply) -> dict:
    """Return a reply as a JSON object; `to` is the number that wrote it."""
    names = ("text", "carrier", "message_id", "opted_out", "may_be_no", "read_at", "read_by")
    start = {"reply_id": reply.id, "at": reply.at, "to": reply.number}
    return start | base.fields(reply, *names)


def row(reply: Reply) -> tuple[Any, ...]:
    """Return a reply as a row for people."""
    states = (
        (reply.opted_out, "opted out"),
        (reply.may_be_no, "maybe opting out"),
        (reply.read_by, f"read by {reply.read_by}"),
    )
    state = ", ".join(words for holds, words in states if holds)
    state = state or ("needs no attention" if reply.read_at else "unread")
    text = repr(reply.text)  # escaped, or it could control the terminal
    short = text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 1]}…"
    return reply.id, reply.at, base.mask(reply.number), state, short


@replies.command()
@click.argument("reply_ids", metavar="ID...", type=click.UUID, nargs=-1, required=True)
@click.pass_context
def read(ctx: click.Context, reply_ids: tuple[uuid.UUID, ...]) -> None:
    """Mark replies as read: they no longer need a decision."""
    marked = Reply.mark_read(reply_ids, base.SHELL, clock.now())
    known = {each.id for each in Reply.select(Reply.id).where(Reply.id.in_(reply_ids))}
    for id in reply_ids:
        if id in marked:
            base.say(f"{id}: read")
        else:
            base.say(
                f"{id}: {'was already read' if id in known else 'there is no such reply'}", err=True
            )
    ctx.exit(not known.issuperset(reply_ids))
