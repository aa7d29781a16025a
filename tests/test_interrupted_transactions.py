"""A transaction that SQLite ends by itself, at each write of each transaction that nests.

It is interrupted here, and SQLite rolls back as it does on a disk that is full or fails. At each
door that is an outage, nothing is kept, and the same goes well once it is over.
"""

import contextlib
import itertools
import sqlite3

import pytest

import models
from answers import refusal
from app import create_app
from desk_visitor import Visitor, ask, issue
from samples import DAY, HOUR, LONDON, MINUTE, NEIGHBOUR, NEW_YORK, TUESDAY_NOON
from signed_callbacks import TOKEN, TWILIO, of_twilio
from stored_messages import SENDER, again, claim, decide_on, held, key_named, store
from texting import database
from texting.access.do_not_call import OptedOut
from texting.carriers import IncomingText, Receipt
from texting.database import db
from texting.events.delivery import Deliveries, Receiver, Try
from texting.events.outbox import Event, EventAddress
from texting.messages import doubts, receipts
from texting.messages.attempts import Attempt
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Message, Status
from texting.replies import inbound
from texting.replies.inbound import ReplyRules

pytestmark = pytest.mark.usefixtures("database_url", "noon")

RULES = ReplyRules("fake", "asked", "You get no more texts.", "Ask +1 212 555 0100.")
OLD = TUESDAY_NOON - 90 * DAY
PUBLIC_URL = "https://sms.example.com"
WRITES = ("INSERT", "UPDATE", "DELETE", "WITH", "CREATE", "DROP", "ALTER")


@pytest.fixture
def noon(at):
    at(TUESDAY_NOON)


class Interruption:
    """Interrupts one write of this thread's connection: `with Interruption(3) as it`, the fourth.

    `it.happened` says whether there were so many, and `it.came_late` whether a transaction was
    committed before.
    """

    def __init__(self, number):
        self.left, self.happened, self.came_late = number, False, False

    def __enter__(self):
        self.connection = db.connection()
        self.connection.set_trace_callback(self.begin)
        self.connection.set_progress_handler(self.go_on, 1)
        return self

    def __exit__(self, *error):
        with contextlib.suppress(sqlite3.ProgrammingError):  # it is closed already
            self.connection.set_trace_callback(None)
            self.connection.set_progress_handler(None, 1)

    def begin(self, statement):
        self.came_late |= statement == "COMMIT" and not self.happened
        self.left -= statement.lstrip().upper().startswith(WRITES)

    def go_on(self):
        if self.left >= 0 or self.happened:
            return 0
        self.happened = True
        return 1


def stored():
    """Return how many rows each table has, and what is told of messages and listed numbers."""
    counts = {table.__name__: table.select().count() for table in models.TABLES}
    columns = (Message.id, Message.status, Message.approved, Message.carrier_reference, Message.to)
    events = Event.select(Event.id, Event.tries).order_by(Event.id)
    address = EventAddress.select(EventAddress.url, EventAddress.off)
    attempts = Attempt.select(Attempt.message, Attempt.claim_number, Attempt.result, Attempt.ask_at)
    return [
        counts,
        [*Message.select(*columns).order_by(Message.id).tuples()],
        [*OptedOut.select(OptedOut.number, OptedOut.source).tuples()],
        [*events.tuples()],
        [*address.tuples()],
        [*attempts.order_by(Attempt.message, Attempt.claim_number).tuples()],
    ]


def count_of_writes_that_fail(action, refused):
    """Interrupt each write in turn, until there are no more; nothing is kept but in the end.

    Of a command that has several transactions, only the first is tried.
    """
    before = stored()
    for number in itertools.count():
        with Interruption(number) as interruption:
            told = action()
        if not interruption.happened:
            break
        refused(told)
        if interruption.came_late:
            return number
        assert stored() == before, number
        database.disconnect()
    assert stored() != before
    return number


def assert_told(error):
    assert database.is_outage(error)
    assert database.reason(error) == "interrupted"


# As schedulers, the web's callbacks and single passes do it


def writes_events():
    EventAddress.set(key_named("app"), "http://x.test", TUESDAY_NOON)


def a_stop():
    writes_events()
    store(check_dnc=True)
    return a_call_for_help("STOP")


