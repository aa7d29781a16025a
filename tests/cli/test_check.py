"""`flask check`: one look at all that has to be right, before and after the start."""

import re
from datetime import UTC, datetime, timedelta

import pytest

from app import create_app
from carrier_servers import Answer, self_signed, served
from databases import POSTGRES, on_postgres
from kits.smsgate import SmsgateServer
from samples import DAY, HOUR
from stored_messages import decide_on, key_named, store
from texting import database
from texting.database import clock
from texting.events.outbox import EventAddress

smsgate = served(SmsgateServer)


@pytest.fixture
def check(flask_with):
    """Run `flask check` with other settings; return its exit status and its lines."""

    def run(**changes):
        result = flask_with(**changes)("check")
        assert "Traceback" not in result.output
        return result.exit_code, result.stdout.splitlines()

    return run


def about(lines, name):
    """The lines about a part, without its name."""
    return [line.partition(f"{name}: ")[2] for line in lines if f"{name}: " in line]


def test_what_is_right_is_said_line_by_line(check, twilio, shared_web):
    web, _ = shared_web
    status, lines = check(carrier_url=twilio.url, public_url=web.url, database_url=web.database_url)
    assert (status, [line.partition(":")[0] for line in lines]) == (
        0,
        [
            *("settings", "database", "tables", "clock", "time zones", "disk", "keys"),
            *("receivers of events", "carrier", "public address", "desk", "notices"),
        ],
    )
    assert about(lines, "carrier") == ["twilio accepts texts"]
    assert about(lines, "public address") == ["answers"]
    assert twilio.texts == []


NOWHERE = "?base_url=http://127.0.0.1:1"
NO_CALLS = (
    "warning: PUBLIC_URL is not set, so {} cannot call back: there are no receipts, and nobody who "
    "replies STOP joins the Do Not Call list"
)
NO_ANSWER = "warning: the service does not answer there, as seen from here: "
REFUSED = f"{NO_ANSWER}nobody listens there (connection refused)"
NO_HOST = f"{NO_ANSWER}there is no such host name"
UNSEEN = "cannot be seen from here (Postgres)"
TESTED = "Apprise knows address 1 of NOTIFY_URL (json://); flask notify test sends to each"
LINES = {
    "public address": [
        (1, NO_CALLS.format("twilio"), {"carrier_url": f"twilio://AC5:t@+15005550006{NOWHERE}"}),
        (1, NO_CALLS.format("vonage"), {"carrier_url": f"vonage://k:s3cret@Shop{NOWHERE}"}),
        (0, "PUBLIC_URL is not set", {"carrier_url": "simulator:"}),
        (0, REFUSED, {"public_url": "http://127.0.0.1:1"}),
        (0, REFUSED, {"public_url": "http://127.0.0.1:1/stage"}),
        (0, NO_HOST, {"public_url": "https://texts.example.invalid"}),
    ],
    "carrier": [
        (0, "warning: CARRIER_URL is not set, so texts wait", {}),
        (0, "simulator cannot be asked without sending a text", {"carrier_url": "simulator:"}),
    ],
    "desk": [(0, "off (SECRET_KEY)", {}), (0, "on", {"secret_key": "k" * 32})],
    "keys": [
        (
            *(0, "warning: CARRIER_URL names keys that do not exist: shp"),
            {"carrier_url": "simulator:#keys=shp,app"},
        ),
        (0, "all that CARRIER_URL names exist", {"carrier_url": "simulator:#keys=app"}),
    ],
    "notices": [
        (0, "warning: NOTIFY_URL is not set, so nobody is notified of problems", {}),
        (
            *(1, "NOTIFY_URL: Apprise does not know address 1 (nosuch://)"),
            {"notify_url": "nosuch://u:s3cret@h"},
        ),
        (0, TESTED, {"notify_url": "json://u:s3cret@h"}),
    ],
}


@pytest.mark.parametrize(
    ("part", "status", "line", "changes"),
    [(part, *case) for part, cases in LINES.items() for case in cases],
)
def test_each_part_is_a_line(check, key, part, status, line, changes):
    found, lines = check(**changes)
    assert (found, about(lines, part)) == (status, [line])


