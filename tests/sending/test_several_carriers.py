"""Several carriers: who sends, who takes over, and where doubts stay."""

import pytest

import carrier_servers
from databases import on_both
from fake_carrier import FOR_GOOD, FOR_NOW
from running import wait_until
from samples import (
    ALWAYS_OPEN,
    DAY,
    HOUR,
    LONDON,
    MINUTE,
    NEIGHBOUR,
    NEW_YORK,
    SECOND,
    TUESDAY_NOON,
)
from several_carriers import (
    ACCOUNT,
    NO_ROUTE,
    OF_APP,
    OF_GB,
    OF_SHOP,
    OF_US,
    SILENT,
    UNREACHED,
    NamedCarrier,
)
from stored_messages import (
    SENDER,
    again,
    decide_on,
    held,
    key_named,
    statuses,
    store,
    store_many,
    take_over,
)
from texting import carriers
from texting.carriers import CarrierError, Fault, Receipt, configs
from texting.carriers.configs import CarrierConfig
from texting.database import db
from texting.messages import doubts, receipts, waiting
from texting.messages.heartbeat import Heartbeat
from texting.messages.model import Message, Status
from texting.replies import inbound
from texting.replies.inbound import ReplyRules
from texting.replies.model import Reply
from texting.sending.carrier_state import CarrierState
from texting.sending.outcomes import MAY_HAVE_TAKEN_IT, UNANSWERED

pytestmark = on_both


def once_there_are(number, texts):
    """Return what a carrier does with a text: take it as soon as another has so many."""

    def take():
        wait_until(lambda: len(texts) >= number)

    return take


def test_what_one_refused_as_the_account_loses_no_retry_where_the_next_does_the_same(
    run_both, us, eu
):
    us.answer, eu.answer = ACCOUNT, CarrierError("slow down", Fault.TOO_FAST)
    message = store(max_retries=0)
    run_both(TUESDAY_NOON)
    eu.answer, eu.answers[NEW_YORK] = None, ACCOUNT
    store(to=NEIGHBOUR, send_at=TUESDAY_NOON - MINUTE)  # goes first after the pause
    run_both(TUESDAY_NOON + 2 * SECOND)
    assert (us.numbers, eu.numbers) == ([NEW_YORK], [NEW_YORK, NEIGHBOUR, NEW_YORK])
    assert (again(message).status, again(message).attempts) == (Status.QUEUED, 0)
    assert CarrierState.get_by_id("eu").trouble == str(ACCOUNT)


def test_the_longest_due_goes_first_whoever_else_could_take_it(run_both, us, eu):
    """A stand-in's own texts and those of the other are one queue."""
    configs = [CarrierConfig("us", countries=frozenset({"US"})), CarrierConfig("eu")]
    us.answer = UNREACHED
    store()
    run_both(TUESDAY_NOON, configs)
    for seconds, (number, country) in enumerate([(NEW_YORK, "US"), (LONDON, "GB")] * 3):
        due = TUESDAY_NOON - seconds * SECOND
        store(to=number, country=country, send_at=due, message=str(seconds))
    run_both(TUESDAY_NOON + SECOND, configs, send_concurrency=1, **ALWAYS_OPEN)
    assert [text for _, text in eu.texts[1:]] == [*"543210"]


def test_an_answer_of_one_ends_no_others_row_of_unanswered_texts(database_url):
    for name in ("us", "eu"):
        CarrierState.prepare(name)
        CarrierState.count_unanswered(name)
    are_down = [CarrierState.count_unanswered("eu") for _ in range(3)]
    assert are_down == [False] * 3
    CarrierState.reset_unanswered("us")
    assert CarrierState.count_unanswered("eu"), "the fifth"


