"""flask messages: list, show, approve, cancel, retry, purge, redact."""

import json
import re
import uuid
from datetime import UTC, datetime
from pathlib import Path

import pytest

import database
from access.do_not_call import DoNotCall
from access.keys import ApiKey
from carriers import Carrier
from databases import on_postgres, on_sqlite
from models import FINISHED, Message, Status, new_id
from samples import DAY, HOUR, LONDON, NEW_YORK, SECOND, SUNDAY_NIGHT, TUESDAY_NOON
from scheduler import Scheduler
from sending.outcomes import Outcome
from stored_messages import again, claim, held, key_named, store, store_many

MONDAY_OPENING = datetime(2026, 3, 2, 14, tzinfo=UTC)  # 9 AM in New York
OLD = TUESDAY_NOON - 31 * DAY
UNKNOWN = str(new_id(TUESDAY_NOON))


@pytest.fixture
def messages(flask, at):
    """Run `flask messages …` at noon: `messages("approve", message.id)`."""
    at(TUESDAY_NOON)
    return lambda *words: flask("messages", *map(str, words))


@pytest.fixture
def listed(messages):
    """The ids that `flask messages list` lists, in its order: `listed("--status", "sent")`."""

    def ids(*words):
        result = messages("list", "--json", *words)
        assert (result.exit_code, result.stderr) == (0, "")
        return [uuid.UUID(shown["message_id"]) for shown in json.loads(result.stdout)]

    return ids


# list


def test_a_row_has_what_an_operator_needs_and_masks_the_number(messages):
    message = store(attempts=2, status=Status.SCHEDULED)
    header, row = messages("list").stdout.splitlines()
    assert re.split("  +", row) == [
        *(str(message.id), "scheduled", "+12•••••••23", "2026-03-03T17:00:00.000Z"),
        *("12:00 PM, Tuesday, Mar 3", "2", "app", "-"),
    ]
    assert header.index("local time") == row.index("12:00 PM")


def test_no_number_and_no_text_is_in_a_list_for_people(messages):
    numbers = (NEW_YORK, LONDON, "+376312345", "+6907123")
    for number in numbers:
        store(to=number, message="attack at dawn")
    shown = "\n".join(line[36:] for line in messages("list").stdout.splitlines())  # without ids
    for number in numbers:
        assert number[:3] in shown
        assert number[3:-2] not in shown
    assert "attack" not in shown


def test_what_awaits_approval_says_so(messages):
    store(manual_mode=True)
    assert "queued (awaiting approval)" in messages("list").stdout


def test_what_was_refused_awaits_nothing(messages):
    message = store(manual_mode=True)
    messages("cancel", str(message.id))
    assert " cancelled  " in messages("list").stdout
    assert "awaiting" not in messages("list").stdout


def test_a_number_that_a_newer_libphonenumber_refuses_is_listed_all_the_same(messages):
    message = store(to="+10000000000")
    result = messages("list")
    assert result.exit_code == 0
    assert str(message.id) in result.stdout


def test_a_redacted_message_is_listed_all_the_same(messages, listed):
    message = store(to=None, message=None, status=Status.SENT, finished_at=TUESDAY_NOON)
    assert str(message.id) in messages("list").stdout
    assert listed() == [message.id]


def test_a_list_begins_with_the_newest(listed):
    ids = [store().id for _ in range(5)]
    assert listed() == sorted(ids, reverse=True)


def test_a_list_can_be_narrowed_to_a_status(listed):
    messages = {
        status: held(status, finished_at=TUESDAY_NOON if status in FINISHED else None)
        for status in Status
    }
    for status in Status:
        assert listed("--status", status) == [messages[status].id]


def test_a_status_that_does_not_exist_is_refused_with_those_that_do(messages):
    result = messages("list", "--status", "done")
    assert result.exit_code == 2
    assert ", ".join(f"'{status}'" for status in Status) in result.stderr