def test_another_service_at_the_public_address_is_a_warning(check, webhook_server):
    webhook_server.answer = Answer(200, {"status": "ok"})
    status, lines = check(public_url=f"http://{webhook_server.address}")
    assert (status, about(lines, "public address")) == (0, [f"{NO_ANSWER}something else answers"])


def test_a_public_address_that_answers_with_an_error_is_named(check, webhook_server):
    webhook_server.answer = Answer(503, {})
    status, lines = check(public_url=f"http://{webhook_server.address}")
    assert (status, about(lines, "public address")) == (0, [f"{NO_ANSWER}HTTP 503"])


def test_a_certificate_that_nobody_trusts_is_named(check, webhook_server, tmp_path):
    context, _ = self_signed(tmp_path)
    webhook_server.socket = context.wrap_socket(webhook_server.socket, server_side=True)
    status, lines = check(public_url=f"https://{webhook_server.address}")
    unknown = "its certificate is signed by an unknown authority"
    assert (status, about(lines, "public address")) == (0, [NO_ANSWER + unknown])


def test_a_phone_that_refuses_the_password_says_so(check, smsgate):
    smsgate.answer = Answer(401, {"message": "Unauthorized"})
    status, lines = check(carrier_url=smsgate.url)
    told = "PROBLEM: carrier: smsgate: SMSGate: the user or the password is wrong (HTTP 401)"
    assert (status, told in lines) == (1, True)


@pytest.mark.parametrize(("kind", "line"), [("sqlite", "has room"), (POSTGRES, UNSEEN)])
def test_the_room_on_the_disk_is_told_as_far_as_it_is_seen(check, database_url, line):
    _, lines = check(database_url=database_url)
    assert about(lines, "disk") == [line]


def test_a_name_that_may_need_a_register_is_a_warning(check, twilio):
    status, lines = check(carrier_url=twilio.url.replace("+15005550006", "Shop"))
    accepts, warning = about(lines, "carrier")
    assert (status, accepts) == (0, "twilio accepts texts")
    assert warning.startswith("warning: twilio sends from a name")


def test_a_carrier_that_may_not_call_back_is_a_warning(check, smsgate):
    """Texts go, but no receipt and no STOP comes in."""
    unsigned = smsgate.url.partition("?")[0]
    for carrier_url, public_url, why in (
        (unsigned, "https://127.0.0.1:1", "smsgate://… has no ?key="),
        (smsgate.url, "http://127.0.0.1:1", "SMSGate calls back over https alone"),
    ):
        status, lines = check(carrier_url=carrier_url, public_url=public_url)
        accepts, warning = about(lines, "carrier")
        assert (status, accepts) == (0, "smsgate accepts texts")
        assert warning.startswith(f"warning: {why}")


def test_each_carrier_has_warnings_of_its_own(check, smsgate, twilio):
    unsigned = smsgate.url.partition("?")[0]
    _, lines = check(
        carrier_url=f"{twilio.url} {unsigned}#name=a {unsigned}#name=b",
        public_url="https://127.0.0.1:1",
    )
    accepts, *warnings = about(lines, "carrier")
    assert accepts == "twilio accepts texts; a accepts texts; b accepts texts"
    assert [line.partition("://")[0] for line in warnings] == ["warning: smsgate"] * 2


def test_a_carrier_that_refuses_is_a_problem(check, twilio):
    twilio.login = (twilio.sid, "another token")
    status, lines = check(carrier_url=twilio.url)
    assert status == 1
    assert [line for line in lines if line.startswith("PROBLEM: carrier: twilio: ")]
    assert twilio.token not in "".join(lines)


def test_a_receiver_that_takes_nothing_is_a_problem(check, key):
    shop, day_ago = key_named("shop"), clock.now() - DAY
    EventAddress.set(shop, "http://127.0.0.1:1/", day_ago)
    decide_on(store(key=shop, now=day_ago)).cancel("shell", day_ago)
    EventAddress.update(failing_since=day_ago, failures=3).execute()
    status, lines = check()
    assert status == 1
    assert "PROBLEM: receivers of events: webhooks for shop have failed for five minutes" in lines


