"""flask messages: list, show, approve, cancel, retry, purge, redact."""

import json
import re
import uuid
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from databases import on_postgres
from samples import DAY, HOUR, LONDON, NEW_YORK, SECOND, SUNDAY_NIGHT, TUESDAY_NOON
from stored_messages import again, held, key_named, store, store_many
from texting import database
from texting.access.do_not_call import DoNotCall
from texting.access.keys import ApiKey
from texting.cli import base
from texting.messages.model import FINISHED, Message, Status

pytestmark = pytest.mark.usefixtures("noon")

MONDAY_OPENING = datetime(2026, 3, 2, 14, tzinfo=UTC)  # 9 AM in New York
OLD = TUESDAY_NOON - 31 * DAY
NOON = "2026-03-03T17:00:00.000Z"
NO_TERMINAL = "There is no terminal to ask on; --yes skips the question."


@pytest.fixture
def messages(flask):
    """Run `flask messages …`: `messages("approve", message.id)`."""
    return lambda *words: flask("messages", *map(str, words))


@pytest.fixture
def terminal(flask, monkeypatch):
    """Run a command at a terminal, where it can ask."""
    stdin = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr(base, "sys", SimpleNamespace(stdin=stdin))
    return flask


@pytest.fixture
def listed(messages):
    """The ids that `flask messages list` lists, in its order: `listed("--status", "sent")`."""

    def ids(*words):
        result = messages("list", "--json", *words)
        assert (result.exit_code, result.stderr) == (0, "")
        return [uuid.UUID(shown["message_id"]) for shown in json.loads(result.stdout)]

    return ids


# list


def test_a_row_has_what_an_operator_needs(messages):
    message = store(attempts=2, status=Status.SCHEDULED, last_error="busy " * 20)
    header, row = messages("list").stdout.splitlines()
    assert re.split("  +", row) == [
        *(str(message.id), "scheduled", "+12•••••••23", "2026-03-03T17:00:00.000Z"),
        *("12:00 PM, Tuesday, Mar 3", "2", "app", "busy " * 15 + "busy…"),
    ]
    assert header.index("local time") == row.index("12:00 PM")
    assert json.loads(messages("show", message.id).stdout)["last_error"] == "busy " * 20


def test_no_number_and_no_text_is_in_a_list_for_people(messages):
    numbers = (NEW_YORK, LONDON, "+376312345", "+6907123")
    for number in numbers:
        store(to=number, message="attack at dawn")
    shown = "\n".join(line[36:] for line in messages("list").stdout.splitlines())  # without ids
    for number in numbers:
        assert number[:3] in shown
        assert number[3:-2] not in shown
    assert "attack" not in shown


def test_what_awaits_approval_says_so_until_it_is_refused(messages):
    message = store(manual_mode=True)
    assert "queued (awaiting approval)" in messages("list").stdout
    messages("cancel", str(message.id))
    assert " cancelled  " in messages("list").stdout
    assert "awaiting" not in messages("list").stdout


@pytest.mark.parametrize(
    "columns",
    [
        {"to": "+10000000000"},  # which a newer libphonenumber refuses
        {"to": None, "message": None, "status": Status.SENT, "finished_at": TUESDAY_NOON},
        {"to": "+819012345678", "send_at": datetime.max.replace(tzinfo=UTC)},  # there, 10000
    ],
    ids=["refused number", "redacted", "year 10000"],
)
def test_what_has_no_local_time_is_listed_all_the_same(messages, listed, columns):
    message = store(**columns)
    result = messages("list")
    assert (result.exit_code, result.stdout.count(str(message.id))) == (0, 1)
    assert listed() == [message.id]


def test_a_list_can_be_narrowed_to_a_status(listed):
    messages = {
        status: held(status, finished_at=TUESDAY_NOON if status in FINISHED else None)
        for status in Status
    }
    for status in Status:
        assert listed("--status", status) == [messages[status].id]


