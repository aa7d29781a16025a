"""A key that is paused: its requests are refused and its texts wait, until it is resumed."""

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from answers import accepted, refusal, sender
from databases import on_both
from running import wait_until
from samples import HOUR, LONDON, NEW_YORK, TUESDAY_NOON
from stored_messages import again, decide_on, key_named, new_message, statuses, store, store_many
from texting.access.keys import ApiKey
from texting.database import Refused, clock, disconnect
from texting.messages import decisions, storing
from texting.messages.admission import Request
from texting.messages.model import Status
from texting.reports import listings, queue
from texting.sending import claims

pytestmark = [on_both, pytest.mark.usefixtures("database_url")]


@pytest.fixture
def shop(client):
    send = sender(client, ApiKey.issue("shop", None, clock.now()))
    send.key = ApiKey.named("shop")
    return send


def test_its_requests_are_refused_until_it_is_resumed(shop):
    assert shop.key.pause(clock.now())
    response = shop()
    refusal(response, 403)
    assert response.json["message"] == "The key is paused."
    assert not shop.key.pause(clock.now())
    assert shop.key.resume(clock.now())
    accepted(shop())


@pytest.mark.parametrize("urgent", [True, False])
def test_its_texts_wait_and_others_do_not(run_pass, carrier, urgent):
    paused, other = key_named("shop"), key_named("other")
    if urgent:
        paused.rule({"urgent": True}, TUESDAY_NOON)
    waiting = store(key=paused)
    scheduled = store(key=paused, status=Status.SCHEDULED, send_at=TUESDAY_NOON)
    store(key=other, to=LONDON)
    paused.pause(TUESDAY_NOON)
    assert run_pass(TUESDAY_NOON, business_hours=(0, 1440))["sent"] == 1
    assert carrier.numbers == [LONDON]
    assert again(waiting).status == again(scheduled).status == Status.QUEUED
    paused.resume(TUESDAY_NOON)
    assert run_pass(TUESDAY_NOON)["sent"] == 2
    assert sorted(carrier.numbers) == sorted([LONDON, NEW_YORK, NEW_YORK])


def test_a_pass_does_not_say_that_they_wait_for_a_carrier(run_pass):
    """Or whoever has just paused all keys, after a restore, would look for what ails it."""
    paused = key_named("shop")
    store_many(2, key=paused)
    store(key=paused, manual_mode=True)
    store(key=key_named("other"))
    paused.pause(TUESDAY_NOON)
    waits = {"waiting for a paused key": 2, "waiting for approval": 1}
    assert +run_pass(TUESDAY_NOON) == {"sent": 1} | waits
    store(key=key_named("other"))
    assert +run_pass(TUESDAY_NOON, carrier=None) == {"waiting for a carrier": 1} | waits


def test_they_expire_as_usual(run_pass, carrier):
    paused = key_named("shop")
    message = store(key=paused, first_send_at=TUESDAY_NOON)
    paused.pause(TUESDAY_NOON)
    run_pass(TUESDAY_NOON + 80 * HOUR)
    assert again(message).status == Status.EXPIRED
    assert carrier.texts == []


@pytest.mark.parametrize("is_cancelled", [True, False])
@pytest.mark.parametrize("can_be_asked", [True, False])
def test_one_that_the_carrier_may_have_ends_as_usual(
    run_pass, carrier, askable, is_cancelled, can_be_asked
):
    paused = key_named("shop")
    message = store(key=paused, first_send_at=TUESDAY_NOON, in_doubt=1)
    paused.pause(TUESDAY_NOON)
    if is_cancelled:
        decide_on(message).cancel("ann", TUESDAY_NOON)
    given = askable if can_be_asked else carrier
    run_pass(TUESDAY_NOON + 80 * HOUR, carrier=given)
    run_pass(TUESDAY_NOON + 81 * HOUR, carrier=given)
    assert again(message).status == (Status.CANCELLED if is_cancelled else Status.EXPIRED)
    assert (again(message).last_error is None) == can_be_asked
    assert given.texts == []


