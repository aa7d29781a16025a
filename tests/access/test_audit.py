"""The audit: who did what and when, kept and never changed."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from peewee import DatabaseError

from app import create_app
from databases import on_both, on_postgres, on_sqlite
from desk_visitor import Visitor
from own_threads import begin
from samples import HOUR, LONDON, NEW_YORK, TUESDAY_NOON
from stored_messages import decide_on, key_named, store
from texting.access import audit, do_not_call
from texting.access.audit import Actor
from texting.access.do_not_call import DoNotCall, OptedOut
from texting.access.keys import ApiKey, Role
from texting.access.limits import parse
from texting.database import db
from texting.events.outbox import EventAddress
from texting.messages.model import Message, Status
from texting.sending import retention

pytestmark = on_both

SECRET = "not so secret, but long enough"


@pytest.fixture(autouse=True)
def anna(monkeypatch):
    """The user of the shell."""
    monkeypatch.setenv("USER", "anna")
    monkeypatch.delenv("FLASK_ACTOR", raising=False)


@pytest.fixture
def desk(settings):
    """An operator, signed in at the desk."""
    visitor = Visitor(create_app(settings._replace(secret_key=SECRET)))
    visitor.sign_in(ApiKey.issue("Olga", None, TUESDAY_NOON, role=Role.OPERATOR))
    return visitor


@pytest.fixture
def told(run):
    """What the command tells without the time, the oldest first."""

    def tell(*options):
        _, *lines = run("audit", *options).splitlines()
        assert all(line.startswith("2026-03-03T17:00:00.000Z  ") for line in lines)
        return [" ".join(line.split()[1:]) for line in reversed(lines)]

    return tell


def test_what_is_done_in_the_shell_is_told_with_the_user(run, told, tmp_path, monkeypatch):
    run("keys", "create", "shop", "--group", "sales", "--limit", "5/s", "--expires", "1d")
    run("keys", "limit", "shop", "7/s")
    run("keys", "rotate", "shop")
    run("keys", "extend", "shop", "--expires", "never")
    run("keys", "events", "shop", "http://me:s3cret@127.0.0.1:9/told?token=s3cret")
    run("keys", "events", "shop", "--rotate")
    (waiting, other, sent) = (
        store(key=ApiKey.named("shop"), manual_mode=True, approved=False),
        store(key=ApiKey.named("shop")),
        store(key=ApiKey.named("shop"), status=Status.FAILED, finished_at=TUESDAY_NOON - HOUR),
    )
    run("messages", "approve", str(waiting.id))
    run("messages", "cancel", str(other.id))
    run("messages", "retry", str(sent.id))
    run("keys", "events", "shop", "--off")
    run("keys", "events", "shop", "http://127.0.0.1:9/told")
    run("events", "retry")
    run("messages", "redact", "--to", NEW_YORK)
    run("keys", "revoke", "shop")
    monkeypatch.setenv("FLASK_ACTOR", "cron\x1b[2J")
    run("dnc", "add", NEW_YORK, LONDON)
    run("dnc", "add", NEW_YORK)  # changes nothing
    run("dnc", "remove", NEW_YORK)
    (tmp_path / "numbers.txt").write_text(f"{NEW_YORK}\n{LONDON}\n+12125550188\n")
    run("dnc", "import", str(tmp_path / "numbers.txt"))
    shop = f"shop (key {ApiKey.named('shop').id})"
    assert told() == [
        f"anna (shell) key created {shop} role sender, group sales, 5/s, "
        "until 2026-03-04T17:00:00.000Z",
        f"anna (shell) key limited {shop} 7/s",
        f"anna (shell) key rotated {shop} the old secret until 2026-03-04T17:00:00.000Z",
        f"anna (shell) key extended {shop} no end",
        f"anna (shell) events address set {shop} http://***@127.0.0.1:9/told?token=***",
        f"anna (shell) events secret rotated {shop} -",
        f"anna (shell) message approved {waiting.id} -",
        f"anna (shell) message cancelled {other.id} -",
        f"anna (shell) message retried {sent.id} -",
        f"anna (shell) events switched off {shop} -",
        f"anna (shell) events address set {shop} http://127.0.0.1:9/told",
        "anna (shell) events retried 1 -",
        "anna (shell) messages redacted 1 to one number",
        f"anna (shell) key revoked {shop} -",
        f"cron?[2J (shell) number added {NEW_YORK} entry",
        f"cron?[2J (shell) number added {LONDON} entry",
        f"cron?[2J (shell) number removed {NEW_YORK} entry",
        "cron?[2J (shell) numbers imported 2 entry",
    ]


@on_sqlite
def test_what_is_done_at_the_desk_is_told_with_the_key(desk, told):
    waits = {"manual_mode": True, "approved": False}
    texts = [store(**waits), store(**waits, message="Bye")]
    texts += [store(), store(status=Status.FAILED, finished_at=TUESDAY_NOON)]
    desk.press("Approve", texts[0], on="/desk/")
    desk.press("Refuse", texts[1])
    desk.press("Cancel", texts[2], on="/desk/messages")
    desk.press("Retry", texts[3])
    desk.press("Add", number=NEW_YORK, on="/desk/do-not-call")
    desk.press("Remove", number=NEW_YORK)
    olga = f"Olga (key {ApiKey.named('Olga').id})"
    assert told("--by", "Olga") == [
        f"{olga} signed in - -",
        f"{olga} message approved {texts[0].id} -",
        f"{olga} message refused {texts[1].id} -",
        f"{olga} message cancelled {texts[2].id} -",
        f"{olga} message retried {texts[3].id} -",
        f"{olga} number added {NEW_YORK} entry",
        f"{olga} number removed {NEW_YORK} entry",
    ]
    assert audit.actor() == Actor("anna"), "nobody is signed in after a request"


@on_sqlite
def test_what_is_undone_is_told_with_what_it_was(told):
    message, now = store(manual_mode=True, approved=False), TUESDAY_NOON
    assert decide_on(message).decide(True, "ann", now)
    assert decide_on(message).undo_approval("ann", now)
    assert decide_on(message).decide(False, "ann", now)
    assert decide_on(message).undo_cancel("ann", now)
    assert decide_on(message).cancel("ann", now)
    assert decide_on(message).undo_cancel("ann", now)
    assert told() == [
        f"anna (shell) message {words}"
        for each in ("approved", "refused", "cancelled")
        for words in (f"{each} {message.id} -", f"undone {message.id} message {each}")
    ]


@on_sqlite
def test_keys_of_one_name_and_a_user_of_that_name_are_told_apart(desk, told, monkeypatch):
    monkeypatch.setenv("FLASK_ACTOR", "Olga")
    first = ApiKey.named("Olga")
    first.revoke(TUESDAY_NOON)
    desk.sign_in(ApiKey.issue("Olga", None, TUESDAY_NOON, role=Role.OPERATOR))
    second = ApiKey.named("Olga")
    assert told("--by", f"Olga (key {second.id})") == [f"Olga (key {second.id}) signed in - -"]
    assert told("--by", "Olga") == [
        f"Olga (key {first.id}) signed in - -",
        f"Olga (shell) key revoked Olga (key {first.id}) -",
        f"Olga (shell) key created Olga (key {second.id}) role operator",
        f"Olga (key {second.id}) signed in - -",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ("keys", "limit", "shop", "7/s"),
        ("keys", "extend", "shop", "--expires", "never"),
        ("keys", "rules", "shop", "--urgent", "--hours", "09:00-12:00"),
        ("keys", "pause", "shop"),
        ("keys", "events", "shop", "--off"),
        ("keys", "revoke", "shop"),
    ],
    ids=lambda words: words[1],
)
def test_a_command_that_changes_nothing_is_not_recorded(run, told, words):
    run("keys", "create", "shop", "--events", "http://127.0.0.1:9/", "--expires", "1d")
    run(*words)
    before = told()
    run(*words)
    assert told() == before


@on_postgres
def test_a_change_of_a_key_waits_for_no_create_under_way(database_url):
    shop = key_named("shop")
    with db.atomic(), ThreadPoolExecutor() as threads:
        store(key=shop)
        begin(threads, shop.limit, parse("7/s"), TUESDAY_NOON).result()
    assert ApiKey.named("shop").limits == "7/s"


def test_what_was_done_about_a_number_a_message_or_a_key_is_chosen(run, told, refused):
    """About a number are also the texts to it; a name may have been that of several keys."""
    run("keys", "create", "shop")
    first, other = ApiKey.named("shop"), key_named("other")
    run("keys", "pause", "other")
    run("keys", "revoke", "shop")
    run("keys", "create", "shop")
    theirs, another = store(key=first), store(to=LONDON, key=other)
    run("messages", "cancel", str(theirs.id), str(another.id))
    run("dnc", "add", NEW_YORK, LONDON)
    second = ApiKey.named("shop")

    def of(message):
        return f"anna (shell) message cancelled {message.id} -"

    added = "anna (shell) number added {} entry".format
    created = "anna (shell) key created shop (key {}) role sender".format
    revoked = f"anna (shell) key revoked shop (key {first.id}) -"
    for about, rows in (
        (NEW_YORK, [of(theirs), added(NEW_YORK)]),
        ("+44 20 8366 1177", [of(another), added(LONDON)]),
        ("+33142685300", []),
        (str(theirs.id), [of(theirs)]),
        (theirs.id.hex.upper(), [of(theirs)]),
        (str(uuid.UUID(int=7)), []),
        ("shop", [created(first.id), revoked, created(second.id)]),
        (f"shop (key {second.id})", [created(second.id)]),
    ):
        assert told("--about", about) == rows, about
    assert run("audit", "--about", "+33142685300") == "Nothing\n"
    for nothing in ("nobody", f"shop (key {other.id})", "2125550123", "+1", "12125550123"):
        line = f"Error: --about: {nothing!r} is neither a number with a plus sign, nor the id of a "
        assert refused("audit", "--about", nothing).startswith(line)
    assert told("--about", "other", "--since", "1h", "--by", "bob") == []


def test_a_time_and_a_person_choose_rows_and_many_are_paged(run, at, database_url):
    for hour in range(3):
        DoNotCall.add([f"+1212555010{hour}"], TUESDAY_NOON + hour * HOUR, "operator")
    numbers = [f"+1617{n:07}" for n in range(1_200)]
    DoNotCall.add(numbers[:600], TUESDAY_NOON + 9 * HOUR, "import")
    DoNotCall.add(numbers[600:], TUESDAY_NOON + 9 * HOUR, "import")
    OptedOut.add([LONDON], TUESDAY_NOON, "reply")  # by no person
    between = ("--since", "2026-03-03T18:00Z", "--until", "2026-03-03T19:00Z")
    (row,) = json.loads(run("audit", "--json", *between, "--by", "anna"))
    assert row == {
        "at": "2026-03-03T18:00:00.000Z",
        "who": "anna",
        "who_key_id": None,
        "from": "shell",
        "what": "number added",
        "message_id": None,
        "key": None,
        "key_id": None,
        "number": "+12125550101",
        "count": None,
        "details": "entry",
    }
    newest, *others = json.loads(run("audit", "--json"))
    assert (newest["what"], newest["count"], len(others)) == ("numbers imported", 1_200, 3)
    at(TUESDAY_NOON + 10 * HOUR)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON)
    run("messages", "purge", "--older-than", "0", "--yes")
    run("messages", "purge", "--older-than", "0", "--yes")  # nothing is left
    newest, second, *_ = json.loads(run("audit", "--json"))
    assert (newest["what"], newest["count"]) == ("messages purged", 1)
    assert (newest["details"], second["count"]) == ("ended before 2026-03-04T03:00:00.000Z", 1_200)
    do_not_call.remove(numbers, TUESDAY_NOON + 9 * HOUR, "shell", opted_out=True)
    assert len(json.loads(run("audit", "--json"))) == 1_205
    assert run("audit", "--limit", "2").count("number removed") == 2


@pytest.mark.parametrize(
    "action",
    [
        lambda message: decide_on(message).cancel("shell", TUESDAY_NOON),
        lambda message: retention.redact_number(LONDON, TUESDAY_NOON),
        lambda message: message.key.limit(parse("5/s"), TUESDAY_NOON),
        lambda message: EventAddress.set(message.key, "http://127.0.0.1:9/", TUESDAY_NOON),
        lambda message: DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator"),
    ],
    ids=["a message", "messages", "a key", "an address", "a number"],
)
def test_a_deed_that_cannot_be_noted_does_not_happen(database_url, action):
    message = store()
    store(to=LONDON, status=Status.FAILED, finished_at=TUESDAY_NOON, parts=1)
    tables = (Message, ApiKey, EventAddress, DoNotCall)
    before = [list(table.select().dicts()) for table in tables]
    db.execute_sql("ALTER TABLE audit RENAME TO gone")
    with pytest.raises(DatabaseError):
        action(message)
    db.execute_sql("ALTER TABLE gone RENAME TO audit")
    assert [list(table.select().dicts()) for table in tables] == before


def test_a_user_without_a_name_is_told_by_number(monkeypatch):
    monkeypatch.delenv("USER")
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_001)
    assert audit.actor() == Actor("uid 4000000001")