def a_start():
    OptedOut.add([NEW_YORK], TUESDAY_NOON - MINUTE, "reply")
    return a_call_for_help("START")


def a_call_for_help(text="HELP"):
    held(Status.SENT, finished_at=TUESDAY_NOON)
    return lambda: inbound.record([IncomingText(NEW_YORK, text, None, ["R1"])], TUESDAY_NOON, RULES)


def a_yes():
    writes_events()
    message = held(Status.SENDING)
    receipts.record_receipts([Receipt("R1", True, None)], TUESDAY_NOON, "fake")
    return lambda: receipts.record_accepted({message.id: "R1"}, TUESDAY_NOON, "fake")


def a_yes_that_was_asked_for():
    writes_events()
    message = held(Status.SENDING, in_doubt=1)
    receipts.record_receipts([Receipt("R1", True, None)], TUESDAY_NOON, "fake")
    (copy,) = doubts.unclear_at("fake", message.id)
    return lambda: receipts.found(copy, ["R1"], TUESDAY_NOON, "fake")


def a_receipt():
    writes_events()
    held(Status.SENT, finished_at=TUESDAY_NOON, carrier_reference="R1")
    said = [Receipt("R1", False, "gone"), Receipt("R2", True, None)]
    return lambda: receipts.record_receipts(said, TUESDAY_NOON, "fake")


def a_receipt_by_number():
    """One that was kept until its text was in doubt."""
    receipts.record_receipts([Receipt("R1", True, None, NEW_YORK)], TUESDAY_NOON, "fake")
    held(Status.SENDING, in_doubt=1, in_doubt_since=TUESDAY_NOON - MINUTE)
    return lambda: receipts.look_again(NEW_YORK, TUESDAY_NOON)


def a_death():
    """A scheduler died with two texts in hand."""
    held(Status.SENDING)
    held(Status.SENDING)
    Heartbeat.delete().execute()
    return lambda: doubts.take_over(TUESDAY_NOON, ())


def a_claim():
    store()
    store(to=NEIGHBOUR)
    Heartbeat.insert(sender=SENDER, beat_at=TUESDAY_NOON).execute()
    return lambda: claim(5)


def an_event_in_vain():
    """Its receiver wants no more of them, so the address is switched off."""
    writes_events()
    assert decide_on(store()).cancel("shell", TUESDAY_NOON)
    event, address = Event.get(), EventAddress.get()

    def record():
        deliveries = Deliveries(300, Message.record_notified)
        answer = type("Gone", (), {"success": False, "status": 410, "retry_after": None})
        deliveries.unrecorded = [Try(event, address, answer, "HTTP 410", 0)]
        deliveries.receivers = {address.url: Receiver(address.url)}
        deliveries.record(TUESDAY_NOON)

    return record


@pytest.mark.parametrize(
    "prepare",
    [
        a_stop,
        a_start,
        a_call_for_help,
        a_yes,
        a_yes_that_was_asked_for,
        a_receipt,
        a_receipt_by_number,
        a_death,
        a_claim,
        an_event_in_vain,
    ],
)
def test_what_is_recorded_is_recorded_whole_or_told_as_an_outage(prepare):
    record = prepare()

    def attempt():
        try:
            record()
        except database.ERRORS as error:
            return error
        return None

    assert count_of_writes_that_fail(attempt, assert_told) > 1


@pytest.mark.slow
def test_a_pass_that_is_interrupted_anywhere_sends_one_copy_and_loses_none(run_pass, carrier):
    """One text is new, and of one in doubt a receipt is kept. A second pass does the rest."""
    run_pass(TUESDAY_NOON)
    for number in itertools.count():
        new = store(check_dnc=True, to=NEIGHBOUR, message=f"text {number}")
        to = f"+1212555{number:04}"
        receipt = Receipt(f"R{number}", True, None, to)
        receipts.record_receipts([receipt], TUESDAY_NOON, "fake")
        doubt = {"in_doubt": 1, "in_doubt_since": TUESDAY_NOON - MINUTE}
        doubted = store(to=to, **doubt)
        with Interruption(number) as interruption:
            try:
                run_pass(TUESDAY_NOON)
            except database.ERRORS as error:
                assert_told(error)
                database.disconnect()
        run_pass(TUESDAY_NOON + HOUR)
        assert again(doubted).status == Status.DELIVERED
        assert again(new).status == Status.SENT
        assert carrier.texts == [(NEIGHBOUR, f"text {n}") for n in range(number + 1)]
        if not interruption.happened:
            assert number > 10
            return