@pytest.mark.parametrize(
    ("seconds", "is_waited_for"), [(59, True), (60, True), (60.001, False), (61, False)]
)
def test_up_to_a_minute_a_pause_is_waited_for_and_is_no_trouble(
    run_both, us, eu, known_problems, seconds, is_waited_for
):
    us.answer = CarrierError("slow down", Fault.TOO_FAST, retry_after=seconds)
    store()
    run_both(TUESDAY_NOON)
    assert [len(us.texts), len(eu.texts)] == [1, int(not is_waited_for)]
    assert (known_problems(TUESDAY_NOON) == []) == is_waited_for


@pytest.mark.slow
def test_one_that_cannot_be_asked_is_tried_with_one_text_that_is_not_in_doubt(run_both, us, eu):
    us.answer = UNREACHED
    store()
    run_both(TUESDAY_NOON)
    doubtful = store(in_doubt=1, in_doubt_with="us", in_doubt_since=TUESDAY_NOON, to="+12125559999")
    run_both(TUESDAY_NOON + 10 * SECOND)
    assert "+12125559999" not in us.numbers
    assert again(doubtful).carrier == "eu"
    store_many(20, send_at=TUESDAY_NOON + 10 * SECOND)
    eu.answer = once_there_are(2, us.texts)  # or all might be gone before the other is tried
    run_both(TUESDAY_NOON + 30 * SECOND)
    assert len(us.texts) == 2, "one in each pause"
    us.answer = None
    store_many(20, send_at=TUESDAY_NOON + 10 * SECOND)
    eu.answer = once_there_are(3, us.texts)
    run_both(TUESDAY_NOON + 2 * MINUTE)
    assert len(us.texts) > 2
    assert CarrierState.get_by_id("us").trouble is None
    assert statuses() == {Status.SENT: 42}


@pytest.mark.parametrize(
    ("us_says", "eu_says", "status", "attempts", "carrier", "given"),
    [
        ([None], [], Status.SENT, 1, "us", (1, 0)),
        ([FOR_GOOD], [], Status.FAILED, 1, "us", (1, 0)),
        ([FOR_NOW] * 2, [FOR_NOW] * 2, Status.FAILED, 4, "eu", (2, 2)),  # in a circle
        ([FOR_NOW], [None], Status.SENT, 2, "eu", (1, 1)),
        ([NO_ROUTE], [None], Status.SENT, 1, "eu", (1, 1)),
        ([UNREACHED], [None], Status.SENT, 1, "eu", (1, 1)),
        ([SILENT, None], [], Status.SENT, 2, "us", (2, 0)),
        ([SILENT] * 2, [], Status.FAILED, 2, "us", (2, 0)),
        ([FOR_NOW, SILENT], [SILENT], Status.FAILED, 3, "us", (2, 1)),
        ([NO_ROUTE], [SILENT] * 2, Status.FAILED, 2, "eu", (1, 2)),
    ],
)
def test_a_text_goes_round_until_it_ends_or_two_copies_may_be_taken(
    run_both, us, eu, us_says, eu_says, status, attempts, carrier, given
):
    """What each carrier says if it is given the text, in hourly passes, and what comes of that."""
    us.answers[NEW_YORK], eu.answers[NEW_YORK] = iter(us_says).__next__, iter(eu_says).__next__
    message = store()
    for hours in range(6):
        run_both(TUESDAY_NOON + hours * HOUR, retry_delay=1, **ALWAYS_OPEN)
    ended = again(message)
    assert (ended.status, ended.attempts, ended.carrier) == (status, attempts, carrier)
    assert (len(us.texts), len(eu.texts)) == given
    may_have_it = status == Status.FAILED and SILENT in (*us_says, *eu_says)
    assert (MAY_HAVE_TAKEN_IT in (ended.last_error or "")) == may_have_it
    in_trouble = UNREACHED in us_says
    assert bool(CarrierState.get_by_id("us").trouble) == in_trouble, "of one text it says nothing"


def test_where_no_way_is_left_the_no_is_what_it_is_with_one_carrier(run_both, us, eu):
    us.answer = eu.answer = NO_ROUTE
    store(max_retries=0)
    run_both(TUESDAY_NOON)
    message = Message.get()
    assert (message.status, message.attempts) == (Status.QUEUED, 0)
    assert len(us.texts) == 1, "it has no route for this text"
    assert CarrierState.get_by_id("eu").trouble == str(NO_ROUTE)


