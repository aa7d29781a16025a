"""The wall clock was set back: what was noted before holds no longer than its kind can.

Each kind of instant is noted by a clock that is ahead, which is then set right. From then on it
holds no longer than the longest of its kind. A clock that is a few seconds early changes nothing.
"""

from typing import Any, NamedTuple

import pytest

import carriers
from access.do_not_call import OptedOut
from access.keys import ApiKey, Role
from access.limits import parse, parse_recipient_limit
from answers import sender
from app import create_app
from carriers import Receipt
from carriers.ways import Way
from databases import POSTGRES, SQLITE, on_both
from desk_visitor import Visitor
from events.delivery import Deliveries
from events.outbox import Event, EventAddress
from fake_carrier import ACCOUNT, FOR_NOW, SLOWLY
from models import Message, Status
from monitoring import notices
from samples import ALWAYS_OPEN, DAY, HOUR, MINUTE, NEW_YORK, SECOND, SUNDAY_NIGHT, TUESDAY_NOON
from sending import inbound, inbox, receipts
from sending.inbound import ReplyRules
from sending.passes import Passes
from sending.receipts import EarlyReceipt
from sending.replies import Reply
from signed_callbacks import SECRET, VONAGE, of_vonage
from stored_messages import again, decide_on, held, key_named, store

STEPS = {"an hour": HOUR, "a day": DAY, "a year": 365 * DAY}
EARLY = 4 * SECOND  # within what the clocks of machines may differ by
LEASE = 300 * SECOND
RATE = {"send_rate": 1 / 20}
KEPT = {"keep_texts": DAY}


class Service:
    """All of the service at an instant: `service.at(NOON)`."""

    def __init__(self, settings, carrier, at, run_pass):
        self.app, self.carrier, self.stop_clock = create_app(settings), carrier, at
        self.settings, self._run_pass = settings, run_pass
        self.client, self.serial, self.now, self.kept = self.app.test_client(), 0, None, {}

    def at(self, now):
        self.now = now
        self.stop_clock(now)

    def run_pass(self, **changes):
        return self._run_pass(self.now, **self.settings._asdict() | changes)

    def post(self, limits="", **fields):
        """Post a text with the key of these limits; return the status."""
        if limits not in self.kept:
            name = f"key {limits}"
            self.kept[limits] = ApiKey.issue(name, None, self.now, limits=parse(limits))
        self.answer = sender(self.client, self.kept[limits])(**fields)
        return self.answer.status_code

    def hear(self, text, at=None, **fields):
        """Have Vonage hand over what a recipient wrote, with or without its time."""
        self.serial += 1
        fields = {"msisdn": NEW_YORK[1:], "text": text, "messageId": str(self.serial)} | fields
        if at:
            fields["message-timestamp"] = f"{at:%Y-%m-%d %H:%M:%S}"
        answer = self.client.open("/carriers/vonage/inbound", **of_vonage(fields, SECRET))
        assert answer.status_code == 204

    def hear_part(self, number=1):
        part = {"concat": "true", "concat-ref": "7", "concat-total": "2"}
        self.hear(f"part {number}", **part, **{"concat-part": str(number)})

    def sign_in(self):
        """Have a person sign in."""
        self.person = Visitor(self.app)
        self.person.sign_in(ApiKey.issue("Olga", None, self.now, role=Role.OPERATOR))

    def tries(self):
        """Which events a scheduler that has just begun takes to tell."""
        deliveries = Deliveries(LEASE.seconds, lambda ids, now: None)
        deliveries.exchange(self.now)
        begun = sum(len(each.in_hand) for each in deliveries.receivers.values())
        return [deliveries.ended.get(timeout=5).event for _ in range(begun)]

    def told(self):
        """What people are told."""
        return [notification.text for notification in notices.pending(self.settings, self.now)]

    def problems(self):
        answer = self.client.get("/healthz?strict")
        return answer.json["details"]["problems"] if answer.status_code == 503 else []


@pytest.fixture
def settings(settings):
    return settings._replace(
        carrier_url=VONAGE,
        public_url="http://sms.example.com",
        secret_key="not so secret, but long enough!!",
        help_reply="Ask +1 212 555 0100.",
        **ALWAYS_OPEN,
    )