def test_missing_tables_are_a_problem(check, empty_database_url, kind, tmp_path):
    (tmp_path / "empty.db").touch()
    url = f"sqlite:///{tmp_path}/empty.db" if kind == "sqlite" else empty_database_url
    status, lines = check(database_url=url)
    assert status == 1
    assert "PROBLEM: tables: not up to date: run flask db upgrade" in lines
    database.disconnect()


@pytest.mark.parametrize(
    "url", ["sqlite:////no/such/folder/a.db", "postgresql://u:s3cret@127.0.0.1:1/d"]
)
def test_a_database_that_cannot_be_reached_is_one_problem_without_its_password(check, url):
    status, lines = check(database_url=url)
    assert status == 1
    (problem,) = [line for line in lines if line.startswith("PROBLEM")]
    assert problem.startswith("PROBLEM: database: cannot be reached: ")
    assert ("/no/such/folder/a.db" in problem) == url.startswith("sqlite")
    assert "s3cret" not in problem
    assert about(lines, "carrier"), "what can be looked at is"
    database.disconnect()


@on_postgres
@pytest.mark.parametrize(("skew", "words"), [(61, "ahead of"), (-61, "behind")])
def test_a_clock_that_differs_from_the_databases_is_a_problem(
    check, clock_of_postgres, monkeypatch, skew, words
):
    real = database.clock.now
    monkeypatch.setattr(database.clock, "now", lambda: real() + timedelta(seconds=skew))
    status, lines = check()
    (problem,) = [line for line in lines if line.startswith("PROBLEM")]
    assert (status, problem[:16]) == (1, "PROBLEM: clock: ")
    assert re.search(rf"6[012] s {words} the database's", problem)


def test_a_clock_that_differs_from_a_carriers_is_a_warning(check, twilio):
    twilio.dated = (clock.now() - 16 * HOUR).strftime("%a, %d %b %Y %H:%M:%S GMT")
    status, lines = check(carrier_url=twilio.url)
    told = "this machine's clock is 16 h ahead of twilio's"
    assert (status, about(lines, "carrier")) == (0, ["twilio accepts texts", f"warning: {told}"])
    twilio.login = (twilio.sid, "another token")
    status, lines = check(carrier_url=twilio.url)
    assert (status, about(lines, "carrier")[0].endswith(f"; {told}")) == (1, True)


@pytest.mark.parametrize(
    ("version", "now", "is_old"),
    [
        ("2026f", datetime(2026, 11, 29, tzinfo=UTC), False),
        ("2026f", datetime(2027, 2, 1, tzinfo=UTC), False),
        ("2025b", datetime(2026, 11, 29, tzinfo=UTC), True),
        ("2024a", datetime(2026, 1, 1, tzinfo=UTC), True),
        ("2026a", datetime(2028, 1, 1, tzinfo=UTC), True),
    ],
)
def test_old_time_zones_are_a_warning(check, monkeypatch, at, version, now, is_old):
    monkeypatch.setattr("tzdata.IANA_VERSION", version)
    at(now)
    _, lines = check()
    (line,) = about(lines, "time zones")
    assert line.startswith(f"warning: tzdata is {version}: " if is_old else f"tzdata is {version}")


@pytest.mark.parametrize(
    ("code", "meant"),
    [("USA", "US"), ("UK", "GB"), ("TP", "TL"), ("AN", None), ("SU", None), ("XX", None)],
)
def test_a_country_by_another_code_is_named_by_its_own(settings, code, meant):
    with pytest.raises(SystemExit) as end:
        create_app(settings._replace(allowed_countries=frozenset({"US", code})))
    (line,) = str(end.value).splitlines()
    assert line.startswith("ALLOWED_COUNTRIES: ")
    assert line.endswith(f" {code} (did you mean {meant}?)" if meant else f" {code}")