@pytest.mark.parametrize(
    ("of_us", "of_all", "given"),
    [(1, None, (1, 20)), (10, None, (7, 20)), (None, 1, (1, 1)), (1, 10, (1, 7)), (10, 1, (7, 1))],
)
def test_a_rate_of_its_own_stands_in_place_of_the_setting(run_both, us, eu, of_us, of_all, given):
    """Within one instant no more goes than is free after a pause."""
    configs = [
        CarrierConfig("us", countries={"US"}, rate=of_us),
        CarrierConfig("eu", countries={"GB"}),
    ]
    for country in ("US", "GB"):
        store_many(20, country=country)
    run_both(TUESDAY_NOON, configs, send_rate=of_all)
    assert (len(us.texts), len(eu.texts)) == given


# Doubts


def asked_both(can_be_asked=("us",)):
    return [NamedCarrier(name, name in can_be_asked) for name in ("us", "eu")]


@pytest.mark.slow
def test_a_carrier_that_can_be_asked_keeps_its_doubt_however_long_it_is_down(run_both):
    us, eu = both = asked_both()
    us.answer, us.health = SILENT, UNREACHED
    store()
    run_both(TUESDAY_NOON, carriers=both)
    us.answer = UNREACHED
    store(to="+12125559999")
    for hours in range(1, 70, 5):
        run_both(TUESDAY_NOON + hours * HOUR, carriers=both, **ALWAYS_OPEN)
    assert eu.numbers == ["+12125559999"]
    us.health = None
    us.has[NEW_YORK] = ["SM1"]
    run_both(TUESDAY_NOON + 71 * HOUR, carriers=both, **ALWAYS_OPEN)
    message = Message.get(Message.to == NEW_YORK)
    assert (message.status, message.carrier, message.carrier_reference) == ("sent", "us", "SM1")
    assert eu.numbers == ["+12125559999"]


@pytest.mark.slow
@pytest.mark.parametrize("is_there", [True, False], ids=["is down", "is gone"])
@pytest.mark.parametrize("status", [Status.CANCELLED, Status.EXPIRED])
def test_what_cannot_be_asked_about_ends_in_time_as_people_wanted_it(run_both, is_there, status):
    """Its carrier is down, or gone; the other is not for its country."""
    us, eu = both = asked_both()
    us.answer = us.health = SILENT
    message = store(first_send_at=TUESDAY_NOON)
    configs = [CarrierConfig("us"), CarrierConfig("eu", countries={"GB"})]
    run_both(TUESDAY_NOON, configs, carriers=both)
    if status == Status.CANCELLED:
        decide_on(again(message)).cancel("shell", TUESDAY_NOON)
    us.answer = us.health = UNREACHED
    left = both if is_there else [eu]
    for hours in (1, 71.9):
        run_both(TUESDAY_NOON + hours * HOUR, configs, carriers=left, **ALWAYS_OPEN)
        assert again(message).status in (Status.SCHEDULED, Status.QUEUED)
    for hours in (73, 74):
        run_both(TUESDAY_NOON + hours * HOUR, configs, carriers=left, **ALWAYS_OPEN)
    assert again(message).status == status
    assert MAY_HAVE_TAKEN_IT in again(message).last_error
    assert eu.texts == []
    then = TUESDAY_NOON + 75 * HOUR
    for name, becomes in (("eu", status), ("us", Status.DELIVERED)):
        receipts.record_receipts([Receipt("SM1", True, None, NEW_YORK)], then, name)
        assert again(message).status == becomes, "another carrier says nothing of it"