@pytest.fixture
def service(settings, carrier, at, run_pass):
    carrier.name = "vonage"
    return Service(settings, carrier, at, run_pass)


class Kind(NamedTuple):
    """A kind of instant: what notes it, whether it holds, how long usually, and at most."""

    note: Any
    holds: Any
    usual: Any
    longest: Any = None


# What recipients wrote


def start(service):
    service.hear("START")


def stop_is_void(service):
    service.hear("STOP", service.now)
    return not OptedOut.lists(NEW_YORK)


def part_is_hidden(service):
    return not [*inbox.listing(service.now)]


def part_is_told_of_later(service):
    service.run_pass()
    return Reply.get().due_at is not None


def hear_without_id(service, number):
    """Hear a part as over SMPP, which tells equal ones not apart."""
    said = carriers.Reply(NEW_YORK, f"part {number}", part=carriers.Part("7", 2, number))
    inbound.record([said], service.now, ReplyRules.of(service.settings, Way("vonage")))


def both_parts(service):
    hear_without_id(service, 1)
    hear_without_id(service, 2)


def part_is_a_repeat(service):
    hear_without_id(service, 1)
    return Reply.select().count() == 1


def help_answered(service):
    service.run_pass()  # what was given before is given by then
    held(Status.SENT, now=service.now, finished_at=service.now, carrier="vonage")
    service.hear("HELP")
    assert service.run_pass()["sent"] == 1


def help_is_not_answered(service):
    before = Message.select().where(Message.answers == "HELP").count()
    service.run_pass()
    held(Status.SENT, now=service.now, finished_at=service.now, carrier="vonage")
    service.hear("HELP")
    return Message.select().where(Message.answers == "HELP").count() == before


# Limits and people


def recipient_is_at_its_limit(service):
    limited = service.settings._replace(recipient_limit=parse_recipient_limit("1/24h"))
    service.client = create_app(limited).test_client()
    status = service.post()
    service.run_pass()
    return status == 429


def is_signed_in(service):
    service.person.open()
    return "Sign out" in service.person.page.text


def decide(button):
    def press(service):
        is_asked = button != "Cancel"
        asked = {"manual_mode": is_asked, "approved": not is_asked, "send_at": service.now + DAY}
        service.message = store(service.now, status=Status.SCHEDULED, **asked)
        service.state = vars(again(service.message))["__data__"]
        service.sign_in()
        service.person.open("/desk/messages")
        service.person.press(button, service.message)

    return press


def undo(button):
    def can_be_undone(service):
        person, form = service.person, f"undo-{button.lower()}"
        person.open("/desk/messages")
        is_shown = bool(person.page.buttons("Undo"))
        fields = [("csrf_token", person.token), (form, "selected"), ("id", service.message.id)]
        person.post("/desk/messages", fields)
        is_done = vars(again(service.message))["__data__"] == service.state
        assert is_shown == is_done
        return is_done

    return can_be_undone


# Notices and problems


def notice(service):
    store(service.now, manual_mode=True, approved=False)
    assert len(service.told()) == 1


def nothing_new_is_told(service):
    store(service.now, manual_mode=True, approved=False)
    return not service.told()


def notice_of_limit(service):
    assert service.post("1/d") == 201
    assert any("limit" in text for text in service.told())


def limit_is_not_told(service):
    service.post("1/d")
    return not any("limit" in text for text in service.told())


def no_pass_is_missed(service):
    return not any("no scheduler makes a pass" in problem for problem in service.problems())


def receiver_fails(service):
    key = key_named("app")
    if not EventAddress.select().exists():
        EventAddress.set(key, "http://127.0.0.1:9/", service.now)
        decide_on(store(service.now)).cancel("shell", service.now)
    EventAddress.note_failure(key.id, "http://127.0.0.1:9/", service.now)


def receiver_is_not_missed(service):
    service.tries()
    receiver_fails(service)
    return not any("webhooks" in problem for problem in service.problems())


def nothing_due_is_missed(service):
    service.run_pass(carrier=None)
    store(service.now - 3 * MINUTE, first_send_at=service.now)
    return not service.problems()


