"""A trouble that began because texts were refused: a text ends it, and no question does."""

import logging

import pytest

from carriers import CarrierError
from carriers.ways import Way
from databases import on_sqlite
from fake_carrier import ACCOUNT, FOR_GOOD, FOR_NOW, TOO_FAST, AskableCarrier
from models import Message, Status
from monitoring import health
from samples import ALWAYS_OPEN, MINUTE, NEIGHBOUR, NEW_YORK, SECOND, TUESDAY_NOON
from sending.carrier_state import CarrierState
from several_carriers import UNREACHED, NamedCarrier
from stored_messages import again, statuses, store, store_many

PAGE = CarrierError("a gateway's page", silent=True)
NOES = pytest.mark.parametrize("no", [ACCOUNT, PAGE], ids=["the account", "pages"])


class Checked(AskableCarrier):
    """A carrier that, asked without a text, says that it serves, and counts that."""

    def __init__(self):
        super().__init__()
        self.checks, self.health = 0, None

    def check(self):
        self.checks += 1
        if self.health:
            raise self.health


@pytest.fixture
def checked():
    return Checked()


@pytest.fixture
def in_trouble(checked, run_pass):
    """Have a carrier refuse texts until that is a trouble; nothing waits any more."""

    def begin(no):
        numbers = store_many(5, max_retries=0)
        checked.answers = dict.fromkeys(numbers, no)
        run_pass(TUESDAY_NOON, carrier=checked)
        Message.update(status=Status.CANCELLED, finished_at=TUESDAY_NOON).execute()
        assert problems()
        checked.answers = {}

    return begin


def problems(now=TUESDAY_NOON):
    return health.read(now).problems()


def errors(caplog):
    return [each.message for each in caplog.records if each.levelno >= logging.ERROR]


# With one carrier


@NOES
def test_it_lasts_while_the_carrier_serves_and_no_text_was_answered(
    run_pass, checked, in_trouble, no
):
    in_trouble(no)
    for second in range(5, 125, 10):
        run_pass(TUESDAY_NOON + second * SECOND, carrier=checked)
    assert problems()
    assert checked.checks == 1, "nothing more is to be learnt from that"


@on_sqlite
@NOES
@pytest.mark.parametrize("own", [None, FOR_NOW, FOR_GOOD], ids=["yes", "for now", "for good"])
def test_a_text_that_is_answered_ends_it_and_goes_without_a_wait(
    run_pass, checked, in_trouble, no, own
):
    in_trouble(no)
    run_pass(TUESDAY_NOON + 5 * SECOND, carrier=checked)
    run_pass(TUESDAY_NOON + 6 * SECOND, carrier=checked)
    message = store(to=NEIGHBOUR)
    checked.answers = {NEIGHBOUR: own}
    run_pass(TUESDAY_NOON + 7 * SECOND, carrier=checked)
    assert again(message).status != Status.QUEUED
    assert problems() == []


@on_sqlite
@NOES
def test_of_what_waits_one_text_after_each_pause_is_tried_and_loses_no_retry(
    run_pass, checked, in_trouble, caplog, no
):
    in_trouble(no)
    caplog.clear()
    checked.texts.clear()
    for second in range(5, 200, 5):
        message = store(to=NEW_YORK)
        checked.answers[NEW_YORK] = no
        run_pass(TUESDAY_NOON + second * SECOND, carrier=checked)
        assert again(message).attempts == 0
    assert 1 <= len(checked.texts) <= 6, "after 5, 15, 35, 75, 135 and 195 seconds"
    assert errors(caplog) == []
    assert problems()
    assert {m.attempts for m in Message.select().where(Message.to == NEW_YORK)} == {0}


@on_sqlite
@NOES
def test_the_carrier_is_asked_again_after_each_text_that_was_refused(
    run_pass, checked, in_trouble, no
):
    in_trouble(no)
    run_pass(TUESDAY_NOON + 5 * SECOND, carrier=checked)
    message = store(to=NEW_YORK)
    checked.answers[NEW_YORK] = ACCOUNT
    run_pass(TUESDAY_NOON + 6 * SECOND, carrier=checked)
    assert (checked.checks, len(checked.numbers)) == (1, 6)
    assert message.cancel("shell", TUESDAY_NOON)
    run_pass(TUESDAY_NOON + MINUTE, carrier=checked)
    run_pass(TUESDAY_NOON + 2 * MINUTE, carrier=checked)
    assert checked.checks == 2
    assert problems()


@on_sqlite
def test_a_check_that_fails_meanwhile_makes_it_no_trouble_that_a_check_ends(
    run_pass, checked, in_trouble
):
    in_trouble(ACCOUNT)
    checked.health = UNREACHED
    for minutes in range(1, 4):
        run_pass(TUESDAY_NOON + minutes * MINUTE, carrier=checked)
    checked.health = None
    run_pass(TUESDAY_NOON + 10 * MINUTE, carrier=checked)
    assert problems()
    store()
    assert run_pass(TUESDAY_NOON + 10 * MINUTE, carrier=checked)["sent"] == 1
    assert problems() == []