@pytest.mark.parametrize("seconds", [1, 14, 16])
def test_in_a_rolling_restart_a_doubt_is_left_to_those_who_know_its_carrier(run_both, seconds):
    """They make passes; once they do so no more, the carrier is gone."""
    us, eu = both = asked_both()
    us.answer = us.health = SILENT
    message = store()
    run_both(TUESDAY_NOON, carriers=both)
    now = TUESDAY_NOON + 5 * MINUTE
    run_both(now, carriers=both)
    run_both(now + seconds * SECOND, carriers=[eu])
    assert len(eu.texts) == (seconds > 15)
    if not eu.texts:
        us.health, us.has[NEW_YORK] = None, ["SM1"]
        run_both(now + HOUR, carriers=both)
        run_both(now + 2 * HOUR, carriers=both)
        assert (again(message).status, again(message).carrier) == (Status.SENT, "us")
        assert (len(us.texts), eu.texts) == (1, [])


def cancel(message, _):
    decide_on(message).cancel("shell", TUESDAY_NOON)


def give_up_and_retry(message, lasts):
    waiting.expire_in_doubt([message.lane], UNANSWERED, TUESDAY_NOON)
    assert decide_on(message).retry(TUESDAY_NOON, lasts)


@pytest.mark.parametrize(
    ("decide", "status"), [(cancel, Status.CANCELLED), (give_up_and_retry, Status.SCHEDULED)]
)
def test_what_a_person_decides_while_a_carrier_gives_no_answer_holds(run_both, decide, status):
    us, eu = asked_both(("us",))
    old = {"first_send_at": TUESDAY_NOON - DAY, "expires_at": TUESDAY_NOON}
    message = store(in_doubt=1, in_doubt_with="us", in_doubt_since=TUESDAY_NOON - DAY, **old)

    def find(*_):
        decide(message, DAY)
        db.close()  # of this thread
        raise CarrierError("out of order")

    us.find = find
    run_both(TUESDAY_NOON, carriers=[us, eu])
    assert again(message).status == status


def test_a_reference_that_an_equal_text_has_is_no_others(run_both):
    """The carrier, asked about the second of two equal texts, tells of the first, too."""
    us, _ = both = asked_both(("us",))
    sent = {"carrier": "us", "carrier_reference": "SM1", "finished_at": TUESDAY_NOON}
    store(status=Status.SENT, **sent)
    store(in_doubt=1, in_doubt_with="us", in_doubt_since=TUESDAY_NOON, attempts=1)
    us.has[NEW_YORK] = ["SM1"]
    for seconds in range(2):
        run_both(TUESDAY_NOON + seconds * SECOND, carriers=both)
    assert len(us.texts) == 1, "the carrier has not taken it"


# References


@pytest.mark.parametrize("early", [True, False])
def test_two_carriers_may_use_the_same_reference(database_url, early):
    messages = {name: held(Status.SENDING, claimed_for=name) for name in ("us", "eu")}

    def say_yes():
        for name, message in messages.items():
            receipts.record_accepted({message.id: "7"}, TUESDAY_NOON, name)

    if not early:
        say_yes()
    receipts.record_receipts([Receipt("7", True, None)], TUESDAY_NOON, "us")
    receipts.record_receipts([Receipt("7", False, "off")], TUESDAY_NOON, "eu")
    if early:
        say_yes()
    statuses = [again(message).status for message in messages.values()]
    assert statuses == [Status.DELIVERED, Status.UNDELIVERED]
    assert not receipts.EarlyReceipt.select().exists()


def test_a_reference_that_is_known_under_any_name_is_no_other_texts(database_url):
    """One account may have two names, or another one than yesterday."""
    store(status=Status.SENT, carrier="eu", carrier_reference="7", finished_at=TUESDAY_NOON)
    doubtful = store(status=Status.SENDING, in_doubt=1, in_doubt_with="us")
    (copy,) = doubts.unclear_at("us", doubtful.id)
    assert not receipts.found(copy, ["7"], TUESDAY_NOON, "us")
    assert receipts.found(copy, ["7", "8"], TUESDAY_NOON, "us")
    assert again(doubtful).carrier_reference == "8"


