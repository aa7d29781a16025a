"""Carriers that keep ids: a text in doubt is given again, as the same text, while it may go."""

import threading
from itertools import pairwise

import pytest

from carrier_errors import connect
from carrier_servers import Answer
from databases import on_both
from fake_carrier import (
    ACCOUNT,
    FOR_GOOD,
    FOR_NOW,
    SLOWLY,
    KeepingCarrier,
    TellingCarrier,
    die_instead,
)
from samples import ALWAYS_OPEN, DAY, HOUR, MINUTE, NEIGHBOUR, NEW_YORK, SECOND, TUESDAY_NOON
from several_carriers import UNREACHED, NamedCarrier
from stored_messages import FAKE, SENDER, again, decide_on, held, key_named, store, take_over
from texting.access.do_not_call import DoNotCall, OptedOut
from texting.access.keys import ApiKey
from texting.carriers import CarrierError, Fault, IncomingText, LateAnswer, Receipt, Shown
from texting.database import db
from texting.messages import doubts, waiting
from texting.messages.attempts import Attempt
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Message, Status
from texting.replies import inbound
from texting.replies.inbound import ReplyRules
from texting.sending.carrier_state import CarrierState
from texting.sending.outcomes import MAY_HAVE_TAKEN_IT
from texting.sending.runtime import THIS_MACHINE, Runtime

pytestmark = on_both

LOST = CarrierError("no answer", in_doubt=True, silent=True)
OPTED_OUT = CarrierError("the recipient has opted out", Fault.OPTED_OUT)
WAY_FOR_GOOD = CarrierError("not there", Fault.PERMANENT, no_route=True)
RULES = ReplyRules(FAKE, "always", "You get no more texts.", None)
LOST_AT = "it is lost on its way"
TOOK = "it takes the text, and its answer is lost"


@pytest.fixture
def keeping():
    return KeepingCarrier()


@pytest.fixture
def telling():
    return TellingCarrier()


@pytest.fixture
def give(run_pass):
    """Make a pass some seconds after noon; the carrier says this to each text."""

    def make(carrier, said, seconds=0, **changes):
        lost = said in (TOOK, LOST_AT)
        carrier.takes = said in (TOOK, None)
        carrier.answer = LOST if lost else said
        return run_pass(TUESDAY_NOON + seconds * SECOND, carrier, **ALWAYS_OPEN | changes)

    return make


def results(message):
    return [(each.result, each.reference) for each in Attempt.of_messages([message.id])[message.id]]


@pytest.mark.parametrize(
    "says",
    [
        [TOOK, None],
        [LOST_AT, None],
        [LOST_AT, TOOK, LOST_AT, None],
        [TOOK, UNREACHED, None],
        [TOOK, ACCOUNT, None],
        [TOOK, SLOWLY, None],
    ],
    ids=str,
)
def test_it_is_given_again_with_its_id_until_an_answer_comes_and_uses_no_retry(give, keeping, says):
    message = store(max_retries=0)
    for number, said in enumerate(says):
        give(keeping, said, number * 600)
    assert keeping.given == [(str(message.id), NEW_YORK, "Hello")] * len(says)
    ended = again(message)
    assert (ended.status, ended.attempts, ended.in_doubt) == (Status.SENT, 1, 0)
    assert results(message) == [("taken", "K0")]
    assert list(keeping.kept) == [str(message.id)]


def test_what_goes_first_after_a_pause_without_an_answer_counts_its_try_with_the_yes(give, keeping):
    """Its silence cost no retry."""
    store()
    CarrierState.prepare(FAKE)
    CarrierState.begin_pause(FAKE, TUESDAY_NOON - MINUTE, trouble="no answer", is_down=True)
    give(keeping, TOOK)
    assert (Message.get().attempts, Message.get().in_doubt) == (0, 1)
    give(keeping, None, 600)
    assert (Message.get().attempts, Message.get().status) == (1, Status.SENT)


def test_it_is_given_after_ten_seconds_then_more_rarely_and_each_minute_in_the_end(give, keeping):
    store()
    given = []
    for seconds in range(0, 300, 5):
        before = len(keeping.given)
        give(keeping, LOST_AT, seconds, retry_delay=600)
        given += [seconds] * (len(keeping.given) - before)
    assert given[:2] == [0, 10]
    gaps = [after - before for before, after in pairwise(given)]
    assert gaps == sorted(gaps)
    assert 60 <= gaps[-1] <= 65