@on_sqlite
def test_one_that_began_with_an_outage_and_then_refuses_texts_is_ended_by_a_text(run_pass, checked):
    message = store(to=NEW_YORK)
    checked.answers = {NEW_YORK: UNREACHED}
    run_pass(TUESDAY_NOON, carrier=checked)
    checked.answers = {NEW_YORK: ACCOUNT}
    run_pass(TUESDAY_NOON + MINUTE, carrier=checked)
    run_pass(TUESDAY_NOON + 2 * MINUTE, carrier=checked)
    assert message.cancel("shell", TUESDAY_NOON)
    run_pass(TUESDAY_NOON + 10 * MINUTE, carrier=checked)
    assert problems()


@on_sqlite
def test_the_next_outage_is_ended_by_a_question_again(run_pass, checked, in_trouble):
    in_trouble(ACCOUNT)
    store(to=NEIGHBOUR)
    run_pass(TUESDAY_NOON + MINUTE, carrier=checked)
    assert problems() == []
    message = store(to=NEW_YORK)
    checked.answers = {NEW_YORK: UNREACHED}
    run_pass(TUESDAY_NOON + 2 * MINUTE, carrier=checked)
    assert problems()
    assert message.cancel("shell", TUESDAY_NOON)
    run_pass(TUESDAY_NOON + 4 * MINUTE, carrier=checked)
    assert problems() == []


@on_sqlite
@pytest.mark.parametrize("said", [[], ["SM1"], TOO_FAST], ids=["not taken", "taken", "too fast"])
@NOES
def test_a_question_about_a_doubt_does_not_end_it_either(run_pass, checked, in_trouble, no, said):
    in_trouble(no)
    store(to=NEIGHBOUR, in_doubt=1, in_doubt_with="fake", in_doubt_since=TUESDAY_NOON)
    checked.answers = {NEIGHBOUR: no}

    def find(*_):
        if isinstance(said, Exception):
            raise said
        return said

    checked.find = find
    run_pass(TUESDAY_NOON + 5 * SECOND, carrier=checked)
    assert problems()


@on_sqlite
def test_silent_questions_begin_an_outage_that_a_question_ends(run_pass, checked):
    doubt = {"in_doubt": 1, "in_doubt_with": "fake", "in_doubt_since": TUESDAY_NOON}
    store_many(5, **doubt)
    checked.listing = PAGE
    run_pass(TUESDAY_NOON, carrier=checked)
    assert problems()
    checked.listing = None
    Message.update(status=Status.CANCELLED, finished_at=TUESDAY_NOON).execute()
    run_pass(TUESDAY_NOON + MINUTE, carrier=checked)
    assert problems() == []


# With several


@pytest.fixture
def refusing():
    """Two carriers; the first serves, asked, and refuses each text."""
    us, eu = NamedCarrier("us"), NamedCarrier("eu")
    us.health = None
    return us, eu


@pytest.mark.slow
@NOES
def test_one_whose_check_is_fine_while_it_refuses_texts_begins_one_trouble(
    run_both, refusing, caplog, no
):
    us, eu = refusing
    us.answer = no
    store_many(8)
    run_both(TUESDAY_NOON, carriers=refusing)
    begun = len(errors(caplog))
    for second in range(5, 90, 5):
        store(to=NEIGHBOUR)
        run_both(TUESDAY_NOON + second * SECOND, carriers=refusing)
    assert begun == 1
    assert len(errors(caplog)) == begun
    assert not [each for each in caplog.records if "takes texts again" in each.message]
    assert len(us.texts) <= 8 + 5, "and one after each pause at most"
    assert len(eu.texts) >= 17
    lost = Message.select().where(Message.to == NEIGHBOUR, Message.attempts > 1)
    assert list(lost) == []


@pytest.mark.slow
@NOES
def test_once_it_takes_texts_they_go_through_it_again(run_both, refusing, no):
    us, eu = refusing
    us.answer = no
    store_many(8)
    run_both(TUESDAY_NOON, carriers=refusing)
    us.answer = None
    run_both(TUESDAY_NOON + MINUTE, carriers=refusing)
    assert CarrierState.get_by_id("us").trouble, "nothing waited"
    given = len(us.texts)
    for minutes in range(2, 30):
        store(to=NEIGHBOUR)
        run_both(TUESDAY_NOON + minutes * MINUTE, carriers=refusing)
        if len(us.texts) > given:
            break
    assert CarrierState.get_by_id("us").trouble is None
    assert us.checks == 1
    eu.texts.clear()
    store(to=NEIGHBOUR)
    run_both(TUESDAY_NOON + 40 * MINUTE, carriers=refusing)
    assert eu.texts == []
    assert statuses().keys() <= {Status.SENT, Status.SCHEDULED}


@pytest.mark.slow
def test_texts_that_only_the_other_may_take_end_nothing(run_both, refusing):
    us, eu = refusing
    us.answer = ACCOUNT
    ways = [Way("us", countries={"US"}), Way("eu", countries={"GB"})]
    waits = store(country="US")
    run_both(TUESDAY_NOON, ways, refusing, **ALWAYS_OPEN)
    assert waits.cancel("shell", TUESDAY_NOON)
    for minutes in range(1, 5):
        store(to="+442079460000", country="GB")
        run_both(TUESDAY_NOON + minutes * MINUTE, ways, refusing, **ALWAYS_OPEN)
    assert CarrierState.get_by_id("us").trouble == str(ACCOUNT)
    assert (us.checks, len(eu.texts)) == (1, 4)