@pytest.fixture
def run_names(twilio_server, run_both):
    """Make a pass with one account under two names: a for the key first, b for second."""
    names = {"a": "first", "b": "second"}
    url = " ".join(f"{twilio_server.url}#name={name}&keys={key}" for name, key in names.items())

    def run(at):
        run_both(at, configs.parse(url), configs.connect_all(configs.parse(url), 4, 5))

    return run


@pytest.mark.parametrize("is_earlier", [True, False])
def test_a_text_that_was_not_taken_is_not_held_for_an_equal_one_of_the_accounts_other_name(
    run_names, twilio_server, is_earlier
):
    later = 0 * SECOND if is_earlier else 2 * SECOND
    theirs = store(key=key_named("second"), send_at=TUESDAY_NOON + later)
    if is_earlier:
        run_names(TUESDAY_NOON)
    twilio_server.answers[NEW_YORK] = carrier_servers.Answer(504)
    lost = store(key=key_named("first"), send_at=TUESDAY_NOON + SECOND)
    run_names(TUESDAY_NOON + 2 * SECOND)
    del twilio_server.answers[NEW_YORK]
    assert again(lost).in_doubt
    for minutes in range(2, 20, 2):
        run_names(TUESDAY_NOON + minutes * MINUTE)
    assert again(lost).status == again(theirs).status == Status.SENT
    assert again(lost).carrier_reference != again(theirs).carrier_reference
    assert len(twilio_server.messages) == 2


def test_while_an_account_may_have_a_text_no_equal_one_goes_under_its_other_name(
    run_names, twilio_server
):
    twilio_server.answers[NEW_YORK] = carrier_servers.Answer(504)
    store(key=key_named("first"))
    run_names(TUESDAY_NOON)
    theirs = store(key=key_named("second"))
    run_names(TUESDAY_NOON + SECOND)
    assert (again(theirs).status, len(twilio_server.texts)) == (Status.SCHEDULED, 1)


def test_about_a_retried_text_nobody_asks_while_an_equal_one_goes_under_the_other_name(
    run_names, twilio_server
):
    doubt = {"in_doubt": 1, "carrier": "a", "key": key_named("first")}
    expired = held(Status.EXPIRED, finished_at=TUESDAY_NOON, **doubt)
    assert decide_on(expired).retry(TUESDAY_NOON, 3 * DAY)
    held(Status.SENDING, claimed_for="b", key=key_named("second"))
    run_names(TUESDAY_NOON + MINUTE)
    assert twilio_server.asked == []


def test_while_one_carrier_may_have_a_text_an_equal_one_goes_through_another(run_both):
    """However long the first is down: their lists differ."""
    us, eu = both = asked_both()
    us.health = CarrierError("out of order")
    store(key=key_named("first"), in_doubt=1, in_doubt_with="us", in_doubt_since=TUESDAY_NOON)
    store(key=key_named("second"))
    keys = [
        CarrierConfig("us", keys=frozenset(["first"])),
        CarrierConfig("eu", keys=frozenset(["second"])),
    ]
    run_both(TUESDAY_NOON, keys, both)
    assert (us.texts, eu.texts) == ([], [(NEW_YORK, "Hello")])


@pytest.mark.parametrize("is_meanwhile", [True, False])
def test_a_copy_of_before_a_retry_that_is_ruled_out_leaves_the_doubt_of_another(
    run_both, us, eu, is_meanwhile
):
    us.can_be_asked, find = True, us.find
    message = store(in_doubt=2, in_doubt_with="us eu", in_doubt_since=TUESDAY_NOON)

    def find_late(*question):
        Message.update(claims_before_retry=1, in_doubt=1).execute()
        db.close()  # of this thread
        return find(*question)

    if is_meanwhile:
        us.find = find_late
    else:
        Message.update(claims_before_retry=1, in_doubt=1).execute()
    decide_on(message).cancel("shell", TUESDAY_NOON)
    run_both(TUESDAY_NOON + MINUTE)
    assert us.asked == [NEW_YORK]
    ended = again(message)
    assert (ended.status, ended.last_error) == (Status.CANCELLED, UNANSWERED), "eu may have it"