def test_one_whose_texts_wait_is_revoked_only_with_cancel_which_cancels_them(run, refused, at):
    at(TUESDAY_NOON)
    paused, other = key_named("shop"), store(key=key_named("other"))
    waiting = [
        store(key=paused),
        store(key=paused, status=Status.SCHEDULED, send_at=TUESDAY_NOON + HOUR),
        store(key=paused, manual_mode=True),
    ]
    sent = store(key=paused, status=Status.SENT, finished_at=TUESDAY_NOON)
    run("keys", "pause", "shop")
    assert refused("keys", "revoke", "shop") == (
        "Error: the key 'shop' is paused and has waiting texts: add --cancel, or resume it first"
    )
    assert ApiKey.get_by_id(paused.id).revoked_at is None
    said = run("keys", "revoke", "shop", "--cancel")
    assert said == "shop: 3 texts cancelled\nshop: revoked\n"
    assert {again(each).status for each in waiting} == {Status.CANCELLED}
    assert {again(each).cancelled_by for each in waiting} == {"shell"}
    assert (again(sent).status, again(other).status) == (Status.SENT, Status.QUEUED)
    assert ApiKey.get_by_id(paused.id).revoked_at == TUESDAY_NOON
    assert run("keys", "revoke", "shop", "--cancel") == "shop: was already revoked\n"


@pytest.mark.parametrize("state", ["being sent", "withdrawn", "ended", "resumed"])
def test_one_is_revoked_without_cancel_unless_a_text_could_wait_for_ever(run, flask, at, state):
    at(TUESDAY_NOON)
    columns = {
        "being sent": {"status": Status.SENDING, "claimed_at": TUESDAY_NOON},
        "withdrawn": {"in_doubt": 1, "carrier": "fake", "cancelled_by": "shell"},
        "ended": {"status": Status.FAILED, "finished_at": TUESDAY_NOON},
        "resumed": {},
    }[state]
    message = store(key=key_named("shop"), **columns)
    run("keys", "pause", "shop")
    if state == "resumed":
        run("keys", "resume", "shop")
    assert flask("keys", "revoke", "shop").exit_code == (state == "being sent")
    assert again(message).status == message.status


def test_a_key_that_is_not_paused_is_revoked_with_its_texts_too(run, carrier, run_pass, at):
    at(TUESDAY_NOON)
    message = store(key=key_named("shop"))
    doubtful = store(key=key_named("shop"), in_doubt=1, carrier="fake")
    assert run("keys", "revoke", "shop", "--cancel").endswith("shop: revoked\n")
    assert again(message).status == Status.CANCELLED
    assert again(doubtful).is_withdrawn
    run_pass(TUESDAY_NOON)
    assert carrier.texts == []


def test_a_key_that_is_paused_while_it_is_revoked_is_not_revoked():
    read = key_named("shop")
    message = store(key=read)
    ApiKey.get_by_id(read.id).pause(TUESDAY_NOON)
    with pytest.raises(Refused, match="just now"):
        decisions.revoke(read, TUESDAY_NOON)
    assert ApiKey.get_by_id(read.id).revoked_at is None
    assert again(message).status == Status.QUEUED


@pytest.fixture(params=["_insert", "_count"])
def gate(monkeypatch, request):
    """Whether a text's key has been read, and whether its transaction may go on."""
    held, go_on, step = threading.Event(), threading.Event(), getattr(storing, request.param)

    def waiting(given):
        held.set()
        go_on.wait(60)
        return step(given)

    monkeypatch.setattr(storing, request.param, waiting)
    return held, go_on