def test_what_a_dead_scheduler_had_in_hand_is_given_again(give, run_pass, keeping):
    message = store(max_retries=0)
    run_pass.runtime = Runtime(submit=die_instead)
    with pytest.raises(SystemExit):
        give(keeping, TOOK)
    run_pass.runtime = THIS_MACHINE
    Heartbeat.update(beat_at=TUESDAY_NOON - HOUR).execute()
    for seconds in (60, 120):
        give(keeping, None, seconds)
    assert (again(message).status, len(keeping.given)) == (Status.SENT, 1)
    assert results(message) == [("taken", "K0")]


def test_a_scheduler_that_dies_while_it_gives_a_text_again_leaves_the_doubt(
    give, run_pass, keeping
):
    message = store(max_retries=0)
    give(keeping, TOOK)
    run_pass.runtime = Runtime(submit=die_instead)
    with pytest.raises(SystemExit):
        give(keeping, None, 60)
    run_pass.runtime = THIS_MACHINE
    give(keeping, None, 120)
    assert len(keeping.given) == 1, "it may be alive"
    Heartbeat.update(beat_at=TUESDAY_NOON - HOUR).execute()
    for seconds in (180, 240):
        give(keeping, None, seconds)
    assert (again(message).status, again(message).attempts) == (Status.SENT, 1)
    assert results(message) == [("taken", "K0")]


LATE = [FOR_NOW, FOR_GOOD, SLOWLY, ACCOUNT, WAY_FOR_GOOD, LOST]