def not_stored(service):
    service.app.extensions["health"].not_stored_at = service.now


def it_is_told(service):
    return bool(service.app.extensions["health"].problems_of_web(service.now))


# Sending


def refused(answer):
    def send(service):
        service.carrier.answers[NEW_YORK] = answer
        store(service.now, max_retries=9)
        service.run_pass(send_concurrency=1)
        service.carrier.answers.clear()
        assert len(service.carrier.texts) == 1

    return send


def nothing_is_sent(**changes):
    def stands_still(service):
        sent = len(service.carrier.texts)
        service.run_pass(**changes)
        return len(service.carrier.texts) == sent

    return stands_still


def use_rate(service):
    store(service.now)
    store(service.now)
    assert service.run_pass(**RATE)["sent"] == 1


def claim(service):
    service.message = held(Status.SENDING, now=service.now, claimed_at=service.now)


def is_held(service):
    service.run_pass()
    return again(service.message).status == Status.SENDING


def retry_waits(service):
    service.run_pass()
    return len(service.carrier.texts) == 1 and Message.get().status == Status.SCHEDULED


# Events


def event(service):
    EventAddress.set(key_named("app"), "http://127.0.0.1:9/", service.now)
    decide_on(store(service.now)).cancel("shell", service.now)


def event_in_hand(service):
    event(service)
    assert service.tries()


def failed_event(service):
    event(service)
    service.tries()[0].failed("HTTP 500", service.now + 300 * SECOND, service.now)


def event_waits(service):
    return not service.tries()


def given_up(service):
    event(service)
    service.tries()[0].failed("HTTP 500", None, service.now)


def event_is_kept(service):
    service.tries()
    service.run_pass()
    return Event.select().exists()


# Growing old


def early_receipt(service):
    receipts.record_receipts(
        [Receipt("X1", True, None, NEW_YORK, None)], service.now, Way("vonage")
    )


def receipt_is_kept(service):
    service.run_pass()
    return EarlyReceipt.select().exists()


def text_that_ended(service):
    service.message = held(Status.SENT, now=service.now, finished_at=service.now)


def text_is_kept(service):
    service.run_pass(**KEPT)
    return again(service.message).message is not None


def reply_is_kept(service):
    service.run_pass(**KEPT)
    return Reply.select().exists()


NOTHING = 0 * SECOND
UNCHANGED_BY_A_LOOK = {
    *("a part of a reply", "a sign-in", "a notice of approvals"),
    *("a pause", "a refused account", "a used-up rate", "a claim", "a retry", "the last pass"),
    *("RECIPIENT_LIMIT", "an event in hand"),
    *("an event that is tried again", "a part that is told of", "an answer to HELP"),
    *("a receipt that matches nothing", "a text that ended", "an event that was given up"),
    *("a part that came before", "a notice of a limit"),
}
MONTH = 30 * DAY

