"""A decision can be undone for a minute, by the person who made it, while the text still waits."""

import json

import pytest

from databases import on_both
from desk_visitor import UNDONE, ask, signed_in
from own_threads import at_once
from samples import DAY, HOUR, LONDON, MILLISECOND, MINUTE, SECOND, TUESDAY_NOON
from stored_messages import FAKE, again, decide_on, key_named, store
from texting.access.audit import Action, Audit
from texting.access.do_not_call import OptedOut
from texting.access.keys import ApiKey
from texting.access.limits import parse_recipient_limit
from texting.carriers import CarrierError
from texting.events.outbox import Event, EventAddress
from texting.messages import doubts, receipts, waiting
from texting.messages.attempts import Attempt, Result
from texting.messages.model import Message, Status

SOON, LATER = TUESDAY_NOON + 5 * SECOND, TUESDAY_NOON + 30 * SECOND
TOLD = {"Approve": "approved", "Refuse": "refused", "Cancel": "cancelled"}


def columns(message):
    return vars(again(message))["__data__"]


@on_both
@pytest.mark.parametrize("button", TOLD)
@pytest.mark.parametrize("where", ["list", "message"])
def test_a_decision_names_its_text_and_is_undone(operator, at, button, where):
    message = ask(approved=button == "Cancel", status=Status.SCHEDULED, send_at=TUESDAY_NOON + HOUR)
    EventAddress.set(ApiKey.named("shop"), "http://x.test", TUESDAY_NOON)
    told, before = TOLD[button], columns(message)
    page = "/desk/messages" if where == "list" else f"/desk/messages/{message.id}"
    operator.press(button, message, on=page)
    assert f"1 text {told}: +1 212-555-0123 Undo for 60 seconds" in operator.page.text
    undo = {f"undo-{button.lower()}": message.id}
    at(TUESDAY_NOON + MINUTE - MILLISECOND)
    operator.send(page, **undo)
    assert f"{UNDONE[told]} of 1 text undone: +1 212-555-0123" in operator.page.text
    assert not operator.page.buttons("Undo")
    assert columns(message) == before
    operator.send(page, **undo)
    assert "Undo works for one minute" in operator.page.text
    assert columns(message) == before
    operator.press(button, message)
    events = [json.loads(event.body)["data"]["status"] for event in Event.select()]
    assert events == ([] if button == "Approve" else ["cancelled"] * 2)


NIGHT = TUESDAY_NOON + 10 * HOUR
WAYS_TO_WAIT = {  # when it is approved, and for how long that can be undone for certain
    "due": (TUESDAY_NOON, {}, 10),
    "due, and not queued yet": (TUESDAY_NOON, {"status": Status.SCHEDULED, "send_at": SOON}, 10),
    "due for long": (TUESDAY_NOON + HOUR, {}, 10),
    "due at a send_date": (TUESDAY_NOON, {"send_date": TUESDAY_NOON}, 10),
    "due in half a minute": (TUESDAY_NOON, {"status": Status.SCHEDULED, "send_at": LATER}, 30),
    "due tomorrow": (TUESDAY_NOON, {"status": Status.SCHEDULED, "send_at": NIGHT + DAY}, 60),
    "due at night": (NIGHT, {}, 60),
}


@on_both
@pytest.mark.parametrize("way", WAYS_TO_WAIT)
def test_what_is_approved_stays_for_as_long_as_undo_is_shown(approver, run_pass, carrier, at, way):
    """No pass sends it before; Undo has it wait as it did. Then it goes, unless it has to wait."""
    approved_at, waits, seconds = WAYS_TO_WAIT[way]
    message = ask(**waits)
    before = columns(message)
    for is_undone in (True, False):
        at(approved_at)
        approver.press("Approve", message, on="/desk/")
        assert f"Undo for {seconds} seconds" in approver.page.text
        for after in (SECOND, seconds * SECOND - MILLISECOND):
            run_pass(approved_at + after)
            assert carrier.texts == []
        if is_undone:
            approver.press("Undo")
            assert columns(message) | {"claim_number": 0} == before
            assert approver.page.buttons("Approve")
    run_pass(approved_at + seconds * SECOND)
    assert len(carrier.texts) == (seconds < 60)
    approver.open()
    assert not approver.page.buttons("Undo")


def test_what_was_tried_before_its_approval_is_undone_is_not_late_any_more(
    approver, run_pass, carrier, at
):
    """Nobody is told that it has waited, while it waits for a person again."""
    message = ask()
    before = columns(message)
    approver.press("Approve", message, on="/desk/")
    carrier.answers[message.to] = CarrierError("busy")
    run_pass(TUESDAY_NOON + 10 * SECOND)
    assert again(message).due_since == TUESDAY_NOON + 10 * SECOND
    at(TUESDAY_NOON + 30 * SECOND)
    approver.press("Undo")
    tried = dict.fromkeys(("attempts", "claim_number"), 1)
    tried |= {
        name: getattr(again(message), name) for name in ("carrier", "last_error", "last_error_at")
    }
    assert columns(message) == before | tried


