"""Lists say what they have and what they have not; nothing much is lost without a question."""

import json
from datetime import timedelta

import pytest

from access.audit import Audit
from access.keys import ApiKey
from database import clock
from databases import on_sqlite
from models import Message, Status
from samples import HOUR, LONDON, NEW_YORK, TUESDAY_NOON
from stored_messages import key_named, store, store_many


def test_a_list_shows_the_last_error_and_show_the_whole(run):
    words = "the carrier said " + "no " * 50
    message = store(status=Status.FAILED, finished_at=TUESDAY_NOON, last_error=words)
    store(now=TUESDAY_NOON + HOUR)
    header, *rows = run("messages", "list").splitlines()
    assert header.endswith("last error")
    shown = [row[header.index("last error") :] for row in rows]
    assert shown[0] == "-"
    assert shown[1].startswith("the carrier said no")
    assert len(shown[1]) <= 80
    assert json.loads(run("messages", "show", str(message.id)))["last_error"] == words


@on_sqlite
def test_a_carriers_words_cannot_control_the_terminal(run):
    store(status=Status.FAILED, finished_at=TUESDAY_NOON, last_error="a\x1b[2J\nb\x00c")
    told = run("messages", "list")
    assert "\x1b" not in told
    assert "\x00" not in told
    assert told.count("\n") == 2


@pytest.mark.parametrize("options", [(), ("--status", "failed"), ("--to", LONDON)])
def test_an_empty_list_says_so(run, options):
    assert run("messages", "list", *options) == "No messages\n"
    assert json.loads(run("messages", "list", *options, "--json")) == []


@on_sqlite
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["keys", "list"], "No keys\n"),
        (["events", "list"], "No events\n"),
        (["audit"], "Nothing\n"),
    ],
)
def test_other_empty_lists_say_so_too(run, words, said):
    assert run(*words) == said


def test_messages_are_chosen_and_counted_by_when_they_were_created(run):
    for hours in range(4):
        store(now=TUESDAY_NOON + hours * HOUR, to=NEW_YORK if hours % 2 else LONDON)
    since, until = ("--since", "2026-03-03T18:00Z"), ("--until", "2026-03-03T20:00Z")

    def count(*options):
        listed = json.loads(run("messages", "list", "--json", *options))
        told = run("messages", "list", "--count", *options)
        assert told == f"{len(listed)}\n"
        return len(listed)

    assert count() == 4
    assert count(*until) == 3, "the instant itself is not before it"
    assert count(*since, *until) == 2
    assert count(*since, *until, "--to", LONDON) == 1
    assert count(*since, "--until", "2026-03-03T18:00Z") == 0


@on_sqlite
@pytest.mark.parametrize("other", [["--json"], ["--limit", "3"], ["--limit", "0"]])
def test_a_count_is_printed_alone(refused, other):
    assert "--count" in refused("messages", "list", "--count", *other, status=2)


def test_until_also_chooses_what_is_cancelled(run):
    old, new = store(now=TUESDAY_NOON), store(now=TUESDAY_NOON + HOUR)
    told = run("messages", "cancel", "--until", "2026-03-03T18:00Z", "--yes")
    assert str(old.id) in told
    assert str(new.id) not in told


def ended_for(number, count):
    store_many(count, status=Status.SENT, finished_at=TUESDAY_NOON)
    Message.update(to=number).execute()


@pytest.mark.parametrize(
    "words", [["messages", "purge", "--older-than", "1"], ["messages", "redact", "--to", LONDON]]
)
def test_before_more_than_a_hundred_go_somebody_is_asked(flask, words):
    def there():
        return Message.select().where(Message.message.is_null(False)).count()

    ended_for(LONDON, 101)
    told = flask(*words)
    assert told.exit_code == 1
    assert "101 messages" in told.stderr
    assert "--yes" in told.stderr
    assert there() == 101
    assert flask(*words, "--yes").exit_code == 0
    assert there() == 0
    ended_for(LONDON, 100)
    assert flask(*words).exit_code == 0, "a hundred go without a question"
    assert there() == 0


@on_sqlite
def test_what_is_not_touched_is_not_counted(flask):
    ended_for(LONDON, 100)
    store(to=LONDON)  # waits
    store(to=NEW_YORK, status=Status.SENT, finished_at=TUESDAY_NOON)
    assert flask("messages", "redact", "--to", LONDON).exit_code == 0
    store_many(60, status=Status.SENT, finished_at=clock.now())
    assert flask("messages", "purge", "--older-than", "1", "--yes").exit_code == 0
    assert flask("messages", "purge", "--older-than", "1").exit_code == 0
    assert Message.select().where(Message.status == Status.SENT).count() == 60