def test_a_list_can_be_narrowed_to_what_awaits_approval(listed):
    older = store(manual_mode=True, now=TUESDAY_NOON - DAY)
    newer = store(manual_mode=True, status=Status.SCHEDULED)
    store()
    store(manual_mode=True, approved=True)
    for status in set(Status) - {Status.SCHEDULED, Status.QUEUED}:
        held(status, manual_mode=True)
    assert listed("--awaiting-approval") == [newer.id, older.id]
    assert listed("--awaiting-approval", "--status", "queued") == [older.id]


def test_groups_are_distinguished_exactly(listed):
    names = ("red", "RED", "red ", "re", "r%d", "r_d")
    ids = [store(key=key_named(f"key of {g!r}", g), available_to_group=True).id for g in names]
    for group, message_id in zip(names, ids, strict=True):
        assert listed("--visible-to", f"key of {group!r}") == [message_id]


def test_what_a_key_may_see_can_be_narrowed_too(listed):
    shared = store(key=key_named("a", "red"), available_to_group=True, manual_mode=True)
    store(key=key_named("a", "red"), available_to_group=True)
    key_named("b", "red")
    assert listed("--visible-to", "b", "--awaiting-approval") == [shared.id]
    assert listed("--visible-to", "b", "--status", "sent") == []


def test_a_list_can_be_narrowed_to_a_number_a_key_a_group_and_a_time(listed):
    mine = store(key=key_named("a", "red"), to=LONDON, now=TUESDAY_NOON - 2 * DAY)
    other = store(key=key_named("b", "red"), now=TUESDAY_NOON - DAY)
    foreign = store(key=key_named("c", "blue"), now=TUESDAY_NOON)
    assert listed("--to", "+44 20 8366 1177") == [mine.id]
    assert listed("--key", "a") == [mine.id]
    assert listed("--group", "red") == [other.id, mine.id]
    assert listed("--group", "red", "--key", "b") == [other.id]
    assert listed("--since", "25h") == [foreign.id, other.id]
    assert listed("--since", "2026-03-03T17:00Z") == [foreign.id]
    assert listed("--since", "2026-03-02", "--to", NEW_YORK) == [foreign.id, other.id]
    assert listed("--since", "2026-03-03T18:00+02:00", "--status", "sent") == []


def test_the_messages_of_a_name_that_was_used_again_are_those_of_both_keys(listed, run):
    first = store(key=key_named("a", "red"))
    run("keys", "revoke", "a")
    ApiKey.issue("a", "blue", TUESDAY_NOON)
    second = store(key=ApiKey.named("a"))
    assert {*listed("--key", "a")} == {first.id, second.id}
    assert listed("--group", "red") == [first.id]


@pytest.mark.parametrize("words", ["--key nobody", "--group nobody", "--visible-to nobody"])
def test_a_key_or_group_that_does_not_exist_is_reported(words, messages):
    result = messages("list", *words.split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("since", ["yesterday", "1", "2026-13-01", "-1d", "٣d", "9" * 30 + "d", ""])
def test_a_time_that_is_none_is_refused(since, messages):
    assert messages("list", "--since", since).exit_code == 2


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
    shown = json.loads(result.stdout)
    assert shown == {
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
        "approved_by": None,
        "cancelled_by": None,
        "manual_mode": False,
        "available_to_group": False,
        "check_dnc": True,
        "last_error": "out of order",
        "carrier": None,
        "carrier_reference": "SM1",
        "in_doubt": 0,
        "send_date": "2026-03-03T17:00:00.000Z",
        "first_send_at": "2026-03-03T17:00:00.000Z",
        "send_at": "2026-03-03T17:00:00.000Z",
        "expires_at": "2026-03-06T17:00:00.000Z",
        "created_at": "2026-03-03T17:00:00.000Z",
        "approved_at": None,
        "last_error_at": None,
        "finished_at": "2026-03-02T04:30:00.000Z",
        "receipt_at": None,
        "told_at": None,
        "waits_for": None,
        "history": [],
    }


def test_show_takes_an_id_in_any_of_its_forms(messages):
    message = store()
    for form in (message.id, message.id.hex, str(message.id).upper()):
        assert json.loads(messages("show", form).stdout)["message_id"] == str(message.id)


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
        }.get(status, f"{status} at 2026-03-02 04:30:00 UTC")
        assert result.stderr == f"{message.id}: not {DONE[command]}: {reason}\n"