def test_a_list_can_be_narrowed_to_what_awaits_approval(listed):
    older = store(manual_mode=True, now=TUESDAY_NOON - DAY)
    newer = store(manual_mode=True, status=Status.SCHEDULED)
    store()
    store(manual_mode=True, approved=True)
    for status in set(Status) - {Status.SCHEDULED, Status.QUEUED}:
        held(status, manual_mode=True)
    assert listed("--awaiting-approval") == [newer.id, older.id]
    assert listed("--awaiting-approval", "--status", "queued") == [older.id]


def test_what_a_key_may_see_can_be_narrowed_too(listed):
    shared = store(key=key_named("a", "red"), available_to_group=True, manual_mode=True)
    store(key=key_named("a", "red"), available_to_group=True)
    key_named("b", "red")
    assert listed("--visible-to", "b", "--awaiting-approval") == [shared.id]
    assert listed("--visible-to", "b", "--status", "sent") == []


def test_a_list_can_be_narrowed_to_a_number_a_key_a_group_and_a_time(listed, messages):
    mine = store(key=key_named("a", "red"), to=LONDON, now=TUESDAY_NOON - 2 * DAY)
    other = store(key=key_named("b", "red"), now=TUESDAY_NOON - DAY)
    foreign = store(key=key_named("c", "RED"), now=TUESDAY_NOON)
    for options, found in (
        ("--to +442083661177", [mine]),
        ("--key a", [mine]),
        ("--group red", [other, mine]),
        ("--group red --key b", [other]),
        ("--since 25h", [foreign, other]),
        ("--since 2026-03-03T17:00Z", [foreign]),
        ("--since 2026-03-03T18:00+02:00 --status sent", []),
        (f"--since 2026-03-02 --to {NEW_YORK}", [foreign, other]),
        ("--until 2026-03-03T17:00Z", [other, mine]),
        ("--since 2026-03-02T17:00Z --until 2026-03-03T17:00Z", [other]),
        ("--since 2026-03-03T17:00Z --until 2026-03-03T17:00Z", []),
    ):
        assert listed(*options.split()) == [message.id for message in found], options
        assert messages("list", "--count", *options.split()).stdout == f"{len(found)}\n"


def test_the_messages_of_a_name_that_was_used_again_are_those_of_both_keys(listed, run):
    first = store(key=key_named("a", "red"))
    run("keys", "revoke", "a")
    ApiKey.issue("a", "blue", TUESDAY_NOON)
    second = store(key=ApiKey.named("a"))
    assert {*listed("--key", "a")} == {first.id, second.id}
    assert listed("--group", "red") == [first.id]


@pytest.mark.parametrize("since", ["99999d", "0001-01-02", "1969-12-31T23:59:59Z"])
def test_any_time_in_the_past_will_do(since, listed):
    message = store()
    assert listed("--since", since) == [message.id]
    assert listed("--since", "9999-12-31") == []


def test_people_see_the_newest_fifty_and_programs_everything(messages, listed):
    store_many(60)
    result = messages("list")
    assert len(result.stdout.splitlines()) == 1 + 50
    assert result.stderr == "these are the newest 50; --limit 0 shows all\n"
    assert len(messages("list", "--limit", "0").stdout.splitlines()) == 1 + 60
    assert len(listed()) == 60
    assert len(listed("--limit", "7")) == 7


@pytest.mark.parametrize("count", [9, 10, 11, 20])
def test_a_table_of_some_pages_has_each_message_once(messages, monkeypatch, count):
    monkeypatch.setattr(base, "PAGE", 10)
    store_many(count)
    header, *rows = messages("list", "--limit", "0").stdout.splitlines()
    assert header.startswith("message_id")
    newest = Message.select().order_by(Message.id.desc())
    assert [row.split()[0] for row in rows] == [str(message.id) for message in newest]


def test_a_list_of_many_pages_has_each_message_once_in_order(listed):
    store_many(600, key=key_named("a", "red"), now=TUESDAY_NOON - DAY)
    store_many(600, key=key_named("b", "red"), now=TUESDAY_NOON)
    ids = listed("--group", "red")
    assert len({*ids}) == 1200
    assert ids == sorted(ids, reverse=True)
    assert listed("--group", "red", "--limit", "601") == ids[:601]


# show