KINDS = {
    "a START": Kind(start, stop_is_void, NOTHING),
    "a START with its own time": Kind(lambda s: s.hear("START", s.now), stop_is_void, NOTHING),
    "a part of a reply": Kind(Service.hear_part, part_is_hidden, 5 * MINUTE),
    "a part that came before": Kind(both_parts, part_is_a_repeat, 5 * MINUTE),
    "RECIPIENT_LIMIT": Kind(recipient_is_at_its_limit, recipient_is_at_its_limit, DAY),
    "a sign-in": Kind(Service.sign_in, is_signed_in, 12 * HOUR),
    "an approval": Kind(decide("Approve"), undo("Approve"), MINUTE),
    "a refusal": Kind(decide("Refuse"), undo("Refuse"), MINUTE),
    "a cancellation": Kind(decide("Cancel"), undo("Cancel"), MINUTE),
    "a notice of approvals": Kind(notice, nothing_new_is_told, 15 * MINUTE),
    "a notice of a limit": Kind(notice_of_limit, limit_is_not_told, 7 * HOUR - EARLY, DAY),
    "an event that is new": Kind(event, event_waits, NOTHING, LEASE),
    "an event in hand": Kind(event_in_hand, event_waits, LEASE),
    "an event that is tried again": Kind(failed_event, event_waits, LEASE, 1.2 * DAY),
    "a part that is told of": Kind(Service.hear_part, part_is_told_of_later, 5 * MINUTE),
    "an answer to HELP": Kind(help_answered, help_is_not_answered, DAY),
    "the last pass": Kind(Service.run_pass, no_pass_is_missed, 2 * MINUTE),
    "a pause": Kind(refused(SLOWLY), nothing_is_sent(), 30 * SECOND),
    "a refused account": Kind(refused(ACCOUNT), nothing_is_sent(), 5 * SECOND),
    "a used-up rate": Kind(use_rate, nothing_is_sent(**RATE), 20 * SECOND, 2100 * SECOND),
    "a claim": Kind(claim, is_held, LEASE),
    "a retry": Kind(refused(FOR_NOW), retry_waits, 54 * SECOND, 60 * DAY),
    "a text that could not be stored": Kind(not_stored, it_is_told, 2 * MINUTE),
    "the last text that was sent": Kind(text_that_ended, nothing_due_is_missed, 2 * MINUTE),
    "a receiver that fails": Kind(receiver_fails, receiver_is_not_missed, HOUR),
    "an event that was given up": Kind(given_up, event_is_kept, MONTH),
    "a receipt that matches nothing": Kind(early_receipt, receipt_is_kept, 3 * DAY),
    "a text that ended": Kind(text_that_ended, text_is_kept, DAY, DAY + MINUTE),
    "a reply": Kind(start, reply_is_kept, DAY, DAY + MINUTE),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "step"), [(POSTGRES, "a day"), *((SQLITE, step) for step in STEPS)]
)
@pytest.mark.parametrize("instant", KINDS)
def test_it_holds_no_longer_than_the_longest_of_its_kind(service, instant, step):
    note, holds, usual, longest = KINDS[instant]
    service.at(TUESDAY_NOON + STEPS[step])
    note(service)
    service.at(TUESDAY_NOON)
    holds(service)  # somebody looks
    service.at(TUESDAY_NOON + (longest or usual) + 2 * SECOND)
    assert not holds(service)


@pytest.mark.slow
@pytest.mark.parametrize("instant", KINDS)
def test_a_clock_that_is_seconds_early_changes_nothing(service, instant):
    note, holds, usual, _ = KINDS[instant]
    service.at(TUESDAY_NOON + EARLY)
    note(service)
    service.at(TUESDAY_NOON)
    if instant in UNCHANGED_BY_A_LOOK:
        holds(service)
    service.at(TUESDAY_NOON + EARLY + usual - SECOND)
    assert holds(service)


@pytest.mark.parametrize("step", STEPS)
def test_a_key_was_used_when_the_clock_now_says(service, step):
    for now in (TUESDAY_NOON + STEPS[step], TUESDAY_NOON):
        service.at(now)
        service.post()
        assert ApiKey.get().last_used_at == now


@on_both
@pytest.mark.parametrize("step", STEPS)
def test_the_limit_of_a_recipient_tells_of_no_wait_longer_than_its_window(service, step):
    service.at(TUESDAY_NOON + STEPS[step])
    recipient_is_at_its_limit(service)
    for passed in (0, 600):
        service.at(TUESDAY_NOON + passed * SECOND)
        assert recipient_is_at_its_limit(service)
        assert int(service.answer.headers["Retry-After"]) == DAY.total_seconds() - passed


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("limit", "wait"), [("1/h", HOUR), ("1/d", 7 * HOUR)])
def test_a_key_waits_for_the_end_of_the_window_that_it_is_in(service, step, limit, wait):
    service.at(TUESDAY_NOON + STEPS[step])
    assert service.post(limit) == 201
    service.at(TUESDAY_NOON)
    is_of_this_window = STEPS[step] < wait
    first = 429 if is_of_this_window else 201
    assert [service.post(limit), service.post(limit)] == [first, 429]
    assert int(service.answer.headers["Retry-After"]) == wait.total_seconds()