@pytest.mark.parametrize("command", DONE)
def test_several_ids_are_served_one_by_one_and_one_refusal_shows_in_the_exit_status(
    messages, command
):
    good = [store(status=min(ALLOWED[command]), manual_mode=True) for _ in range(3)]
    sent = store(status=Status.SENT, finished_at=TUESDAY_NOON)
    assert messages(command, *(m.id for m in good[:2])).exit_code == 0
    result = messages(command, sent.id, UNKNOWN, good[2].id)
    assert result.exit_code == 1
    assert result.stdout == f"{good[2].id}: {DONE[command]}\n"
    refused, unknown = result.stderr.splitlines()
    assert refused == f"{sent.id}: not {DONE[command]}: sent at 2026-03-03 17:00:00 UTC"
    assert unknown == f"{UNKNOWN}: there is no such message"


@pytest.mark.parametrize("command", [*DONE, "show"])
def test_an_unknown_id_is_refused_in_one_line(messages, command):
    result = messages(command, UNKNOWN)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith("there is no such message\n")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [*DONE, "show"])
def test_what_is_no_id_is_refused_and_nothing_is_done(messages, command):
    message = store(manual_mode=True)
    for bad in ("1", "", "zzz", f"{UNKNOWN}0", "' OR 1=1 --", "é"):
        result = messages(command, bad)
        assert result.exit_code == 2
        assert "is not a valid UUID" in result.stderr
    assert again(message).__data__ == message.__data__


@pytest.mark.parametrize("command", DONE)
def test_without_an_id_a_command_shows_its_usage(messages, command):
    result = messages(command)
    assert result.exit_code == 2
    assert "Usage:" in result.stderr


@pytest.mark.parametrize("command", DONE)
def test_one_bad_id_among_good_ones_stops_before_anything_is_done(messages, command):
    message = store(status=min(ALLOWED[command]), manual_mode=True)
    assert messages(command, message.id, "zzz").exit_code == 2
    assert again(message).__data__ == message.__data__


def test_approving_twice_is_approving_once(messages):
    message = store(manual_mode=True)
    for _ in range(2):
        result = messages("approve", message.id, message.id)
        assert (result.exit_code, result.stderr) == (0, "")
    assert again(message).approved


def test_what_was_approved_can_still_be_cancelled_and_what_was_cancelled_not_approved(messages):
    message = store(manual_mode=True)
    assert messages("approve", message.id).exit_code == 0
    assert messages("cancel", message.id).exit_code == 0
    assert messages("approve", message.id).exit_code == 1
    assert again(message).status == Status.CANCELLED
    assert again(message).finished_at == TUESDAY_NOON


def test_cancel_of_a_text_in_doubt_says_that_the_carrier_may_have_it(messages):
    message = store(in_doubt=1, in_doubt_since=TUESDAY_NOON)
    result = messages("cancel", message.id)
    assert result.exit_code == 0
    assert result.stdout == f"{message.id}: cancelled, unless the carrier has it already\n"
    assert (again(message).status, again(message).cancelled_by) == (Status.QUEUED, "shell")
    assert again(message).state() == "cancelled, unless the carrier has it already"


def test_cancel_is_how_an_approver_says_no(messages, listed):
    message = store(manual_mode=True)
    assert messages("cancel", message.id).exit_code == 0
    assert listed("--awaiting-approval") == []


@pytest.fixture
def carrier():
    """A carrier that takes every text; `.sent` are their numbers."""

    class Taking(Carrier):
        name = "taking"

        def __init__(self):
            self.sent = []

        def send(self, to, text, **_):
            self.sent.append(to)

    return Taking()