def test_a_text_that_is_being_stored_is_cancelled_with_its_key(kind, database_url, gate):
    """The command waits for it."""
    key, (held, go_on) = key_named("shop"), gate
    with ThreadPoolExecutor(2) as pool:
        stored = pool.submit(in_thread, storing.insert_all, [Request(new_message(key=key.id))])
        assert held.wait(60)
        revoked = pool.submit(in_thread, decisions.revoke_and_cancel, key, "shell")
        if kind == "postgres":
            wait_until(lambda: revoked.done() or is_waiting(database_url))
        go_on.set()
        assert len(stored.result()) == 1
        assert revoked.result() == (True, 1)
    assert statuses() == {Status.CANCELLED: 1}


def test_a_paused_key_is_not_revoked_while_a_text_is_being_stored(kind, database_url, gate):
    key, (held, go_on) = key_named("shop"), gate
    with ThreadPoolExecutor(2) as pool:
        stored = pool.submit(in_thread, storing.insert_all, [Request(new_message(key=key.id))])
        assert held.wait(60)
        if kind == "sqlite":
            go_on.set()  # nothing is written beside it
        key.pause(TUESDAY_NOON)
        paused = ApiKey.get_by_id(key.id)
        revoked = pool.submit(in_thread, decisions.revoke, paused, TUESDAY_NOON)
        if kind == "postgres":
            wait_until(lambda: revoked.done() or is_waiting(database_url))
        go_on.set()
        stored.result()
        with pytest.raises(Refused, match="has waiting texts"):
            revoked.result()


def in_thread(action, *arguments):
    try:
        return action(*arguments)
    finally:
        disconnect()


def test_what_waits_again_under_a_key_that_nobody_can_resume_is_cancelled(
    run, run_pass, carrier, at
):
    """It was being sent, or is retried, when its key is revoked with its texts."""
    at(TUESDAY_NOON)
    key, other = key_named("shop"), key_named("other")
    tried = [store(key=each, status=Status.FAILED, finished_at=TUESDAY_NOON) for each in (key, key)]
    plain = store(key=other, to=LONDON)
    other.revoke(TUESDAY_NOON)
    run("keys", "revoke", "shop", "--cancel")
    assert len(decide_on(*tried).retry(TUESDAY_NOON, 72 * HOUR)) == 2
    run_pass(TUESDAY_NOON, business_hours=(0, 1440))
    run_pass(TUESDAY_NOON, business_hours=(0, 1440))
    assert {again(each).status for each in tried} == {Status.CANCELLED}
    assert again(plain).status == Status.SENT
    assert carrier.numbers == [LONDON]


@pytest.mark.slow
def test_ten_thousands_of_texts_are_cancelled_with_their_key_in_batches(run, at):
    at(TUESDAY_NOON)
    store_many(9_999, key=key_named("shop"))
    store_many(9_999, key=key_named("shop"), status=Status.SCHEDULED)
    run("keys", "pause", "shop")
    assert run("keys", "revoke", "shop", "--cancel").startswith("shop: 19998 texts cancelled\n")
    assert statuses() == {Status.CANCELLED: 19_998}


def test_a_revoked_key_cannot_be_paused():
    key = key_named("shop")
    key.revoke(TUESDAY_NOON)
    with pytest.raises(Refused):
        ApiKey.get_by_id(key.id).pause(TUESDAY_NOON)


def test_what_waits_is_nobodys_fault_and_what_was_sent_still_counts():
    paused, before = key_named("shop"), TUESDAY_NOON - HOUR
    store(before, key=paused)
    store(before, key=paused, status=Status.SCHEDULED)
    store(before, key=paused, due_since=before)
    store(before, key=paused, status=Status.SENT, finished_at=before)
    assert [each.since for each in queue.due(TUESDAY_NOON, claims.ready())] == [before] * 3
    paused.pause(TUESDAY_NOON)
    assert queue.due(TUESDAY_NOON, claims.ready()) == []
    assert queue.to_be_sent(TUESDAY_NOON) == 0
    assert queue.last_sent_at() == before
    assert listings.times_texted([NEW_YORK], before) == {NEW_YORK: 1}


def is_waiting(url):
    query = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = %s"
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query, [connection.info.dbname]).fetchall()