def test_show_prints_one_object_with_all_there_is_to_know(messages):
    message = store(
        key=key_named("shop", "sales"),
        message=' 👩‍👩‍👧\n"quoted" ‮',
        send_date=TUESDAY_NOON,
        status=Status.FAILED,
        finished_at=SUNDAY_NIGHT,
        attempts=4,
        last_error="out of order",
        carrier_reference="SM1",
        check_dnc=True,
    )
    result = messages("show", message.id)
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {
        "message_id": str(message.id),
        "key": "shop",
        "group": "sales",
        "status": "failed",
        "to": NEW_YORK,
        "message": ' 👩‍👩‍👧\n"quoted" ‮',
        "parts": 1,
        "country": "US",
        "attempts": 4,
        "max_retries": 3,
        "approved": True,
        "last_error": "out of order",
        "carrier_reference": "SM1",
        "in_doubt": 0,
        "check_dnc": True,
        "expires_at": "2026-03-06T17:00:00.000Z",
        "finished_at": "2026-03-02T04:30:00.000Z",
        "history": [],
        **dict.fromkeys(("manual_mode", "available_to_group"), False),
        **dict.fromkeys(("send_date", "first_send_at", "send_at", "created_at"), NOON),
        **dict.fromkeys(("approved_at", "last_error_at", "receipt_at", "event_delivered_at")),
        **dict.fromkeys(("approved_by", "cancelled_by", "note", "carrier", "waits_for")),
        "blocked_because": None,
    }


def test_the_list_for_programs_is_an_array_of_what_show_prints(messages):
    ids = sorted((store(available_to_group=shared).id for shared in (True, False)), reverse=True)
    shown = [json.loads(messages("show", message_id).stdout) for message_id in ids]
    assert json.loads(messages("list", "--json").stdout) == shown


# approve, cancel, retry

DONE = {"approve": "approved", "cancel": "cancelled", "retry": "queued again"}
ALLOWED = {
    "approve": {Status.SCHEDULED, Status.QUEUED},
    "cancel": {Status.SCHEDULED, Status.QUEUED},
    "retry": {Status.FAILED, Status.BLOCKED, Status.UNDELIVERED, Status.EXPIRED},
}


@pytest.mark.parametrize("command", DONE)
def test_a_command_does_what_it_can_and_refuses_the_rest_with_the_reason(messages, command):
    for status in Status:
        finished = {"finished_at": SUNDAY_NIGHT} if status in FINISHED else {}
        message = held(status, manual_mode=True, **finished)
        result = messages(command, message.id)
        if status in ALLOWED[command]:
            assert (result.exit_code, result.stderr) == (0, "")
            assert result.stdout == f"{message.id}: {DONE[command]}\n"
            continue
        assert (result.exit_code, result.stdout) == (1, ""), status
        assert again(message).__data__ == message.__data__
        reason = {
            Status.SENDING: "being sent right now",
            Status.SCHEDULED: "scheduled, awaiting approval",
            Status.QUEUED: "queued, awaiting approval",
        }.get(status, f"{status} at 2026-03-02T04:30:00.000Z")
        assert result.stderr == f"{message.id}: not {DONE[command]}: {reason}\n"


@pytest.mark.parametrize("command", [*DONE, "show"])
@pytest.mark.parametrize("bad", ["1", "", "zzz", "0" * 37, "' OR 1=1 --", "é"])
def test_what_is_no_id_is_refused_and_nothing_is_done(messages, command, bad):
    message = store(status=min(ALLOWED.get(command, Status)), manual_mode=True)
    result = messages(command, *([] if command == "show" else [message.id]), bad)
    assert result.exit_code == 2
    assert "is not a valid UUID" in result.stderr
    assert again(message).__data__ == message.__data__


def test_a_decision_may_be_repeated_and_a_cancelled_message_is_not_approved(session):
    message = store(manual_mode=True)
    session(f"""
        $ flask messages approve {message.id} {message.id}
        {message.id}: approved
        {message.id}: approved
        $ flask messages approve {message.id}
        {message.id}: approved
        $ flask messages cancel {message.id}
        {message.id}: cancelled
        $ flask messages approve {message.id}
        {message.id}: not approved: cancelled at {NOON}
        [1]
    """)