@pytest.mark.parametrize("status", sorted(ALLOWED["retry"]))
def test_retry_gives_a_message_all_its_retries_again(messages, settings, carrier, status):
    message = store(
        status=status, attempts=4, last_error="busy", finished_at=SUNDAY_NIGHT, send_at=SUNDAY_NIGHT
    )
    assert messages("retry", message.id).exit_code == 0
    waiting = again(message)
    assert (waiting.status, waiting.attempts) == (Status.SCHEDULED, 0)
    assert (waiting.send_at, waiting.finished_at) == (TUESDAY_NOON, None)
    assert Scheduler(settings, carrier).run_pass()["sent"] == 1
    assert carrier.sent == [NEW_YORK]


def test_retry_keeps_approval_and_the_do_not_call_list_in_force(messages, settings, carrier):
    unapproved = store(status=Status.BLOCKED, manual_mode=True, finished_at=SUNDAY_NIGHT)
    listed = store(status=Status.BLOCKED, check_dnc=True, to=LONDON, finished_at=SUNDAY_NIGHT)
    DoNotCall.add([LONDON], TUESDAY_NOON, "operator")
    assert messages("retry", unapproved.id, listed.id).exit_code == 0
    Scheduler(settings, carrier).run_pass()
    assert carrier.sent == []
    assert (again(unapproved).status, again(unapproved).approved) == (Status.QUEUED, False)
    assert again(listed).status == Status.BLOCKED


def test_retry_keeps_to_business_hours_an_hour_after_the_send_date(flask, settings, carrier, at):
    message = store(status=Status.FAILED, send_date=SUNDAY_NIGHT, finished_at=SUNDAY_NIGHT)
    for late, sent in ((HOUR - SECOND, 1), (HOUR, 0)):
        at(SUNDAY_NIGHT + late)
        Message.update(status=Status.FAILED).execute()
        assert flask("messages", "retry", str(message.id)).exit_code == 0
        assert Scheduler(settings, carrier).run_pass()["sent"] == sent
    assert again(message).send_at == MONDAY_OPENING


def test_retry_keeps_a_send_date_that_is_still_to_come(messages, settings, carrier, at):
    """For example after a STOP that the recipient took back."""
    message = store(status=Status.BLOCKED, send_date=TUESDAY_NOON + HOUR, finished_at=SUNDAY_NIGHT)
    assert messages("retry", message.id).exit_code == 0
    assert Scheduler(settings, carrier).run_pass()["sent"] == 0
    assert again(message).send_at == TUESDAY_NOON + HOUR
    at(TUESDAY_NOON + HOUR)
    assert Scheduler(settings, carrier).run_pass()["sent"] == 1


@pytest.mark.parametrize("command", DONE)
def test_filters_say_which_messages_and_yes_does_it_without_asking(messages, command):
    status = min(ALLOWED[command])
    kept = [
        store(status=status, manual_mode=True, finished_at=TUESDAY_NOON),
        store(status=Status.SENT, to=LONDON, finished_at=TUESDAY_NOON),
        held(Status.SENDING, to=LONDON, manual_mode=True),
    ]
    wanted = [
        store(status=status, to=LONDON, manual_mode=True, finished_at=TUESDAY_NOON)
        for _ in range(3)
    ]
    result = messages(command, "--to", LONDON, "--yes")
    assert (result.exit_code, result.stderr) == (0, "")
    done = [f"{message.id}: {DONE[command]}" for message in wanted]
    assert sorted(result.stdout.splitlines()) == sorted(done)
    assert [again(message).__data__ for message in kept] == [message.__data__ for message in kept]
    once_more = messages(command, "--to", LONDON, "--yes", "--status", "sent")
    assert once_more.stdout == f"there are no such messages to {command}\n"
    assert once_more.exit_code == 0


@pytest.mark.parametrize("command", DONE)
def test_without_a_terminal_and_without_yes_nothing_is_done(messages, command):
    message = store(status=min(ALLOWED[command]), manual_mode=True, finished_at=TUESDAY_NOON)
    result = messages(command, "--to", NEW_YORK)
    assert result.exit_code == 1
    question = f"{command.capitalize()} 1 message?"
    hint = "There is no terminal to ask on; --yes skips the question."
    assert result.stderr == f"Error: {question} {hint}\n"
    assert again(message).__data__ == message.__data__