def test_a_doubt_that_is_settled_leaves_those_with_other_carriers(run_both):
    """One copy may be with us; eu, asked, has none: only one more may go, wherever."""
    us, eu = both = asked_both(("eu",))
    us.answer = SILENT
    message = store(in_doubt=2, in_doubt_with="us eu", in_doubt_since=TUESDAY_NOON, attempts=1)
    for minutes in range(5):
        run_both(TUESDAY_NOON + minutes * MINUTE, carriers=both, retry_delay=1)
    assert (eu.asked, len(us.texts), eu.texts) == ([NEW_YORK], 1, [])
    assert (again(message).status, again(message).in_doubt) == (Status.FAILED, 2)


def test_a_question_without_an_answer_leaves_that_to_another_carrier_in_hand(run_both):
    """Another scheduler asks the other one just now."""
    us, eu = both = asked_both(("us", "eu"))
    us.health = CarrierError("out of order")
    message = store(in_doubt=2, in_doubt_with="us eu", in_doubt_since=TUESDAY_NOON)
    Heartbeat.create(sender=SENDER, beat_at=TUESDAY_NOON)
    assert doubts.claim(message.id, "eu", SENDER, TUESDAY_NOON)
    for minutes in (0, 4):
        run_both(TUESDAY_NOON + minutes * MINUTE, carriers=both, retry_delay=1)
    assert (us.asked, eu.asked) == ([NEW_YORK] * 2, [])


@pytest.mark.parametrize("dies", [True, False], ids=["its scheduler dies", "its answer is lost"])
def test_a_carrier_is_asked_about_its_copy_though_the_receipt_of_anothers_has_ended_the_text(
    run_both, dies
):
    us, eu = asked_both(("eu",))
    doubt = {"in_doubt": 1, "in_doubt_with": "us", "in_doubt_since": TUESDAY_NOON}
    message = held(Status.SENDING, claimed_for="eu", **doubt) if dies else store(**doubt)

    def end():
        inbound.record_reports([Receipt("1", False, "off", NEW_YORK)], TUESDAY_NOON, False, "us")
        assert again(message).status == Status.UNDELIVERED
        eu.has[NEW_YORK] = ["2"]
        return SILENT

    eu.answer = end
    if dies:
        end()
        take_over(TUESDAY_NOON)
    else:
        run_both(TUESDAY_NOON, carriers=[eu, us])
    assert decide_on(message).retry(TUESDAY_NOON + MINUTE, DAY)
    run_both(TUESDAY_NOON + 2 * MINUTE, carriers=[eu, us])
    assert (again(message).status, again(message).carrier_reference) == (Status.SENT, "2")
    assert (len(eu.texts), us.texts) == (0 if dies else 1, [])


@pytest.mark.slow
def test_a_message_that_is_retried_may_go_through_all_carriers_again(run_both, us, eu):
    us.answer, eu.answer = NO_ROUTE, FOR_GOOD
    message = store()
    assert run_both(TUESDAY_NOON)["failed"] == 1
    us.answer = None
    assert decide_on(again(message)).retry(TUESDAY_NOON, 3 * DAY)
    assert run_both(TUESDAY_NOON)["sent"] == 1
    assert again(message).carrier == "us"


# Which texts are whose


def store_each():
    """Store a text of each of two keys to each of two countries."""
    for key in ("app", "shop"):
        for to, country in ((NEW_YORK, "US"), (LONDON, "GB")):
            store(to=to, country=country, key=key_named(key), message=f"{key} to {country}")


def given(carrier):
    """Return what a carrier was given, in no order."""
    return {text for _, text in carrier.texts}


ALONE = [
    (OF_US, {"app to US", "shop to US"}),
    (OF_APP, {"app to US", "app to GB"}),
    (OF_US | OF_APP, {"app to US"}),
]