def test_of_several_the_undo_is_of_those_that_are_still_here(approver, at):
    due, tomorrow = ask(), ask("Bye", status=Status.SCHEDULED, send_at=TUESDAY_NOON + DAY)
    approver.press("Approve selected", selected=[due, tomorrow], on="/desk/")
    assert "Undo for 10 seconds" in approver.page.text
    at(TUESDAY_NOON + 11 * SECOND)
    assert "Undo for 49 seconds" in approver.read()
    approver.press("Undo")
    assert "Approval of 1 text undone" in approver.page.text
    assert [again(each).approved for each in (due, tomorrow)] == [True, False]


def test_what_the_shell_approves_goes_at_once(run, run_pass, carrier):
    run("messages", "approve", str(ask().id))
    run_pass(TUESDAY_NOON)
    assert len(carrier.texts) == 1


@on_both
def test_what_is_undone_while_a_scheduler_claims_is_sent_or_waits(
    database_url, run_pass, carrier, at
):
    """Never both, and never neither, whoever is first."""
    asked = [ask(to=f"+1212555{n:04}") for n in range(100, 160)]
    for message in asked:
        assert decide_on(message).decide(True, "Ann", TUESDAY_NOON, TUESDAY_NOON + 10 * SECOND)
    now = TUESDAY_NOON + 10 * SECOND
    at(now)
    undone, _ = at_once(
        lambda: [message.to for message in asked if decide_on(message).undo_approval("Ann", now)],
        lambda: run_pass(now),
    )
    assert sorted([*undone, *carrier.numbers]) == [message.to for message in asked]
    waiting = Message.select().where(~Message.approved, Message.status == Status.QUEUED)
    assert {each.to for each in waiting} == {*undone}


def leave_in_doubt(message):
    unclear = {"carrier": FAKE, "begun_at": TUESDAY_NOON, "result": Result.UNCLEAR}
    Attempt.create(message=message, claim_number=1, **unclear)
    Message.update(status=Status.QUEUED).execute()
    doubts.recount([message.id])


def retry_in_doubt(message):
    Message.update(claim_number=1, claims_before_retry=1).execute()
    leave_in_doubt(message)


def begin(message):
    Message.update(status=Status.SENDING).execute()


def take(message):
    receipts.record_accepted({message.id: None}, TUESDAY_NOON, FAKE)


GONE = [
    (begin, "is being sent right now"),
    (take, "was sent"),
    (leave_in_doubt, "waits for the carrier"),
    (retry_in_doubt, "waits for the carrier"),
]


@pytest.mark.parametrize(("go", "words"), GONE)
def test_an_approved_text_that_may_have_gone_is_not_taken_back(approver, go, words):
    message = ask()
    approver.press("Approve", message, on="/desk/")
    go(message)
    before, form = columns(message), approver.page.buttons("Undo")
    approver.open()
    assert "1 text approved: +1 212-555-0123" in approver.page.text
    assert not approver.page.buttons("Undo")
    assert "Too late to undo" in approver.page.text
    approver.send("/desk/", **{form[0][1]["name"]: form[0][1]["value"]})
    assert "Undo works for one minute, and only until the text is sent" in approver.page.text
    assert "1 text not changed" in approver.page.text
    assert words in approver.page.text
    assert columns(message) == before


def test_a_text_that_was_redacted_meanwhile_has_no_undo(operator, run):
    message = ask()
    operator.press("Refuse", message, on="/desk/")
    assert operator.page.buttons("Undo")
    run("messages", "redact", "--to", message.to)
    operator.open()
    assert not operator.page.buttons("Undo")
    assert "Too late to undo" in operator.page.text


def test_only_the_same_person_undoes_and_only_what_was_decided(app, operator):
    message = ask()
    operator.press("Refuse", message, on="/desk/")
    other = signed_in(app, "Ann", "front")
    for action in ("undo-approve", "undo-refuse"):
        assert "was refused by Olga" in other.send("/desk/", **{action: message.id}).text
    assert other.send("/desk/", **{"undo-cancel": message.id}).status_code == 403
    assert again(message).status == Status.CANCELLED
    assert not decide_on(again(message)).undo_cancel("Olga", TUESDAY_NOON + MINUTE)
    Message.update(to=None, message=None).execute()
    assert not decide_on(again(message)).undo_cancel("Olga", TUESDAY_NOON)