@pytest.mark.parametrize("words", [("--limit", "3"), ("--yes",), ("--limit", "3", "--yes")])
@pytest.mark.parametrize("command", DONE)
def test_a_command_for_every_message_there_is_needs_a_filter(messages, command, words):
    message = store(status=min(ALLOWED[command]), manual_mode=True, finished_at=TUESDAY_NOON)
    assert messages(command, *words).exit_code == 2
    assert messages(command, message.id, "--to", NEW_YORK).exit_code == 2
    assert again(message).__data__ == message.__data__


def test_the_limit_takes_the_newest(messages):
    older = store(manual_mode=True, now=TUESDAY_NOON - DAY)
    newer = store(manual_mode=True)
    assert messages("approve", "--awaiting-approval", "--limit", "1", "--yes").exit_code == 0
    assert (again(older).approved, again(newer).approved) == (False, True)


def test_what_was_redacted_is_not_tried_again(messages):
    message = store(status=Status.FAILED, to=None, message=None, finished_at=SUNDAY_NIGHT)
    assert messages("retry", message.id).exit_code == 1
    assert again(message).status == Status.FAILED


def test_a_database_that_fails_is_one_line_and_a_status(flask):
    database.db.execute_sql("ALTER TABLE message RENAME TO hidden")
    result = flask("messages", "list")
    database.db.execute_sql("ALTER TABLE hidden RENAME TO message")
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: the database failed: ")
    assert result.stderr.count("\n") == 1


def test_numbers_are_masked_in_a_list_and_whole_in_json(post, run, at):
    at(SUNDAY_NIGHT)
    post(message="Hello\x1b[31m", manual_mode=True)
    at(TUESDAY_NOON)
    post(to="+819012345678", send_date="9999-12-31T23:59:59.999Z")  # there, the year 10000
    table = run("messages", "list")
    assert NEW_YORK not in table
    assert "Hello" not in table
    _, far, held = table.splitlines()
    assert "scheduled (awaiting approval)" in held
    assert "9:00 AM, Monday, Mar 2" in held
    assert "9999-12-31T23:59:59.999Z" in far
    _, first = json.loads(run("messages", "list", "--json"))
    assert (first["to"], first["message"]) == (NEW_YORK, "Hello\x1b[31m")
    assert json.loads(run("messages", "show", first["message_id"])) == first
    assert json.loads(run("messages", "list", "--awaiting-approval", "--json")) == [first]
    assert json.loads(run("messages", "list", "--status", "sent", "--json")) == []


# purge, redact