@pytest.mark.parametrize("status", sorted(ALLOWED["retry"]))
def test_retry_gives_a_message_all_its_retries_again(messages, run_pass, carrier, status):
    message = store(
        status=status, attempts=4, last_error="busy", finished_at=SUNDAY_NIGHT, send_at=SUNDAY_NIGHT
    )
    assert messages("retry", message.id).exit_code == 0
    waiting = again(message)
    assert (waiting.status, waiting.attempts) == (Status.SCHEDULED, 0)
    assert (waiting.send_at, waiting.finished_at) == (TUESDAY_NOON, None)
    run_pass(TUESDAY_NOON)
    assert carrier.numbers == [NEW_YORK]


def test_retry_keeps_approval_and_the_do_not_call_list_in_force(messages, run_pass, carrier):
    unapproved = store(status=Status.BLOCKED, manual_mode=True, finished_at=SUNDAY_NIGHT)
    listed = store(status=Status.BLOCKED, check_dnc=True, to=LONDON, finished_at=SUNDAY_NIGHT)
    DoNotCall.add([LONDON], TUESDAY_NOON, "operator")
    assert messages("retry", unapproved.id, listed.id).exit_code == 0
    run_pass(TUESDAY_NOON)
    assert carrier.numbers == []
    assert (again(unapproved).status, again(unapproved).approved) == (Status.QUEUED, False)
    assert again(listed).status == Status.BLOCKED


def test_retry_keeps_to_business_hours_an_hour_after_the_send_date(flask, run_pass, at):
    message = store(status=Status.FAILED, send_date=SUNDAY_NIGHT, finished_at=SUNDAY_NIGHT)
    for late, sent in ((HOUR - SECOND, 1), (HOUR, 0)):
        at(SUNDAY_NIGHT + late)
        Message.update(status=Status.FAILED).execute()
        assert flask("messages", "retry", str(message.id)).exit_code == 0
        assert run_pass(SUNDAY_NIGHT + late)["sent"] == sent
    assert again(message).send_at == MONDAY_OPENING


def test_retry_keeps_a_send_date_that_is_still_to_come(messages, run_pass):
    """For example after a STOP that the recipient took back."""
    message = store(status=Status.BLOCKED, send_date=TUESDAY_NOON + HOUR, finished_at=SUNDAY_NIGHT)
    assert messages("retry", message.id).exit_code == 0
    assert run_pass(TUESDAY_NOON)["sent"] == 0
    assert again(message).send_at == TUESDAY_NOON + HOUR
    assert run_pass(TUESDAY_NOON + HOUR)["sent"] == 1


@pytest.mark.parametrize("command", ["cancel", "retry"])
def test_all_texts_of_a_key_that_leaked_are_chosen_by_its_name(messages, command):
    status, done = min(ALLOWED[command]), DONE[command]

    def stored(key="shop", status=status, **columns):
        ended = {"finished_at": TUESDAY_NOON if status in FINISHED else None}
        return held(status, key=key_named(key), **ended, **columns)

    there, elsewhere = stored(to=LONDON, country="GB"), stored()
    kept = [stored("app", country="GB"), stored(status=Status.SENT), stored(status=Status.SENDING)]
    for message, options in ((there, ("--country", "gb")), (elsewhere, ())):
        result = messages(command, "--yes", "--key", "shop", *options)
        told = f"1 message: 1 {status}\n{message.id}: {done}\n1 {done}\n"
        assert (result.exit_code, result.output) == (0, told)
    result = messages(command, "--key", "shop")
    assert (result.exit_code, result.output) == (0, f"0 {done}\n"), "none, and no question"
    assert [again(message).__data__ for message in kept] == [message.__data__ for message in kept]


CHOICES = (
    "--key b",
    f"--to {LONDON}",
    "--country FR",
    "--since 2h",
    "--until 2026-03-03T16:30Z",
    "--group red",
    "--visible-to b",
)