def test_after_a_step_the_limit_of_a_recipient_counts_old_and_new_texts_by_their_time(service):
    """Those of the clock ahead have larger ids than all that come after."""
    limited = service.settings._replace(recipient_limit=parse_recipient_limit("3/24h"))
    service.client = create_app(limited).test_client()
    service.at(TUESDAY_NOON + 365 * DAY)
    assert [service.post() for _ in range(2)] == [201, 201]
    service.at(TUESDAY_NOON)
    service.run_pass()
    assert [service.post(), service.post()] == [201, 429]
    service.at(TUESDAY_NOON + DAY)
    assert [service.post() for _ in range(4)] == [201, 201, 201, 429]


@on_both
@pytest.mark.parametrize(
    ("started", "stopped", "is_listed"),
    [
        (0.7, "12:00:00", True),  # within a second they count as they come
        (0.7, "12:00:01", True),
        (1, "12:00:01", True),
        (1, "12:00:00", False),
        (1.7, "12:00:00", False),
    ],
)
def test_a_stop_of_the_same_second_comes_after_a_start_without_a_time(
    service, started, stopped, is_listed
):
    service.at(TUESDAY_NOON + started * SECOND)
    service.hear("START")
    service.hear("STOP", **{"message-timestamp": f"2026-03-03 {stopped} -0500"})
    assert OptedOut.lists(NEW_YORK) == is_listed


def test_a_start_without_a_time_ends_a_stop_whose_carrier_is_seconds_ahead(service):
    service.at(TUESDAY_NOON)
    service.hear("STOP", TUESDAY_NOON + EARLY)
    service.hear("START")
    assert not OptedOut.lists(NEW_YORK)


@pytest.mark.parametrize("step", STEPS)
def test_a_reply_belongs_to_a_text_that_went_by_the_clock_ahead(service, step):
    service.at(TUESDAY_NOON + STEPS[step])
    service.message = store(service.now)
    service.run_pass()
    service.at(TUESDAY_NOON)
    service.run_pass()
    service.hear("Yes")
    assert Reply.get().message_id == service.message.id


@pytest.mark.parametrize("step", STEPS)
def test_what_ends_after_the_step_is_redacted_in_its_time(service, step):
    service.at(TUESDAY_NOON + STEPS[step])
    service.run_pass(**KEPT)
    service.at(TUESDAY_NOON)
    service.run_pass(**KEPT)
    text_that_ended(service)
    service.at(TUESDAY_NOON + DAY + SECOND)
    assert not text_is_kept(service)


@pytest.mark.parametrize("step", STEPS)
def test_a_pass_that_is_made_regularly_is_missed_at_no_time(service, step):
    """Cron makes one every ten minutes, and the clock is set back between two of them."""
    for minutes in (-20, -10, 0):
        service.at(TUESDAY_NOON + STEPS[step] + minutes * MINUTE)
        Passes.begin(service.now, None)
        service.run_pass()
    for minutes in (0, 5, 15, 29):
        service.at(TUESDAY_NOON + minutes * MINUTE)
        assert service.problems() == []
    service.at(TUESDAY_NOON + 31 * MINUTE)
    assert not no_pass_is_missed(service)


def test_a_text_that_a_clock_ahead_had_wait_for_an_opening_goes_at_the_next(service):
    hours = {"business_hours": (9 * 60, 17 * 60)}
    service.at(SUNDAY_NIGHT + 364 * DAY)
    service.client = create_app(service.settings._replace(**hours)).test_client()
    assert service.post() == 201
    service.at(SUNDAY_NIGHT)
    service.run_pass(**hours)
    assert service.carrier.texts == []
    service.at(SUNDAY_NIGHT + 10 * HOUR)  # Monday, 9:30 AM
    service.run_pass(**hours)
    assert len(service.carrier.texts) == 1


@pytest.mark.parametrize("ahead", [61 * DAY, 365 * DAY])
def test_a_send_date_stays_as_it_was_asked_for(service, ahead):
    service.at(TUESDAY_NOON)
    send_date = TUESDAY_NOON + ahead
    assert service.post(send_date=send_date.isoformat()) == 201
    service.run_pass()
    assert Message.get().send_at == send_date