@pytest.fixture
def ages(database_url, at):
    """An old and a young message in each state."""
    at(TUESDAY_NOON)
    return {
        (status, finished_at): store(
            status=status, finished_at=finished_at if status in FINISHED else None, send_at=OLD
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
            assert (after.to, after.message, after.answer) == (None, None, None)
        else:
            assert (after.to, after.message) == (NEW_YORK, "Hello")
        assert (after.status, after.finished_at) == (before.status, before.finished_at)
    assert flask("messages", "redact", "--older-than", "30").stdout == "0 redacted\n"


def test_while_an_equal_text_is_in_doubt_a_text_is_neither_purged_nor_redacted(run, at):
    """Its reference tells whose copy it is that the carrier names."""
    at(TUESDAY_NOON)
    doubtful = store(in_doubt=1, in_doubt_since=OLD)
    store(status=Status.SENT, finished_at=OLD, carrier_reference="SM1")
    store(message="Another", status=Status.SENT, finished_at=OLD)
    assert run("messages", "redact", "--older-than", "30") == "1 redacted\n"
    assert run("messages", "purge", "--older-than", "30") == "1 deleted\n"
    Message.update(in_doubt=0).where(Message.id == doubtful.id).execute()
    assert run("messages", "redact", "--older-than", "30") == "1 redacted\n"
    assert run("messages", "purge", "--older-than", "30") == "1 deleted\n"


@on_postgres
def test_a_purge_is_quick_though_the_table_was_empty_when_postgres_last_looked(run, at):
    """For what it takes for a row or two, the planner repeats a subquery for each row."""
    at(TUESDAY_NOON)
    old = {"status": Status.SENT, "finished_at": OLD, "to": None, "message": None}
    store_many(1500, **old)
    Message.delete().execute()
    database.db.execute_sql("ANALYZE message")
    store_many(1500, **old)
    assert run("messages", "purge", "--older-than", "30", "--yes") == "1500 deleted\n"


def test_purge_and_redact_work_in_batches(database_url, run, at):
    at(TUESDAY_NOON)
    store_many(2500, status=Status.SENT, finished_at=OLD)
    assert run("messages", "redact", "--older-than", "30") == "2500 redacted\n"
    assert run("messages", "purge", "--older-than", "30", "--yes") == "2500 deleted\n"
    assert Message.select().count() == 0


def test_to_purge_everything_has_to_be_meant(ages, flask):
    refused = flask("messages", "purge", "--older-than", "0")
    assert refused.exit_code == 1
    assert "Purge every message that has ended?" in refused.stderr
    assert Message.select().count() == len(ages)
    assert flask("messages", "purge", "--older-than", "0", "--yes").stdout == "14 deleted\n"


# redact --to


def test_a_number_and_its_texts_are_forgotten_but_not_what_still_waits(messages):
    ended = [
        store(status=status, finished_at=TUESDAY_NOON, answer="{}", idempotency_key=status)
        for status in FINISHED
    ]
    waiting = [store(status=Status.SCHEDULED), store(status=Status.QUEUED), held(Status.SENDING)]
    other = store(to=LONDON, status=Status.SENT, finished_at=TUESDAY_NOON)
    result = messages("redact", "--to", NEW_YORK)
    assert (result.exit_code, result.stdout) == (0, f"{len(ended)} redacted\n")
    for message in map(again, ended):
        assert (message.to, message.message, message.answer) == (None, None, None)
    for message in waiting:
        assert f"{message.id}: not redacted: {message.state()}" in result.stderr
        assert again(message).to == NEW_YORK
    assert again(other).to == LONDON
    assert str(other.id) not in result.stderr


def test_what_still_waits_can_be_cancelled_and_then_forgotten(messages):
    message = store(status=Status.SCHEDULED)
    assert messages("cancel", "--to", NEW_YORK, "--yes").exit_code == 0
    assert messages("redact", "--to", NEW_YORK).stdout == "1 redacted\n"
    assert (again(message).to, again(message).status) == (None, Status.CANCELLED)
    assert messages("redact", "--to", NEW_YORK).stdout == "0 redacted\n"


@pytest.mark.parametrize("command", ["list", "cancel", "redact"])
def test_a_number_can_be_given_as_people_in_its_country_write_it(messages, command):
    store(status=Status.SENT, finished_at=TUESDAY_NOON)
    assert messages(command, "--to", "(212) 555-0123", "--region", "US").exit_code == 0
    result = messages(command, "--to", "(212) 555-0123")
    assert result.exit_code == 2
    assert "--region accepts national numbers" in result.stderr


@pytest.mark.parametrize("words", [[], ["--to", NEW_YORK, "--older-than", "1"]])
def test_redact_needs_a_number_or_an_age(messages, words):
    assert messages("redact", *words).exit_code == 2


@pytest.mark.slow
@on_sqlite
def test_what_was_redacted_is_nowhere_in_the_files_of_sqlite(messages, database_url):
    for _ in range(300):
        store(message="A secret: xyzzy")
    for claimed in iter(lambda: claim(50), []):
        for message in claimed:  # the rows grow, and their pages are split
            message.apply(Outcome(Status.FAILED, "no such number", counted=True), TUESDAY_NOON)
    assert b"xyzzy" in files_of(database_url)
    assert messages("redact", "--to", NEW_YORK, "--yes").stdout == "300 redacted\n"
    assert b"xyzzy" not in files_of(database_url)
    assert NEW_YORK.encode() not in files_of(database_url)


def files_of(database_url):
    """The bytes of SQLite's file and its log."""
    path = Path(database_url.removeprefix("sqlite:///"))
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