@pytest.mark.parametrize("options", [*CHOICES, f"--key b --to {LONDON}", "--key a --since 30m"])
@pytest.mark.parametrize("command", ["cancel", "retry"])
def test_what_a_list_shows_is_what_is_changed(messages, listed, command, options):
    """By the same options, those that the command can change; the others stay as they are."""
    for status in Status:
        for key, to, country, age in (
            ("a", NEW_YORK, "US", 0 * HOUR),
            ("b", LONDON, "GB", HOUR),
            ("c", LONDON, "FR", 3 * HOUR),
        ):
            about = {"key": key_named(key, "red" if key == "b" else "blue"), "to": to}
            ended = {"finished_at": TUESDAY_NOON if status in FINISHED else None}
            held(status, now=TUESDAY_NOON - age, country=country, **about, **ended)
    before = {message.id: message.status for message in Message.select()}
    expected = {id for id in listed(*options.split()) if before[id] in ALLOWED[command]}
    result = messages(command, "--yes", *options.split())
    changed = {each.id for each in Message.select() if each.status != before[each.id]}
    assert (result.exit_code, result.stderr) == (0, "")
    assert changed == expected
    assert len(expected) < sum(status in ALLOWED[command] for status in before.values())
    assert result.stdout.splitlines()[-1] == f"{len(expected)} {DONE[command]}"


@pytest.mark.parametrize("command", ["cancel", "retry"])
@pytest.mark.parametrize("status", Status)
def test_only_one_status_is_changed_where_one_is_chosen(messages, command, status):
    for each in Status:
        held(each, finished_at=TUESDAY_NOON if each in FINISHED else None)
    result = messages(command, "--status", status, "--yes")
    done = status in ALLOWED[command]
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == f"{int(done)} {DONE[command]}"
    assert Message.select().where(Message.status == status).exists() != done


def test_what_is_chosen_is_counted_before_anything_is_changed(terminal):
    for number, status in ((3, Status.BLOCKED), (12, Status.FAILED), (1, Status.EXPIRED)):
        store_many(number, status=status, finished_at=TUESDAY_NOON)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON, to=None, message=None)  # redacted
    store(status=Status.FAILED, finished_at=TUESDAY_NOON, auto_reply_to="STOP")
    counts = "16 messages: 12 failed, 3 blocked, 1 expired\n"
    for answer, moved in (("n", 0), ("", 0), ("y", 16)):
        result = terminal("messages", "retry", "--key", "app", input=f"{answer}\n")
        assert (result.exit_code, result.stdout.startswith(counts)) == (int(not moved), True)
        assert "Resend them? [y/N]" in result.stderr
        assert Message.select().where(Message.status == Status.SCHEDULED).count() == moved
    assert result.stdout.endswith("16 queued again\n")


def test_without_a_terminal_nothing_that_is_chosen_is_changed(session):
    message = store()
    session(f"""
        $ flask messages cancel --to {NEW_YORK}
        1 message: 1 queued
        Error: Cancel it? {NO_TERMINAL}
        [1]
    """)
    assert again(message).status == Status.QUEUED


def test_what_comes_while_somebody_is_asked_is_not_changed(messages, monkeypatch):
    counted = store(status=Status.FAILED, finished_at=TUESDAY_NOON)
    later = []

    def agree(question, yes):
        later.append(store(status=Status.FAILED, finished_at=TUESDAY_NOON))

    monkeypatch.setattr(base, "confirm", agree)
    assert messages("retry", "--status", "failed").stdout.endswith("1 queued again\n")
    assert (again(counted).status, again(later[0]).status) == (Status.SCHEDULED, Status.FAILED)


def test_a_text_that_goes_while_somebody_is_asked_is_told(messages, monkeypatch):
    first, second = store(), store()
    gone = {"status": Status.SENT, "finished_at": TUESDAY_NOON}
    monkeypatch.setattr(
        base, "confirm", lambda *_: Message.update(gone).where(Message.id == first.id).execute()
    )
    result = messages("cancel", "--key", "app")
    assert (result.exit_code, result.stderr) == (1, f"{first.id}: not cancelled: sent at {NOON}\n")
    assert result.stdout.endswith(f"{second.id}: cancelled\n1 cancelled\n")