# At the web


def test_a_callback_is_answered_503_until_the_reply_is_kept(settings, caplog):
    changed = settings._replace(carrier_url=TWILIO, public_url=PUBLIC_URL)
    client, path = create_app(changed).test_client(), "/carriers/twilio/inbound"
    held(Status.SENT, finished_at=TUESDAY_NOON, carrier="twilio")
    store(check_dnc=True)
    said = {"From": NEW_YORK, "Body": "STOP", "MessageSid": "SM1"}
    signed = of_twilio(PUBLIC_URL + path, said, TOKEN)

    def refused(response):
        assert refusal(response, 503) == {}

    writes = count_of_writes_that_fail(lambda: client.open(path, **signed), refused)
    assert writes > 3
    assert OptedOut.lists(NEW_YORK)
    assert "interrupted" in caplog.text
    assert "savepoint" not in caplog.text


def a_reply(visitor):
    held(Status.SENT, finished_at=TUESDAY_NOON)
    inbound.record([IncomingText(NEW_YORK, "reply one", TUESDAY_NOON)], TUESDAY_NOON, RULES)
    visitor.open("/desk/replies")
    return "Add to Do Not Call"


def a_refusal(visitor):
    ask(status=Status.SCHEDULED)
    EventAddress.set(key_named("shop"), "http://x.test", TUESDAY_NOON)
    visitor.open()
    return "Refuse"


def an_undone_refusal(visitor):
    visitor.open()
    visitor.press(a_refusal(visitor))
    return "Undo"


@pytest.mark.parametrize("prepare", [a_reply, a_refusal, an_undone_refusal])
def test_a_button_of_the_desk_does_all_or_says_that_the_database_is_away(settings, prepare):
    visitor = Visitor(create_app(settings._replace(secret_key="not so secret, but long enough")))
    visitor.sign_in(issue("Olga", role="operator"))
    button = prepare(visitor)
    at, page = visitor.at, visitor.page

    def press():
        visitor.at, visitor._page = at, page
        visitor.press(button, follow=False)
        return visitor.response

    def refused(response):
        assert response.status_code == 503
        assert "cannot reach its database" in response.text

    assert count_of_writes_that_fail(press, refused) > 0


# Commands


def no_more():
    pass


def waiting():
    writes_events()
    for _ in "12":
        store(status=Status.SCHEDULED)


def ended():
    held(Status.SENT, finished_at=OLD, message="secret")


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (no_more, "keys create new --events https://example.com"),
        (no_more, f"dnc add {NEW_YORK} {LONDON}"),
        (no_more, "dnc import numbers.csv"),
        (lambda: OptedOut.add([NEW_YORK], OLD, "reply"), f"dnc remove --opted-out {NEW_YORK}"),
        (waiting, "messages cancel --key app --yes"),
        (ended, "messages purge --older-than 30 --yes"),
        (ended, "messages redact --older-than 30"),
    ],
)
def test_a_command_does_all_or_fails_with_the_cause(flask, tmp_path, prepare, words):
    (tmp_path / "numbers.csv").write_text(f"{NEW_YORK}\n{LONDON}\n")
    prepare()

    def refused(result):
        assert result.exit_code == 2
        assert result.stderr.splitlines()[-1] == "Error: the database failed: interrupted"
        assert not result.stdout or result.stdout.startswith("2 messages: ")  # what was counted

    assert count_of_writes_that_fail(lambda: flask(*words.split()), refused) > 0


def test_an_upgrade_that_is_interrupted_is_begun_anew(tmp_path):
    (tmp_path / "new.db").touch()
    database.connect(f"sqlite:///{tmp_path}/new.db")
    for number in itertools.chain(range(0, 60, 7), [10_000]):
        with Interruption(number) as interruption:
            if number < 60:
                with pytest.raises(database.ERRORS) as told:
                    database.upgrade()
                assert_told(told.value)
            else:
                database.upgrade()
        assert interruption.happened == (number < 60)
        assert database.is_migrated() == (number == 10_000)
    database.disconnect()
