"""`flask replies`, and what other commands do about replies."""

import json
import re
from pathlib import Path

import pytest

from samples import DAY, HOUR, LONDON, NEW_YORK, TUESDAY_NOON
from stored_messages import held
from texting.carriers import IncomingText
from texting.messages.model import Status
from texting.replies import inbound
from texting.replies.inbound import ReplyRules
from texting.replies.model import Reply

pytestmark = pytest.mark.usefixtures("noon", "database_url")

RULES = ReplyRules("fake", "asked", None, None)


def hear(text, number=NEW_YORK, now=TUESDAY_NOON, **fields):
    inbound.record([IncomingText(number, text, **fields)], now, RULES)
    return Reply.get(Reply.text == text)


@pytest.fixture
def listed(run):
    return lambda *words: json.loads(run("replies", "list", "--json", *words))


def test_a_reply_is_listed_with_all_that_there_is_to_know(listed):
    message = held(Status.SENT, finished_at=TUESDAY_NOON - HOUR)
    reply = hear("Yes 🎉\n", at=TUESDAY_NOON - HOUR / 2)
    assert listed() == [
        {
            "reply_id": str(reply.id),
            "at": "2026-03-03T16:30:00.000Z",
            "to": NEW_YORK,
            "text": "Yes 🎉\n",
            "carrier": "fake",
            "message_id": str(message.id),
            "opted_out": False,
            "may_be_no": False,
            "read_at": None,
            "read_by": None,
        }
    ]


def texts(found):
    return [each["text"] for each in found]


def test_replies_are_chosen_by_each_option_and_by_all_together(listed, run):
    hear("old", now=TUESDAY_NOON - DAY)
    hear("stpo", now=TUESDAY_NOON - 2 * HOUR)
    hear("don't stop", LONDON, now=TUESDAY_NOON - HOUR)
    read = hear("read")
    run("replies", "read", str(read.id))
    assert texts(listed()) == ["read", "don't stop", "stpo", "old"]
    assert texts(listed("--unread")) == ["don't stop", "stpo", "old"]
    assert texts(listed("--may-be-no")) == ["don't stop", "stpo"]
    assert texts(listed("--to", NEW_YORK)) == ["read", "stpo", "old"]
    assert texts(listed("--since", "3h")) == ["read", "don't stop", "stpo"]
    assert texts(listed("--unread", "--may-be-no", "--to", NEW_YORK, "--since", "3h")) == ["stpo"]
    assert texts(listed("--limit", "1")) == ["read"]


def test_for_people_numbers_are_masked_and_texts_cannot_control_the_terminal(run):
    reply = hear("\x1b[2J stop by " + "x" * 100)
    _, row = run("replies", "list").splitlines()
    assert re.split("  +", row) == [
        *(str(reply.id), "2026-03-03T17:00:00.000Z", "+12•••••••23", "maybe opting out"),
        rf"'\x1b[2J stop by {'x' * 42}…",
    ]


def test_a_start_needs_no_attention(run):
    hear("START")
    assert "  needs no attention  'START'" in run("replies", "list")


def test_what_was_read_is_noted_once(session, listed):
    reply = hear("don't stop")
    unknown = "019cb4b5-0000-7000-8000-000000000000"
    session(f"""
        $ flask replies read {reply.id}
        {reply.id}: read
        $ flask replies read {reply.id}
        {reply.id}: was already read
        $ flask replies read {unknown} {reply.id}
        {unknown}: there is no such reply
        {reply.id}: was already read
        [1]
    """)
    (shown,) = listed()
    assert (shown["read_at"], shown["read_by"]) == ("2026-03-03T17:00:00.000Z", "shell")
    assert shown["may_be_no"] is False


@pytest.mark.parametrize("how", ["add", "import"])
def test_who_puts_a_number_on_the_list_has_decided(run, listed, how):
    hear("don't stop")
    Path("numbers.txt").write_text(NEW_YORK)
    run("dnc", *{"add": ["add", NEW_YORK], "import": ["import", "numbers.txt"]}[how])
    assert listed("--may-be-no") == []
    (shown,) = listed()
    assert shown["read_by"] == "shell"
    assert not shown["opted_out"]


def test_a_thousand_replies_are_listed_page_by_page(listed):
    for n in range(1001):
        Reply.create(
            id=f"{n:032x}", carrier="x", number=LONDON, text=f"{n}", at=TUESDAY_NOON,
            received_at=TUESDAY_NOON,
        )  # fmt: skip
    assert texts(listed()) == [str(n) for n in reversed(range(1001))]


# Forgetting


def test_redact_deletes_what_a_number_wrote(session, run, listed):
    held(Status.SENT, finished_at=TUESDAY_NOON - HOUR)
    hear("one")
    hear("two")
    hear("another's", LONDON)
    session(f"""
        $ flask messages redact --to {NEW_YORK}
        1 redacted
        2 replies deleted
    """)
    assert texts(listed()) == ["another's"]
    (row,) = [row for row in json.loads(run("audit", "--json")) if "replies" in row["what"]]
    assert (row["what"], row["count"]) == ("replies forgotten", 2)
    assert NEW_YORK not in json.dumps(row)


def test_purge_deletes_replies_by_their_own_age(session, listed):
    hear("old", now=TUESDAY_NOON - 31 * DAY)
    hear("new")
    session("""
        $ flask messages purge --older-than 30
        0 deleted
        1 reply deleted
        $ flask messages purge --older-than 30
        0 deleted
    """)
    assert texts(listed()) == ["new"]