def test_what_was_cancelled_in_doubt_is_chosen_only_once(messages):
    store(in_doubt=1)
    assert messages("cancel", "--key", "app", "--yes").stdout.endswith("\n1 cancelled\n")
    assert messages("cancel", "--key", "app").output == "0 cancelled\n"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("  wrong\n price ", "wrong price"),
        ("x" * 500, "x" * 500),
        (" ", None),
        ("\udcff!", "\ufffd!"),
    ],
)
def test_who_cancels_may_say_why(messages, given, kept):
    by_id, chosen = store(), store(to=LONDON)
    for words in ((by_id.id,), ("--to", LONDON, "--yes")):
        assert messages("cancel", *words, "--note", given).exit_code == 0
    for message in (by_id, chosen):
        shown = json.loads(messages("show", message.id).stdout)
        assert (shown["status"], shown["note"]) == ("cancelled", kept)


def test_a_note_that_is_too_long_cancels_nothing(refused):
    message = store()
    line = refused("messages", "cancel", str(message.id), "--note", "x" * 501)
    assert line == "Error: a note has 500 characters at most: this one has 501"
    assert again(message).status == Status.QUEUED


def test_what_waits_for_a_number_is_cancelled(messages):
    wanted = [store(to=LONDON), store(to=LONDON, status=Status.SCHEDULED, key=key_named("shop"))]
    kept = [store(), held(Status.SENDING, to=LONDON)]
    result = messages("cancel", "--to", LONDON, "--yes")
    assert (result.exit_code, result.stderr) == (0, "")
    counts, *done, total = result.stdout.splitlines()
    assert (counts, total) == ("2 messages: 1 scheduled, 1 queued", "2 cancelled")
    assert {*done} == {f"{each.id}: cancelled" for each in wanted}
    assert [again(message).__data__ for message in kept] == [message.__data__ for message in kept]


@pytest.mark.parametrize(
    "words",
    [
        *((), ("--yes",), ("ID", "--key", "app"), ("ID", "--country", "US", "--yes")),
        *(("--key", "app", "--country", "USA"), ("--key", ""), ("--status", "good")),
    ],
)
@pytest.mark.parametrize("command", DONE)
def test_ids_or_what_chooses_them_have_to_be_given(messages, command, words):
    message = store(status=min(ALLOWED[command]), manual_mode=True, finished_at=TUESDAY_NOON)
    result = messages(command, *(message.id if word == "ID" else word for word in words))
    assert (result.exit_code, result.stdout) == (2, "")
    if command != "approve" and not {"USA", "", "good"} & {*words}:
        line = result.stderr.splitlines()[-1]
        assert line == "Error: Name messages by id, or choose them with --key or --to."
    assert again(message).__data__ == message.__data__


def test_approve_takes_ids_alone(messages):
    """Nobody approves by a filter what nobody has read."""
    message = store(manual_mode=True)
    assert messages("approve", "--key", "app", "--yes").exit_code == 2
    assert not again(message).approved


def test_the_ids_of_a_list_are_all_printed_alone(messages, listed):
    assert messages("list", "--ids").output == ""
    store_many(60)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON)
    for words in ((), ("--status", "failed"), ("--limit", "7")):
        ids = listed(*words)
        assert messages("list", "--ids", *words).output == "".join(f"{id}\n" for id in ids)


# purge, redact


@pytest.fixture
def ages(database_url):
    """An old and a young message in each state."""
    return {
        (status, finished_at): store(
            status=status,
            finished_at=finished_at if status in FINISHED else None,
            send_at=OLD,
            message=status.title(),
        )
        for status in Status
        for finished_at in (OLD, TUESDAY_NOON - 29 * DAY)
    }


def test_purge_deletes_what_ended_long_ago_and_nothing_else(ages, flask):
    result = flask("messages", "purge", "--older-than", "30")
    assert (result.exit_code, result.stdout) == (0, "7 deleted\n")
    kept = {message.id for message in Message.select()}
    gone = {message.id for (status, ended), message in ages.items() if message.id not in kept}
    assert gone == {ages[status, OLD].id for status in FINISHED}
    assert flask("messages", "purge", "--older-than", "30").stdout == "0 deleted\n"