@pytest.mark.parametrize("says", LATE, ids=str)
def test_a_late_no_leaves_the_doubt_for_the_text_may_have_been_given_again(
    give, run_pass, keeping, says
):
    """Its scheduler was taken for dead, and another gave the text again, and got no answer."""
    message = store(attempts=1)

    def refuse_late():
        keeping.answers, keeping.takes = {}, True
        Heartbeat.update(beat_at=TUESDAY_NOON - HOUR).execute()
        take_over(TUESDAY_NOON + MINUTE)
        keeping.kept[str(message.id)] = "K0"  # to the other
        db.close()  # of this thread
        return says

    keeping.answers[NEW_YORK] = refuse_late
    give(keeping, LOST_AT)
    assert results(message) == [("unclear", None)]
    assert again(message).in_doubt == 1
    give(keeping, None, 4 * HOUR // SECOND)
    assert (again(message).status, again(message).in_doubt) == (Status.SENT, 0)
    assert (again(message).attempts, results(message)) == (2, [("taken", "K0")])


# What it answers


@pytest.mark.parametrize("dies", [False, True])
def test_a_no_for_good_says_that_nothing_was_taken(give, keeping, dies):
    if dies:
        message = held(Status.SENDING)
        take_over(TUESDAY_NOON)
    else:
        message = store()
        give(keeping, LOST_AT)
    give(keeping, FOR_GOOD, 60)
    ended = again(message)
    assert (ended.status, ended.attempts, ended.last_error) == (Status.FAILED, 1, str(FOR_GOOD))
    assert results(message) == [("refused", None)]


def test_who_opted_out_at_the_carrier_joins_the_list(give, keeping):
    store()
    give(keeping, LOST_AT)
    give(keeping, OPTED_OUT, 60)
    assert OptedOut.lists(NEW_YORK)


@pytest.mark.parametrize("retries", [0, 2])
def test_a_no_for_now_uses_a_retry_and_leaves_the_doubt(give, keeping, retries):
    """It says nothing of what came before, as the receiver's 500 does."""
    message = store(max_retries=retries)
    give(keeping, TOOK)
    for minutes in range(1, 1 + max(1, retries)):
        assert again(message).status in (Status.SCHEDULED, Status.QUEUED)
        give(keeping, FOR_NOW, minutes * 600, retry_delay=1)
    ended = again(message)
    assert (ended.status, ended.attempts) == (Status.FAILED, retries + 1)
    assert ended.last_error == f"{FOR_NOW}; {MAY_HAVE_TAKEN_IT}"


def test_a_late_no_for_now_to_a_repeat_changes_nothing_that_is_settled(give, telling):
    """Another has asked meanwhile, and the carrier did not have it."""
    message = store(max_retries=0)
    give(telling, LOST_AT)

    def refuse_late():
        telling.answers = {}
        assert doubts.rule_out(message, FAKE, TUESDAY_NOON + MINUTE).in_doubt == 0
        Message.update(attempts=0, status=Status.QUEUED).execute()
        db.close()  # of this thread
        return FOR_NOW

    telling.answers[NEW_YORK] = refuse_late
    give(telling, None, 60)
    assert (again(message).status, again(message).attempts) == (Status.SENT, 1)


def test_after_a_no_for_now_it_waits_like_any_other(give, keeping):
    message = store()
    give(keeping, TOOK)
    give(keeping, FOR_NOW, 10, retry_delay=60)
    give(keeping, None, 200, retry_delay=60)
    assert len(keeping.given) == 2
    give(keeping, None, 400, retry_delay=60)
    assert again(message).status == Status.SENT


def test_a_callback_settles_it_and_it_is_not_given_again(give, keeping):
    message = store()
    give(keeping, TOOK)
    shown = Shown("K0", str(message.id))
    inbound.record_reports([shown], TUESDAY_NOON + SECOND, False, FAKE)
    give(keeping, None, 60)
    assert (again(message).status, len(keeping.given)) == (Status.SENT, 1)


def test_its_yes_ends_a_trouble_that_texts_began_as_any_text_does(give, keeping):
    store()
    give(keeping, TOOK)
    give(keeping, ACCOUNT, 60)
    assert CarrierState.get_by_id("fake").trouble
    give(keeping, None, 600)
    assert CarrierState.get_by_id("fake").trouble is None


def test_an_account_that_is_refused_again_to_a_repeat_uses_no_retry(give, keeping):
    """To a text that is given anew it would, once others are taken: then the text is at fault."""
    store(to=NEIGHBOUR)
    message = store(max_retries=0)
    keeping.answers[NEIGHBOUR] = FOR_NOW
    give(keeping, ACCOUNT)
    keeping.answers = {NEW_YORK: LOST}
    give(keeping, None, 3600)
    assert again(message).in_doubt == 1
    assert CarrierState.get_by_id(FAKE).last_accepted_at
    keeping.answers = {}
    give(keeping, ACCOUNT, 7200)
    give(keeping, None, 10800)
    assert (again(message).status, len(keeping.given)) == (Status.SENT, 6)


# Whether it may go


def list_it(message):
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")


def cancel_it(message):
    assert decide_on(again(message)).cancel("shell", TUESDAY_NOON)


def end_its_time(message):
    Message.update(expires_at=TUESDAY_NOON + SECOND).execute()


WHYS = {list_it: Status.BLOCKED, cancel_it: Status.CANCELLED, end_its_time: Status.EXPIRED}


@pytest.mark.parametrize("why", WHYS)
@pytest.mark.parametrize("said", [TOOK, LOST_AT])
def test_what_may_go_no_more_ends_and_the_record_says_that_it_may_be_there(
    give, keeping, why, said
):
    message = store(check_dnc=True)
    give(keeping, said)
    why(message)
    for seconds in (60, 120):
        give(keeping, None, seconds)
    assert (again(message).status, len(keeping.given)) == (WHYS[why], 1)
    assert MAY_HAVE_TAKEN_IT in again(message).last_error


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize("why", WHYS)
@pytest.mark.parametrize("said", [TOOK, LOST_AT])
def test_a_carrier_that_tells_is_asked_about_it(give, telling, why, said, retries):
    message = store(check_dnc=True, max_retries=retries)
    give(telling, said)
    why(message)
    telling.silence = LOST
    for seconds in (60, 120):
        give(telling, None, seconds)
        assert again(message).status in (Status.SCHEDULED, Status.QUEUED)
    telling.silence = None
    for seconds in (180, 240):
        give(telling, None, seconds)
    ended = again(message)
    assert ended.status == (Status.SENT if said == TOOK else WHYS[why])
    assert ended.carrier_reference == ("K0" if said == TOOK else None)
    assert MAY_HAVE_TAKEN_IT not in (ended.last_error or "")
    assert (len(telling.given), telling.looked_up) == (1, [str(message.id)] * 3)


def test_a_text_that_may_go_is_not_looked_up(give, telling):
    store()
    give(telling, TOOK)
    give(telling, None, 60)
    assert (len(telling.given), telling.looked_up) == (2, [])


WAITS = {"it is quiet": {"quiet_hours": (720, 730)}, "its key is paused": {}}


@pytest.mark.parametrize("why", WAITS)
@pytest.mark.parametrize("said", [TOOK, LOST_AT])
def test_a_carrier_that_tells_is_asked_while_a_text_waits(give, telling, why, said):
    """What it does not have stays in doubt, and is given again with its id once it may go."""
    message, key = store(max_retries=0), key_named("app")
    give(telling, said)
    if not WAITS[why]:
        key.pause(TUESDAY_NOON)
    sent = [give(telling, None, seconds, **WAITS[why])["sent"] for seconds in (60, 120, 180)]
    assert (len(telling.given), sum(sent)) == (1, said == TOOK)
    if said == TOOK:
        assert (again(message).status, telling.looked_up) == (Status.SENT, [str(message.id)])
        return
    assert (again(message).in_doubt, telling.looked_up) == (1, [str(message.id)] * 3)
    if not WAITS[why]:
        key.resume(TUESDAY_NOON)
    for seconds in (660, 720):
        give(telling, None, seconds, **WAITS[why])
    assert (again(message).status, len(telling.given)) == (Status.SENT, 2)


def test_it_waits_in_quiet_hours_and_is_given_again_after_them(run_pass, keeping):
    closing = TUESDAY_NOON + 5 * HOUR
    message = store()
    keeping.answer = LOST
    run_pass(closing - SECOND, keeping)
    keeping.answer = None
    for hours in (0, 1, 15):
        run_pass(closing + hours * HOUR + 30 * SECOND, keeping)
    assert len(keeping.given) == 1
    run_pass(closing + 16 * HOUR + MINUTE, keeping)
    assert (again(message).status, len(keeping.given)) == (Status.SENT, 2)


def test_it_waits_while_its_key_is_paused(give, keeping):
    key = key_named("shop")
    message = store(key=key)
    give(keeping, TOOK)
    key.pause(TUESDAY_NOON)
    for seconds in (60, 600):
        give(keeping, None, seconds)
    assert len(keeping.given) == 1
    key.resume(TUESDAY_NOON)
    give(keeping, None, 700)
    assert (again(message).status, len(keeping.given)) == (Status.SENT, 2)


@pytest.mark.parametrize(("places", "first"), [(1, 1), (2, 1), (4, 2), (5, 2)])
def test_texts_in_doubt_take_half_of_the_places_at_most(give, keeping, places, first):
    """Or a text would wait until all of them are given."""
    for _ in range(8):
        store(in_doubt=1, carrier="fake", in_doubt_since=TUESDAY_NOON - MINUTE)
    store(to=NEIGHBOUR)
    give(keeping, LOST_AT, send_concurrency=places)
    assert [to for _, to, _ in keeping.given].index(NEIGHBOUR) == first


def test_with_one_place_texts_and_those_in_doubt_take_turns(give, keeping):
    for _ in range(3):
        store(in_doubt=1, carrier="fake", in_doubt_since=TUESDAY_NOON - MINUTE)
        store(to=NEIGHBOUR)
    give(keeping, None, send_concurrency=1)
    assert [to for _, to, _ in keeping.given] == [NEW_YORK, NEIGHBOUR] * 3
    for _ in range(3):
        store(in_doubt=1, carrier="fake", in_doubt_since=TUESDAY_NOON - MINUTE)
    give(keeping, None, 5, send_concurrency=1)
    assert len(keeping.given) == 9, "without texts they need not wait"


def test_texts_in_doubt_whose_carrier_hangs_leave_half_of_the_places(give, keeping):
    for _ in range(6):
        store(in_doubt=1, carrier="fake", in_doubt_since=TUESDAY_NOON - MINUTE)
    for _ in range(4):
        store(to=NEIGHBOUR)
    texts_are_given = threading.Event()

    def note():
        if sum(to == NEIGHBOUR for _, to, _ in keeping.given) == 4:
            texts_are_given.set()

    keeping.answers = {NEW_YORK: lambda: texts_are_given.wait(3) and None, NEIGHBOUR: note}
    give(keeping, None, send_concurrency=4)
    assert sum(to == NEW_YORK for _, to, _ in keeping.given[:6]) == 2


def test_texts_in_doubt_leave_half_of_the_places_to_what_comes_later(give, keeping):
    """Their carrier hangs, and no other text was due when they were given."""
    for _ in range(4):
        store(in_doubt=1, carrier="fake", in_doubt_since=TUESDAY_NOON - MINUTE)
    is_given, come = threading.Event(), iter([lambda: store(to=NEIGHBOUR)])

    def hang():
        next(come, int)()
        db.close()  # of this thread
        is_given.wait(3)

    keeping.answers = {NEW_YORK: hang, NEIGHBOUR: is_given.set}
    give(keeping, None, send_concurrency=2)
    assert [to for _, to, _ in keeping.given[:2]] == [NEW_YORK, NEIGHBOUR]


def test_equal_texts_do_not_wait_for_each_other_where_each_has_its_id(give, keeping):
    messages = [store(), store()]
    assert give(keeping, None)["sent"] == 2
    assert {id for id, *_ in keeping.given} == {str(each.id) for each in messages}


def test_send_rate_holds_for_it_too(give, keeping):
    for to in (NEW_YORK, NEIGHBOUR):
        store(to=to)
    give(keeping, TOOK)
    give(keeping, None, 60, send_rate=1 / 60)
    assert len(keeping.given) == 3
    give(keeping, None, 60 + 59, send_rate=1 / 60)
    assert len(keeping.given) == 3
    give(keeping, None, 60 + 61, send_rate=1 / 60)
    assert len(keeping.given) == 4


def test_what_answers_a_reply_is_given_again_within_its_two_minutes(give, keeping):
    held(Status.SENT, finished_at=TUESDAY_NOON - HOUR, created_at=TUESDAY_NOON - HOUR)
    inbound.record([IncomingText(NEW_YORK, "STOP")], TUESDAY_NOON, RULES)
    answer = Message.get(Message.auto_reply_to.is_null(False))
    give(keeping, TOOK)
    give(keeping, None, 60)
    assert (again(answer).status, len(keeping.given)) == (Status.SENT, 2)


# Where it may go


@pytest.fixture
def keepers():
    us, eu = KeepingCarrier(), NamedCarrier("eu")
    us.name = "us"
    return us, eu


def test_it_stays_with_its_carrier_whatever_becomes_of_that(run_both, keepers):
    us, eu = keepers
    us.answer = LOST
    message = store()
    run_both(TUESDAY_NOON, carriers=keepers, **ALWAYS_OPEN)
    us.answer, us.takes = UNREACHED, False
    store(to=NEIGHBOUR)
    for hours in range(1, 60, 10):
        run_both(TUESDAY_NOON + hours * HOUR, carriers=keepers, **ALWAYS_OPEN)
    assert eu.numbers == [NEIGHBOUR]
    us.answer = None
    run_both(TUESDAY_NOON + 61 * HOUR, carriers=keepers, **ALWAYS_OPEN)
    assert (again(message).status, again(message).carrier) == (Status.SENT, "us")
    assert len(us.kept) == 1


@pytest.mark.parametrize("status", [502, 504])
def test_a_text_behind_a_webhooks_gateway_goes_nowhere_else(run_both, webhook_server, status):
    """The receiver has stored the text, and its gateway gave up."""
    webhook = connect(webhook_server.url)
    eu, message = NamedCarrier("eu"), store(max_retries=0)
    webhook_server.answers[NEW_YORK] = Answer(status, b"<html>")
    run_both(TUESDAY_NOON, carriers=[webhook, eu])
    del webhook_server.answers[NEW_YORK]
    run_both(TUESDAY_NOON + MINUTE, carriers=[webhook, eu])
    ids = {each.headers["webhook-id"] for each in webhook_server.requests}
    assert (len(webhook_server.texts), ids, eu.texts) == (2, {str(message.id)}, [])
    assert (again(message).status, again(message).attempts) == (Status.SENT, 1)


def test_a_webhooks_own_words_are_no_doubt_though_its_status_is_a_gateways(
    run_both, webhook_server
):
    webhook_server.answer = Answer(502, {"error": "the modem is off"})
    eu, message = NamedCarrier("eu"), store()
    for seconds in (0, 60):
        run_both(
            TUESDAY_NOON + seconds * SECOND,
            carriers=[connect(webhook_server.url), eu],
            retry_delay=1,
        )
    assert (again(message).carrier, again(message).in_doubt) == ("eu", 0)


def test_a_no_of_the_way_lets_it_go_through_the_next(run_both, keepers):
    us, _ = keepers
    us.answer, us.takes = LOST, False
    message = store(max_retries=0)
    run_both(TUESDAY_NOON, carriers=keepers)
    us.answer = WAY_FOR_GOOD
    for seconds in (60, 120):
        run_both(TUESDAY_NOON + seconds * SECOND, carriers=keepers)
    assert (again(message).status, again(message).carrier) == (Status.SENT, "eu")
    assert (again(message).attempts, again(message).in_doubt) == (2, 0)


def test_once_its_carrier_is_gone_it_is_sent_once_more(run_both, keepers):
    us, eu = keepers
    us.answer = LOST
    message = store()
    run_both(TUESDAY_NOON, carriers=keepers)
    run_both(TUESDAY_NOON + 5 * MINUTE, carriers=[eu])
    assert (again(message).status, again(message).carrier) == (Status.SENT, "eu")


# Carriers that keep them for a day


@pytest.fixture
def for_a_day(keeping):
    keeping.keeps_ids = DAY
    return keeping


@pytest.mark.parametrize("second", [None, LOST_AT])
def test_after_a_day_it_is_a_doubt_like_others_and_goes_once_more_at_most(give, for_a_day, second):
    message = store(expires_at=TUESDAY_NOON + 10 * DAY, max_retries=5)
    for hours in (0, 1, 23, 23.9):
        give(for_a_day, TOOK, hours * 3600)
    assert (len(for_a_day.given), again(message).in_doubt) == (4, 1)
    for_a_day.kept.clear()  # it has forgotten
    give(for_a_day, second, 23.95 * 3600)
    assert (len(for_a_day.given), again(message).attempts) == (5, 2)
    if second:
        assert (again(message).in_doubt, results(message)) == (2, [("unclear", None)] * 2)
        give(for_a_day, second, 40 * 3600)
        assert (len(for_a_day.given), again(message).in_doubt) == (6, 2), "the second one again"
        for hours in (48, 49):
            give(for_a_day, None, hours * 3600)
        assert len(for_a_day.given) == 6
        assert again(message).status == Status.FAILED
        assert MAY_HAVE_TAKEN_IT in again(message).last_error
    else:
        assert again(message).status == Status.SENT
        assert results(message) == [("unclear", None), ("taken", "K0")]


@pytest.mark.parametrize("is_meanwhile", [False, True])
def test_what_another_gives_again_just_now_is_forgotten_once_that_has_ended(
    give, for_a_day, monkeypatch, is_meanwhile
):
    message = store(expires_at=TUESDAY_NOON + 10 * DAY)
    give(for_a_day, TOOK)
    Heartbeat.create(sender=SENDER, beat_at=TUESDAY_NOON + 2 * DAY)
    locked = Message.locked

    def ask(*ids):
        assert doubts.claim(message.id, FAKE, SENDER, TUESDAY_NOON + HOUR)
        monkeypatch.undo()
        return locked(*ids)

    if is_meanwhile:  # it is found, and not yet locked
        monkeypatch.setattr(Message, "locked", ask)
    else:
        ask([])
    assert doubts.forget(FAKE, TUESDAY_NOON) == is_meanwhile
    assert Attempt.get().ask_at is not None
    doubts.ask_again_at(message.id, FAKE, TUESDAY_NOON + DAY)
    assert doubts.forget(FAKE, TUESDAY_NOON) == 1
    assert (Attempt.get().ask_at, again(message).lane) == (None, "US?")


def test_before_its_day_is_over_what_a_carrier_does_not_have_is_free_again(give, telling):
    telling.keeps_ids, key = DAY, key_named("shop")
    message = store(expires_at=TUESDAY_NOON + 10 * DAY, key=key)
    give(telling, LOST_AT)
    key.pause(TUESDAY_NOON)
    for hours in (1, 23):
        give(telling, None, hours * 3600)
        assert again(message).in_doubt == 1
    for minutes in (9, 8, 7):
        give(telling, None, 24 * 3600 - minutes * 60)
    assert telling.looked_up == [str(message.id)] * 3
    assert again(message).in_doubt == 0
    key.resume(TUESDAY_NOON)
    give(telling, None, 25 * 3600)
    assert (again(message).status, len(telling.given)) == (Status.SENT, 2)


def test_after_a_day_it_goes_through_the_next_if_its_carrier_is_away(run_both, keepers):
    us, eu = keepers
    us.keeps_ids, us.answer = DAY, LOST
    message = store()
    run_both(TUESDAY_NOON, carriers=keepers, **ALWAYS_OPEN)
    us.answer = UNREACHED
    for hours, copies in ((23, 0), (23.9, 0), (24, 1)):
        run_both(TUESDAY_NOON + hours * HOUR, carriers=keepers, **ALWAYS_OPEN)
        assert len(eu.texts) == copies
    assert (again(message).status, again(message).carrier) == (Status.SENT, "eu")


def test_the_yes_to_a_repeat_is_that_of_the_copy_whose_id_is_known(give, for_a_day):
    message = store(expires_at=TUESDAY_NOON + 10 * DAY)
    for hours in (0, 24):
        give(for_a_day, TOOK, hours * 3600)
    give(for_a_day, None, 25 * 3600)
    assert results(message) == [("unclear", None), ("taken", "K0")]


def test_a_late_word_is_that_of_the_copy_whose_id_is_forgotten(give, for_a_day):
    message = store(expires_at=TUESDAY_NOON + 10 * DAY)
    give(for_a_day, TOOK)
    give(for_a_day, FOR_NOW, 24 * 3600, retry_delay=3600)
    said = Receipt("K0", True, None, message_id=str(message.id))
    inbound.record_reports([said], TUESDAY_NOON + DAY + MINUTE, False, FAKE)
    give(for_a_day, None, 26 * 3600)
    assert again(message).status == Status.DELIVERED
    assert len(for_a_day.given) == 2


def test_what_is_too_late_ends_although_its_carrier_cannot_be_asked_now(run_pass, keeping):
    message = store(in_doubt=1, carrier="fake", expires_at=TUESDAY_NOON + MINUTE)
    CarrierState.prepare("fake")
    CarrierState.begin_pause("fake", TUESDAY_NOON, asked_for=3600)
    run_pass(TUESDAY_NOON + 2 * MINUTE, keeping)
    assert (again(message).status, keeping.given) == (Status.EXPIRED, [])


# A person sends it again that did not arrive


def did_not_arrive(message, reference):
    receipts = [Receipt(reference, False, "not in service")]
    inbound.record_reports(receipts, TUESDAY_NOON, False, "fake")
    assert again(message).status == Status.UNDELIVERED
    assert decide_on(message).retry(TUESDAY_NOON, 3 * DAY) == [message.id]


@pytest.mark.parametrize("says", [[None], [TOOK, None], [LOST_AT, LOST_AT, TOOK, None]], ids=str)
def test_what_did_not_arrive_is_another_text_to_the_carrier_once_a_person_retries_it(
    give, keeping, says
):
    message = store()
    give(keeping, None)
    for round in (1, 2):
        did_not_arrive(message, f"K{round - 1}")
        for number, said in enumerate(says):
            give(keeping, said, 10 * HOUR // SECOND * round + number * 600)
        assert again(message).status == Status.SENT
        assert len(keeping.kept) == len({id for id, *_ in keeping.given}) == round + 1
        assert again(message).carrier_reference == f"K{round}"


@pytest.mark.parametrize("says", [[None], [TOOK, None]], ids=str)
def test_another_copy_has_an_id_of_its_own_under_another_name_of_the_account(give, keeping, says):
    """Two SIMs of one phone, or a carrier that got a new name: its 409 would count as a yes."""
    message = store()
    give(keeping, None)
    did_not_arrive(message, "K0")
    keeping.name = "renamed"
    for number, said in enumerate(says):
        give(keeping, said, 60 + number * 600)
    assert len(keeping.kept) == len({id for id, *_ in keeping.given}) == 2
    assert (again(message).status, again(message).carrier_reference) == (Status.SENT, "K1")


@pytest.mark.parametrize("is_retried", [False, True])
def test_a_copy_in_doubt_keeps_its_id_under_another_name_of_the_account(give, keeping, is_retried):
    message = store()
    give(keeping, TOOK)
    if is_retried:  # by a person, after its time ended in doubt
        Message.update(status=Status.EXPIRED, finished_at=TUESDAY_NOON + MINUTE).execute()
        assert decide_on(message).retry(TUESDAY_NOON + MINUTE, 3 * DAY)
    keeping.name = "renamed"
    give(keeping, None, 600)
    assert (again(message).status, list(keeping.kept)) == (Status.SENT, [str(message.id)])


def test_a_copy_in_doubt_keeps_its_id_though_an_older_one_turns_out_to_be_taken(run_both, keepers):
    us, eu = keepers
    eu.answer = us.answer = LOST
    message = store()
    run_both(TUESDAY_NOON, carriers=[eu])
    run_both(TUESDAY_NOON + HOUR, carriers=[us])
    late = LateAnswer(str(message.id), "7")
    inbound.record_reports([late, Receipt("7", False)], TUESDAY_NOON + HOUR, False, "eu")
    assert decide_on(message).retry(TUESDAY_NOON + HOUR, 3 * DAY)
    us.answer = None
    run_both(TUESDAY_NOON + 2 * HOUR, carriers=[us])
    assert [id for id, *_ in us.given] == [str(message.id)] * 2
    assert again(message).status == Status.SENT


def test_what_no_carrier_took_is_the_same_text_once_a_person_retries_it(give, keeping):
    message = store(max_retries=0)
    give(keeping, FOR_GOOD)
    assert decide_on(message).retry(TUESDAY_NOON, 3 * DAY) == [message.id]
    give(keeping, None, 60)
    assert {id for id, *_ in keeping.given} == {str(message.id)}


def test_another_copy_is_looked_up_by_its_own_id(give, telling):
    message = store()
    give(telling, None)
    did_not_arrive(message, "K0")
    give(telling, TOOK, 60)
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    OptedOut.add([NEW_YORK], TUESDAY_NOON, "operator")
    give(telling, None, 120)
    assert telling.looked_up == [telling.given[-1][0]]
    assert (again(message).status, again(message).carrier_reference) == (Status.SENT, "K1")


# A person sends it again whose time ended in doubt


@pytest.fixture
def retried_in_doubt(give, telling):
    """Give a text whose answer is lost until it expires, and retry it; one more pass is due."""
    message = store(manual_mode=True, approved=True, check_dnc=True)
    give(telling, TOOK)
    Message.update(status=Status.EXPIRED, finished_at=TUESDAY_NOON + MINUTE).execute()
    at = TUESDAY_NOON + 2 * MINUTE
    assert decide_on(message).retry(at, 3 * DAY) == [message.id]
    Message.update(approved_by="Ann", approved_at=at).execute()
    return again(message)


def cancel_now(message, flask, at):
    result = flask("messages", "cancel", str(message.id))
    assert result.stdout == f"{message.id}: cancelled, unless the carrier has it already\n"


def undo_now(message, flask, at):
    assert decide_on(message).undo_approval("Ann", at) == []


def stop_now(message, flask, at):
    assert waiting.block_number(NEW_YORK, at, "asked") == 0


def promote_listed(message, flask, at):
    DoNotCall.add([NEW_YORK], at, "operator")
    waiting.promote(at)


def expire_now(message, flask, at):
    Message.update(expires_at=at).execute()
    waiting.expire(at)


def end_its_key(message, flask, at):
    message.key.pause(at)
    assert ApiKey.get_by_id(message.key_id).revoke(at)
    waiting.promote(at)
    assert waiting.cancel_unresumable(at) == 0


DECISIONS = cancel_now, undo_now, stop_now, promote_listed, expire_now, end_its_key


@pytest.mark.parametrize("decide", DECISIONS)
def test_a_retried_text_is_still_in_doubt_whatever_is_decided(
    give, telling, retried_in_doubt, flask, decide
):
    """The carrier has it from before: nobody may be told that it was kept back."""
    decide(retried_in_doubt, flask, TUESDAY_NOON + 2 * MINUTE)
    assert again(retried_in_doubt).finished_at is None
    give(telling, None, 150)
    give(telling, None, 300)
    assert (again(retried_in_doubt).status, len(telling.kept)) == (Status.SENT, 1)


@pytest.mark.parametrize("why", WHYS)
def test_a_retried_text_that_may_go_no_more_ends_and_may_be_there(give, keeping, why):
    message = store(check_dnc=True)
    give(keeping, TOOK)
    Message.update(status=Status.EXPIRED, finished_at=TUESDAY_NOON + MINUTE).execute()
    assert decide_on(message).retry(TUESDAY_NOON + MINUTE, 3 * DAY) == [message.id]
    why(message)
    for seconds in (120, 180):
        give(keeping, None, seconds)
    assert (again(message).status, len(keeping.given)) == (WHYS[why], 1)
    assert MAY_HAVE_TAKEN_IT in (again(message).last_error or "")


def test_a_retried_text_that_was_cancelled_in_doubt_can_be_undone(retried_in_doubt):
    at = TUESDAY_NOON + 2 * MINUTE
    assert decide_on(retried_in_doubt).cancel("Ann", at) == [retried_in_doubt.id]
    assert decide_on(retried_in_doubt).undo_cancel("Ann", at + SECOND) == [retried_in_doubt.id]
    assert again(retried_in_doubt).cancelled_by is None


def test_a_retried_text_that_its_carrier_does_not_have_is_cancelled(
    give, telling, retried_in_doubt
):
    telling.kept.clear()
    decide_on(retried_in_doubt).cancel("Ann", TUESDAY_NOON + 2 * MINUTE)
    give(telling, None, 150)
    assert (again(retried_in_doubt).status, telling.kept) == (Status.CANCELLED, {})