@on_both
def test_a_text_that_was_withdrawn_or_is_listed_by_now_is_undone_as_it_may(database_url):
    withdrawn = store(approved=True, in_doubt=1, in_doubt_since=TUESDAY_NOON)
    listed = store(to=LONDON, check_dnc=True)
    for message in (withdrawn, listed):
        assert decide_on(message).cancel("Olga", TUESDAY_NOON)
    OptedOut.add([LONDON], TUESDAY_NOON, "carrier")
    for message in (withdrawn, listed):
        assert not decide_on(message).undo_cancel("Ann", TUESDAY_NOON)
        assert not decide_on(message).undo_cancel("Olga", TUESDAY_NOON + MINUTE)
        assert decide_on(message).undo_cancel("Olga", TUESDAY_NOON)
        assert not decide_on(message).undo_cancel("Olga", TUESDAY_NOON)
    waiting.promote(TUESDAY_NOON)
    assert not again(withdrawn).is_withdrawn
    assert [again(each).status for each in (withdrawn, listed)] == [Status.QUEUED, Status.BLOCKED]


@on_both
def test_an_undo_keeps_to_the_limit_of_its_recipient(database_url):
    limit = parse_recipient_limit("1/24h")
    refused, other = store(), store(to=LONDON)
    for message in (refused, other):
        assert decide_on(message).cancel("Olga", TUESDAY_NOON)
    store(TUESDAY_NOON - DAY, to=LONDON)
    store()
    assert not decide_on(refused).undo_cancel("Olga", TUESDAY_NOON, limit)
    assert decide_on(other).undo_cancel("Olga", TUESDAY_NOON, limit)
    withdrawn = store(to="+12125550188", in_doubt=1, in_doubt_since=TUESDAY_NOON)
    assert decide_on(withdrawn).cancel("Olga", TUESDAY_NOON)
    assert decide_on(withdrawn).undo_cancel("Olga", TUESDAY_NOON, limit), "it counts already"
    done = [row.message_id for row in Audit.select().where(Audit.what == Action.UNDONE)]
    assert done == [other.id, withdrawn.id]


@on_both
@pytest.mark.parametrize(
    ("others", "is_undone"),
    [
        ([-DAY, -DAY], True),
        ([-HOUR, HOUR], False),
        ([-HOUR, 23 * HOUR - MILLISECOND], False),
        ([HOUR, 2 * HOUR], False),
        ([-HOUR, 23 * HOUR], True),
        ([-HOUR, DAY], True),
        ([DAY, DAY + SECOND], True),
    ],
)
def test_an_undo_keeps_to_each_window_of_the_limit_that_its_text_is_in(
    database_url, others, is_undone
):
    message = store(send_at=TUESDAY_NOON + 10 * DAY, status=Status.SCHEDULED)
    later = TUESDAY_NOON + 2 * DAY
    assert decide_on(message).cancel("Olga", later)
    for after in others:
        store(TUESDAY_NOON + after)
    undone = decide_on(message).undo_cancel("Olga", later, parse_recipient_limit("2/24h"))
    assert undone == [message.id] * is_undone


def test_an_undo_of_a_testers_text_keeps_to_no_limit(database_url, tester):
    message = store(key=tester)
    assert decide_on(message).cancel("Olga", TUESDAY_NOON)
    store()
    assert decide_on(message).undo_cancel("Olga", TUESDAY_NOON, parse_recipient_limit("1/24h"))


@on_both
@pytest.mark.parametrize(
    ("own", "is_undone"), [("1/24h", False), ("2/24h", True), ("none", True), (None, False)]
)
def test_an_undo_keeps_to_its_keys_own_limit_of_recipients(database_url, own, is_undone):
    key = key_named("app")
    ApiKey.update(recipient_limit=own).where(ApiKey.id == key.id).execute()
    message = store(key=key)
    assert decide_on(message).cancel("Olga", TUESDAY_NOON)
    store(key=key)
    for _ in range(2 * (own is not None)):
        store(key=key_named("other"))
    undone = decide_on(message).undo_cancel("Olga", TUESDAY_NOON, parse_recipient_limit("1/24h"))
    assert undone == [message.id] * is_undone


@on_both
def test_an_undo_keeps_to_a_keys_limit_where_there_is_no_setting(database_url):
    key = key_named("app")
    ApiKey.update(recipient_limit="1/24h").where(ApiKey.id == key.id).execute()
    message = store(key=key)
    assert decide_on(message).cancel("Olga", TUESDAY_NOON)
    store(key=key)
    assert not decide_on(message).undo_cancel("Olga", TUESDAY_NOON)