def test_redact_clears_number_and_text_of_what_ended_long_ago_and_keeps_the_record(ages, flask):
    result = flask("messages", "redact", "--older-than", "30")
    assert (result.exit_code, result.stdout) == (0, "7 redacted\n")
    for (status, ended), before in ages.items():
        after = again(before)
        if status in FINISHED and ended == OLD:
            assert (after.to, after.message, after.response) == (None, None, None)
        else:
            assert (after.to, after.message) == (NEW_YORK, status.title())
        assert (after.status, after.finished_at) == (before.status, before.finished_at)
    assert flask("messages", "redact", "--older-than", "30").stdout == "0 redacted\n"


@on_postgres
def test_a_purge_is_quick_though_the_table_was_empty_when_postgres_last_looked(run):
    """For what it takes for a row or two, the planner repeats a subquery for each row."""
    old = {"status": Status.SENT, "finished_at": OLD, "to": None, "message": None}
    store_many(1500, **old)
    Message.delete().execute()
    database.db.execute_sql("ANALYZE message")
    store_many(1500, **old)
    assert run("messages", "purge", "--older-than", "30", "--yes") == "1500 deleted\n"


@pytest.mark.parametrize("which", [("--older-than", "30"), ("--to", NEW_YORK)])
def test_purge_and_redact_work_in_batches(database_url, run, which):
    store_many(2500, status=Status.SENT, finished_at=OLD)
    Message.update(to=NEW_YORK).execute()
    assert run("messages", "redact", *which) == "2500 redacted\n", "without asking"
    assert run("messages", "purge", "--older-than", "30", "--yes") == "2500 deleted\n"
    assert Message.select().count() == 0


def test_before_more_than_a_hundred_are_purged_somebody_is_asked(session):
    store()  # waits
    store(to=LONDON, status=Status.SENT, finished_at=TUESDAY_NOON - HOUR)
    store_many(101, status=Status.SENT, finished_at=OLD)
    session(f"""
        $ flask messages purge --older-than 1
        Error: Purge 101 messages? {NO_TERMINAL}
        [1]
        $ flask messages purge --older-than 1 --yes
        101 deleted
    """)
    store_many(100, status=Status.SENT, finished_at=OLD)
    session(f"""
        $ flask messages purge --older-than 1
        100 deleted
        $ flask messages purge --older-than 0
        Error: Purge every message that has ended? {NO_TERMINAL}
        [1]
        $ flask messages purge --older-than 0 --yes
        1 deleted
    """)
    assert [message.status for message in Message.select()] == [Status.QUEUED]


# redact --to


def test_a_number_and_its_texts_are_forgotten_but_not_what_still_waits(messages):
    ended = [
        store(status=status, finished_at=TUESDAY_NOON, response="{}", idempotency_key=status)
        for status in FINISHED
    ]
    waiting = [store(status=Status.SCHEDULED), store(status=Status.QUEUED), held(Status.SENDING)]
    other = store(to=LONDON, status=Status.SENT, finished_at=TUESDAY_NOON)
    result = messages("redact", "--to", NEW_YORK)
    assert (result.exit_code, result.stdout) == (0, f"{len(ended)} redacted\n")
    for message in map(again, ended):
        assert (message.to, message.message, message.response) == (None, None, None)
    for message in waiting:
        assert f"{message.id}: not redacted: {message.state()}" in result.stderr
        assert again(message).to == NEW_YORK
    assert again(other).to == LONDON
    assert str(other.id) not in result.stderr


def test_what_still_waits_can_be_cancelled_and_then_forgotten(session, database_url):
    message = store(status=Status.SCHEDULED)
    session(f"""
        $ flask messages redact --to {NEW_YORK}
        0 redacted
        {message.id}: not redacted: scheduled
        $ flask messages cancel --yes --to {NEW_YORK}
        1 message: 1 scheduled
        {message.id}: cancelled
        1 cancelled
        $ flask messages redact --to {NEW_YORK}
        1 redacted
        $ flask messages redact --to {NEW_YORK}
        0 redacted
    """)
    assert (again(message).to, again(message).status) == (None, Status.CANCELLED)
