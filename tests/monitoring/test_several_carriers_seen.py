"""What people and programs see of several carriers."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import current_thread, main_thread

import pytest

from app import create_app
from databases import on_both
from own_threads import begin
from running import wait_until
from samples import MINUTE, TUESDAY_NOON
from several_carriers import (
    ACCOUNT,
    LONG_PAUSE,
    OF_APP,
    OF_GB,
    OF_SHOP,
    OF_US,
    STAND_INS,
    UNREACHED,
    written,
)
from stored_messages import key_named, store, store_many
from texting.carriers.configs import CarrierConfig
from texting.database import db
from texting.messages.model import Message, Status
from texting.monitoring.clocks import WrongClock
from texting.monitoring.health import read
from texting.monitoring.notices import Notices
from texting.sending.carrier_state import CarrierState

PUBLIC_URL = "https://sms.example.com"
BOTH = (
    "twilio://AC1:token@+15005550006#name=us&countries=US "
    "twilio://AC2:other@+15005550006#name=eu&countries=GB,US"
)
TOKEN = {"Authorization": "Bearer " + "t" * 16}


@pytest.fixture
def app(settings):
    changed = settings._replace(carrier_url=BOTH, public_url=PUBLIC_URL, metrics_token="t" * 16)
    return create_app(changed)


def problems(app):
    return json.loads(app.test_cli_runner().invoke(args=["stats", "--json"]).stdout)["problems"]


def kinds(app):
    answer = app.test_client().get("/healthz").json
    return answer["problems"]


@pytest.mark.parametrize(("of_us", "of_eu", "stand_in"), STAND_INS)
def test_who_takes_a_place_may_serve_some_of_the_same_texts(
    app, settings, run_both, us, people, caplog, of_us, of_eu, stand_in
):
    us.answer = UNREACHED
    store()
    run_both(TUESDAY_NOON, [CarrierConfig("us", **of_us), CarrierConfig("eu", **of_eu)])
    end = f"; {stand_in or 'no other'} takes its place"
    (problem,) = [each for each in problems(app) if each.startswith("us has been down")]
    assert problem.endswith(end)
    found = json.loads(app.test_cli_runner().invoke(args=["stats", "--json"]).stdout)
    (down, well), carriers = found["carriers"], [each["carrier"] for each in found["carriers"]]
    assert (down["stand_in"], well["stand_in"], well["trouble"]) == (stand_in, None, None)
    assert (found["carrier"], carriers, down["is_down"]) == ("us", ["us", "eu"], True)
    assert ("eu takes its place" in caplog.text) == bool(stand_in)
    notices = Notices(settings._replace(notify_url=people.url))
    notices.start()
    notices.finish(look=True)
    assert f"{problem}." in people.told[0] or f"{problem}; " in people.told[0]


TROUBLES = [
    (UNREACHED, "down", "has been down", ": there is no connection"),
    (ACCOUNT, "refused", "has refused the account", ": it refuses the account"),
    (LONG_PAUSE, "pausing", "has asked for a long pause", ""),
]


@pytest.mark.parametrize(("answer", "kind", "words", "why"), TROUBLES)
def test_whatever_its_trouble_is_it_is_told_everywhere_alike_until_it_is_over(
    app, at, run_both, us, eu, answer, kind, words, why
):
    us.answer = answer
    store()
    assert run_both(TUESDAY_NOON)["sent"] == 1
    since = "since 2026-03-03T17:00:00.000Z"
    assert problems(app) == [f"us {words} {since}{why}; eu takes its place"]
    assert kinds(app) == [kind]
    assert 'carrier_trouble{carrier="us"} 1.0' in metrics(app)
    assert 'carrier_trouble{carrier="eu"} 0.0' in metrics(app)
    stats = app.test_cli_runner().invoke(args=["stats"]).stdout
    assert f"PROBLEM: us {words} {since}" in stats
    us.answer = None
    store_many(20)
    eu.answer = lambda: wait_until(lambda: len(us.texts) > 1) and None
    assert run_both(TUESDAY_NOON + 2 * MINUTE)["sent"] == 20
    assert problems(app) == []
    assert 'carrier_trouble{carrier="us"} 0.0' in metrics(app)


def test_the_first_in_trouble_stands_for_all(settings):
    CarrierState.record_pass(TUESDAY_NOON, {"us": ["eu"], "eu": ["us"]})
    CarrierState.begin_pause("eu", TUESDAY_NOON, trouble="no credit")
    found = read(TUESDAY_NOON, settings)
    assert (found.carrier, found.trouble, found.is_down) == ("eu", "no credit", False)


def metrics(app):
    return app.test_client().get("/metrics", headers=TOKEN).text


def test_where_both_are_in_trouble_nobody_takes_a_place(app, at):
    at(TUESDAY_NOON)
    CarrierState.record_pass(TUESDAY_NOON, {"us": ["eu"], "eu": ["us"]})
    CarrierState.begin_pause("us", TUESDAY_NOON, trouble="no connection", is_down=True)
    CarrierState.begin_pause("eu", TUESDAY_NOON, trouble="the token is wrong")
    first, second = problems(app)
    assert first.endswith("; no other takes its place")
    assert second.startswith("eu has refused the account")


@on_both
def test_both_are_seen_while_the_next_pass_begins(settings, monkeypatch):
    both, seen, execute = {"us": ["eu"], "eu": ["us"]}, [], db.obj.execute_sql
    CarrierState.record_pass(TUESDAY_NOON, both)

    def look(*statement):
        """Execute a statement of the pass, and look from elsewhere what others see by now."""
        done = execute(*statement)
        if current_thread() is main_thread():
            with ThreadPoolExecutor() as threads:
                health = begin(threads, lambda: read(TUESDAY_NOON + MINUTE, settings)).result()
            seen.append(tuple(each.carrier for each in health.carriers))
        return done

    monkeypatch.setattr(db.obj, "execute_sql", look)
    CarrierState.record_pass(TUESDAY_NOON + MINUTE, both)
    assert {*seen} == {("us", "eu")}


def test_a_long_pause_is_told_and_a_short_one_is_not(app, at):
    at(TUESDAY_NOON)
    CarrierState.record_pass(TUESDAY_NOON, {"us": ["eu"], "eu": ["us"]})
    CarrierState.begin_pause("us", TUESDAY_NOON, asked_for=30)
    assert problems(app) == []


IN_DOUBT = {"in_doubt": 1, "in_doubt_since": TUESDAY_NOON, "in_doubt_with": "gone"}


@pytest.mark.parametrize("doubt", [{}, IN_DOUBT], ids=["", "in doubt"])
@pytest.mark.parametrize(
    ("of_us", "of_eu"), [(OF_GB, OF_GB), (OF_SHOP, OF_SHOP), (OF_APP | OF_GB, OF_SHOP | OF_US)]
)
def test_how_many_texts_no_carrier_may_be_used_for_is_told(
    app, settings, run_both, doubt, of_us, of_eu
):
    store(**doubt)
    configs = [CarrierConfig("us", **of_us), CarrierConfig("eu", **of_eu)]
    app.config["SETTINGS"] = settings._replace(carrier_url=" ".join(map(written, configs)))
    run_both(TUESDAY_NOON, configs)
    assert problems(app) == ["1 text has no usable carrier for its country and key"]
    store(**doubt)
    run_both(TUESDAY_NOON, configs)
    assert problems(app) == ["2 texts have no usable carrier for their country and key"]
    assert statuses_of() == {Status.QUEUED}


# Through which of them nothing goes

OF_EACH = (
    "twilio://AC1:token@+15005550006#name=us&countries=US "
    "twilio://AC2:other@+15005550006#name=eu&countries=GB&keys=shop"
)
LATE = TUESDAY_NOON + 3 * MINUTE
DUE = "for 2 minutes, although some have been due since 2026-03-03T17:00:00.000Z"


@pytest.fixture
def stuck(settings):
    """The kinds of problems, and the sentence about texts that do not go, if there is one."""

    def read_at(now, carrier_url=OF_EACH):
        names = [word.partition("name=")[2].partition("&")[0] for word in carrier_url.split()]
        CarrierState.record_pass(now, dict.fromkeys(names, ()))
        found = read(now, settings._replace(carrier_url=carrier_url)).problems()
        (sentence,) = [each.sentence for each in found if each.kind == "stalled"] or [None]
        return [each.kind for each in found], sentence

    return read_at


def british(**more):
    return store(country="GB", key=key_named("shop"), **more)


WAYS = {
    "queued": {},
    "scheduled": {"status": Status.SCHEDULED},
    "retrying": {"due_since": TUESDAY_NOON, "status": Status.SCHEDULED, "send_at": LATE + MINUTE},
    "under way": {"status": Status.SENDING, "claimed_for": "eu"},
}


@on_both
@pytest.mark.parametrize("way", WAYS)
def test_what_goes_through_another_carrier_hides_no_texts_that_do_not(stuck, tester, way):
    taken = {"status": Status.SENT, "finished_at": LATE - MINUTE}
    british(**WAYS[way])
    store(carrier="us", **taken)
    store(key=tester, carrier="(testers)", **taken)
    why = ": 1 text has no answer yet" if way == "under way" else ""
    assert stuck(LATE) == (["stalled"], f"No text has gone through eu {DUE}{why}")
    store(carrier="eu", **taken)
    assert stuck(LATE) == ([], None)
    assert stuck(LATE + MINUTE)[0] == []
    assert stuck(LATE + 2 * MINUTE)[0] == ["stalled"]


@on_both
def test_a_testers_texts_do_not_hide_that_nothing_goes(stuck, tester):
    british()
    store(key=tester, status=Status.SENT, finished_at=LATE, carrier="(testers)")
    one = "twilio://AC1:token@+15005550006#name=us"
    assert stuck(LATE, one) == (["stalled"], f"No text has gone through us {DUE}")
    store(key=tester)
    assert stuck(LATE, one)[0] == ["stalled"]
    store(status=Status.SENT, finished_at=LATE, carrier="us")
    assert stuck(LATE, one)[0] == []


@on_both
def test_texts_without_a_carrier_or_with_one_in_trouble_are_one_problem(stuck, at):
    at(LATE)
    store(country="FR")
    assert stuck(LATE) == (["unroutable"], None)
    british()
    british(status=Status.SENDING, claimed_for="eu")
    CarrierState.begin_pause("eu", LATE, trouble="no connection", is_down=True)
    assert stuck(LATE) == (["down", "unroutable"], None)
    store(status=Status.SENDING, claimed_for="us")
    kinds, sentence = stuck(LATE)
    assert kinds == ["down", "unroutable", "stalled"]
    assert sentence == f"No text has gone through us {DUE}: 1 text has no answer yet"


@on_both
def test_texts_that_wait_because_a_clock_is_wrong_are_one_problem(stuck, at):
    at(LATE)
    british()
    wrong = {"who": "the scheduler on a", "against": "the database", "ahead": 200, "stops": True}
    WrongClock.create(process=uuid.uuid4(), until=LATE + MINUTE, **wrong)
    assert stuck(LATE) == (["clock"], None)
    british(status=Status.SENDING, claimed_for="eu")  # by another scheduler
    assert stuck(LATE)[0] == ["clock", "stalled"]
    Message.delete().where(Message.status == Status.SENDING).execute()
    WrongClock.update(stops=False).execute()
    assert stuck(LATE)[0] == ["clock", "stalled"]


def test_the_stand_in_of_a_carrier_in_trouble_is_the_one_that_is_stuck(stuck, at):
    at(LATE)
    british()
    both = OF_EACH.replace("US", "GB")
    stuck(LATE, both)
    CarrierState.begin_pause("us", LATE, trouble="no credit")
    assert stuck(LATE, both)[1] == f"No text has gone through eu {DUE}"


def test_a_text_in_doubt_waits_for_the_carrier_that_may_have_it(stuck, at):
    at(LATE)
    british(in_doubt=1, in_doubt_since=TUESDAY_NOON, in_doubt_with="us")
    assert stuck(LATE)[1] == f"No text has gone through us {DUE}"
    CarrierState.begin_pause("us", LATE, trouble="no connection", is_down=True)
    assert stuck(LATE) == (["down"], None)


def test_a_text_in_doubt_at_a_carrier_that_is_gone_waits_for_another(stuck):
    british(in_doubt=1, in_doubt_since=TUESDAY_NOON, in_doubt_with="gone")
    assert stuck(LATE)[1] == f"No text has gone through eu {DUE}"


def statuses_of():
    return {message.status for message in Message.select()}