def test_stats_show_errors_by_reason_and_key(run, at):
    at(TUESDAY_NOON)
    failed = {"status": Status.FAILED, "finished_at": TUESDAY_NOON, "last_error_at": TUESDAY_NOON}
    for name, error in (("app", "no credit"), ("app", "no credit"), ("shop", "no credit")):
        store(key=key_named(name), last_error=error, **failed)
    store(key=key_named("shop"), last_error="a landline", **failed)
    store(
        key=key_named("shop"), last_error="old", **failed | {"finished_at": TUESDAY_NOON - 2 * HOUR}
    )
    told = json.loads(run("stats", "--json"))
    assert told["errors"][0] == {"error": "no credit", "key": "app", "messages": 2}
    assert {(e["error"], e["key"], e["messages"]) for e in told["errors"][1:]} == {
        ("no credit", "shop", 1),
        ("a landline", "shop", 1),
    }
    assert told["commonest_error"] == {"error": "no credit", "messages": 3}
    lines = [line.split() for line in run("stats").splitlines()]
    assert ["2", "app", "no", "credit"] in lines
    assert ["1", "shop", "a", "landline"] in lines


def test_events_can_be_limited(run, database_url):
    from events.outbox import EventAddress

    key = key_named("app")
    EventAddress.set(key, "http://127.0.0.1:1/", TUESDAY_NOON)
    for _ in range(3):
        store(key=key).cancel("shell", TUESDAY_NOON)
    everything = json.loads(run("events", "list", "--json"))
    assert json.loads(run("events", "list", "--json", "--limit", "2")) == everything[:2]
    assert json.loads(run("events", "list", "--json", "--limit", "0")) == everything
    assert len(run("events", "list", "--limit", "1").splitlines()) == 2


@pytest.mark.parametrize(
    ("done", "undo", "named"),
    [
        (lambda m, at: m.decide(True, "ann", at), "undo_approval", "message approved"),
        (lambda m, at: m.decide(False, "ann", at), "undo_cancel", "message refused"),
        (lambda m, at: m.cancel("ann", at), "undo_cancel", "message cancelled"),
    ],
)
def test_the_audit_says_what_was_undone(database_url, run, done, undo, named):
    message = store(manual_mode=True, approved=False)
    assert done(message, TUESDAY_NOON)
    assert getattr(message, undo)("ann", TUESDAY_NOON + timedelta(seconds=5))
    newest = Audit.select().order_by(Audit.id.desc()).get()
    assert (newest.what, newest.details) == ("message undone", named)
    assert named in run("audit").splitlines()[1]


def test_of_two_decisions_the_one_that_was_undone_is_named(database_url):
    message = store(manual_mode=True, approved=False)
    now = TUESDAY_NOON
    assert message.decide(False, "ann", now)
    assert message.undo_cancel("ann", now + timedelta(seconds=1))
    assert message.cancel("ann", now + timedelta(seconds=2))
    assert message.undo_cancel("ann", now + timedelta(seconds=3))
    undone = [row.details for row in Audit.select().where(Audit.what == "message undone")]
    assert undone == ["message refused", "message cancelled"]


@on_sqlite
def test_an_approver_without_a_group_is_told_that_it_sees_nothing(flask):
    told = flask("keys", "create", "ann", "--role", "approver")
    assert told.exit_code == 0
    assert told.stdout.count("\n") == 1, "the key alone"
    assert "sees no message" in told.stderr
    for words in (["--group", "sales", "--role", "approver"], ["--role", "operator"], []):
        name = f"other {len(words)}"
        assert flask("keys", "create", name, *words).stderr == ""


@on_sqlite
def test_the_last_use_is_shown_as_the_hour_that_it_is(run, at):
    ApiKey.issue("app", None, TUESDAY_NOON)
    ApiKey.update(last_used_at=TUESDAY_NOON.replace(hour=19)).execute()
    assert "2026-03-03T19h" in run("keys", "list")
    assert json.loads(run("keys", "list", "--json"))[0]["last_used_at"] == (
        "2026-03-03T19:00:00.000Z"
    )