@pytest.mark.parametrize(("options", "its_own"), ALONE)
def test_a_single_pass_gives_a_lone_carrier_all_that_it_may_be_given(
    run_both, us, options, its_own
):
    store_each()
    counts = run_both(TUESDAY_NOON, [CarrierConfig("us", **options)], carriers=[us], **ALWAYS_OPEN)
    assert counts["sent"] == len(its_own)
    assert given(us) == its_own


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "then"),
    [
        (OF_GB, OF_US, {"app to US", "shop to US"}),
        (OF_SHOP, OF_APP, {"app to US", "app to GB"}),
        (OF_SHOP | OF_GB, OF_SHOP | OF_US, {"shop to US"}),
        (OF_SHOP | OF_GB, OF_APP | OF_GB, {"app to GB"}),
        (OF_SHOP, {}, {"app to US", "app to GB"}),
        (OF_GB, {}, {"app to US", "shop to US"}),
    ],
)
def test_what_waits_when_the_options_change_goes_by_the_new_ones(
    run_both, us, eu, before, after, then
):
    """The other carrier may be used for nobody's texts."""
    nobody = CarrierConfig("eu", keys={"nobody"})
    store_each()
    run_both(TUESDAY_NOON, [CarrierConfig("us", **before), nobody], **ALWAYS_OPEN)
    already = given(us)
    run_both(TUESDAY_NOON, [CarrierConfig("us", **after), nobody], **ALWAYS_OPEN)
    assert given(us) - already == then
    assert eu.texts == []
    left = {message.message for message in Message.select() if message.status == "queued"}
    assert left == {f"{key} to {to}" for key in ("app", "shop") for to in ("US", "GB")} - given(us)


# A copy that one may have of a text that another took


@pytest.fixture
def in_doubt_at_us(run_both, us):
    """Store a text, of which us may have a copy."""

    def begin(now):
        us.answer = SILENT
        message = store(now)
        run_both(now)
        assert again(message).in_doubt == 1
        return message

    return begin


def go_on_through_eu(run_both, us, now):
    """Send what waits while us is down, for some minutes."""
    us.answer, us.health = UNREACHED, UNREACHED
    run_both(now)
    us.health = None
    run_both(now + 5 * MINUTE)


@pytest.mark.parametrize("may_have_it", [True, False])
def test_a_reply_belongs_to_a_text_of_which_its_carrier_may_have_a_copy(
    in_doubt_at_us, run_both, us, eu, may_have_it
):
    """Though another carrier has taken the text."""
    message = in_doubt_at_us(TUESDAY_NOON) if may_have_it else store()
    go_on_through_eu(run_both, us, TUESDAY_NOON + HOUR)
    assert (again(message).status, again(message).carrier) == (Status.SENT, "eu")
    said = carriers.IncomingText(NEW_YORK, "Which shop?")
    inbound.record([said], TUESDAY_NOON + 2 * HOUR, ReplyRules("us", "asked", None, None))
    assert Reply.get().message_id == (message.id if may_have_it else None)


@pytest.mark.parametrize("through_eu", [True, False], ids=["sent by another", "waits again"])
def test_a_late_receipt_of_a_copy_from_before_a_retry_is_no_other_texts(
    in_doubt_at_us, run_both, us, eu, through_eu
):
    first = in_doubt_at_us(TUESDAY_NOON)
    run_both(TUESDAY_NOON + HOUR)
    assert again(first).status == Status.FAILED
    decide_on(again(first)).retry(TUESDAY_NOON + HOUR, 3 * DAY)
    if through_eu:
        go_on_through_eu(run_both, us, TUESDAY_NOON + 2 * HOUR)
        assert again(first).carrier == "eu"
    else:
        first.update(send_at=TUESDAY_NOON + DAY).execute()
    second = in_doubt_at_us(TUESDAY_NOON + 4 * HOUR)
    late = Receipt("SM1", True, number=NEW_YORK)
    inbound.record_reports([late], TUESDAY_NOON + 5 * HOUR, False, "us")
    assert again(second).status == Status.SCHEDULED, "which of the two is not known"
