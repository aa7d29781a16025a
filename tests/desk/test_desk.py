"""The desk: who may come in, what they see, and what their buttons do."""

import json
import re
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from flask import request
from jinja2 import FileSystemBytecodeCache

import database
import models
from access.audit import Action, Audit
from access.do_not_call import DoNotCall
from access.keys import ApiKey, Role
from access.limits import parse, parse_recipient_limit
from access.sign_ins import SignIn
from app import create_app
from databases import on_sqlite
from desk import entries, sessions
from desk_visitor import Visitor
from events.outbox import Event, EventAddress
from models import Message, Status
from samples import LONDON, NEW_YORK, TUESDAY_NOON, daily
from sending import receipts
from sending.carrier_state import CarrierState
from stored_messages import DAY, HOUR, again, held, key_named, store

SECRET = "not so secret, but long enough"
PAGES = ("/desk/", "/desk/messages", "/desk/do-not-call")


@pytest.fixture
def desk_settings(settings):
    return settings._replace(secret_key=SECRET)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """The compiled templates: compiling takes longer than most tests."""
    return FileSystemBytecodeCache(str(tmp_path_factory.mktemp("templates")))


@pytest.fixture
def app(desk_settings, compiled):
    app = create_app(desk_settings)
    app.jinja_env.bytecode_cache = compiled
    return app


@pytest.fixture(autouse=True)
def noon(at):
    at(TUESDAY_NOON)


def issue(name, group=None, role=Role.APPROVER, **more):
    return ApiKey.issue(name, group, TUESDAY_NOON, role=role, **more)


@pytest.fixture
def approver(app):
    """Ann, who approves for the group of the shop."""
    visitor = Visitor(app)
    visitor.sign_in(issue("Ann", "front"))
    return visitor


@pytest.fixture
def operator(app):
    visitor = Visitor(app)
    visitor.sign_in(issue("Olga", role=Role.OPERATOR))
    return visitor


def ask(text="Hello", key="shop", group="front", **columns):
    """Store a text of the group that waits for approval."""
    shared = {"manual_mode": True, "available_to_group": True}
    return store(message=text, key=key_named(key, group), **shared | columns)


def ask_many(count, **columns):
    return [
        ask(f"text {number}", send_at=TUESDAY_NOON + number * HOUR / 60, **columns)
        for number in range(count)
    ]


# The door


@on_sqlite
@pytest.mark.parametrize("path", ["/desk", "/desk/", "/desk/messages", "/desk/static/desk.css"])
def test_without_a_secret_key_there_is_no_desk(settings, path):
    response = create_app(settings).test_client().get(path)
    assert response.status_code == 404
    assert response.json["statusCode"] == 404


@pytest.mark.parametrize("role", [Role.APPROVER, Role.OPERATOR])
def test_an_approver_and_an_operator_sign_in(app, role):
    visitor = Visitor(app)
    assert visitor.sign_in(issue("Ann", "front", role)).status_code == 303
    assert "Waiting for approval" in visitor.page.text
    assert visitor.response.status_code == 200
    assert f"Signed in as Ann, {role}" in visitor.page.text


@pytest.mark.parametrize("role", [Role.SENDER, Role.TESTER])
def test_a_programs_key_is_told_what_it_is_but_a_wrong_one_is_not(app, role):
    secret, words = issue("shop", role=role), f"This is a {role}'s key: it sends texts"
    for tried, told in ((secret, True), (secret[:-1], False)):
        visitor = Visitor(app)
        assert visitor.sign_in(tried).status_code == 403
        assert (words in visitor.page.text) is told
    assert SignIn.select().count() == 0


def test_every_other_key_is_refused_in_the_same_words(app):
    revoked = issue("revoked")
    ApiKey.named("revoked").revoke(TUESDAY_NOON)
    expired = issue("expired", expires_at=TUESDAY_NOON)
    rotated = issue("rotated")
    ApiKey.named("rotated").rotate(TUESDAY_NOON + DAY, TUESDAY_NOON)
    said = set()
    for secret in (revoked, expired, rotated, "", "tms_guess", "\0", "x" * 10_000):
        visitor = Visitor(app)
        assert visitor.sign_in(secret).status_code == 403
        assert visitor.page.buttons("Sign in")
        said.add(visitor.page.text)
    assert len(said) == 1
    assert SignIn.select().count() == 0


def test_the_key_is_never_shown_again(app):
    secret = issue("Ann")
    for tried in (secret, secret + "x"):
        visitor = Visitor(app)
        visitor.sign_in(tried)
        assert tried not in visitor.response.text


@on_sqlite
@pytest.mark.parametrize("public_url", [None, "http://x.test", "https://x.test/staging"])
def test_the_cookie_is_for_the_desk_alone(desk_settings, public_url):
    visitor = Visitor(create_app(desk_settings._replace(public_url=public_url)), "/staging")
    cookie = visitor.open().headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Path=/staging/desk/" in cookie
    assert ("Secure" in cookie) is (public_url or "").startswith("https")
    visitor.sign_in(issue("Ann", "front"))
    assert "Waiting for approval" in visitor.page.text


def test_the_public_operation_sets_and_reads_no_cookie(post, client):
    client.set_cookie("desk", "forged", path="/")
    response = post()
    assert response.status_code == 201
    assert "Set-Cookie" not in response.headers
    assert "Vary" not in response.headers


@pytest.mark.parametrize("role", [Role.APPROVER, Role.OPERATOR])
def test_a_key_of_people_sends_nothing(client, role):
    headers = {"X-Api-Key": issue("Ann", role=role)}
    body = {"to": NEW_YORK, "message": "Hello"}
    assert client.post("/v1/text-messages", json=body, headers=headers).status_code == 403


@pytest.mark.parametrize("path", [*PAGES, f"/desk/messages/{UUID(int=7)}"])
def test_without_a_session_every_page_leads_to_the_sign_in(app, path):
    visitor = Visitor(app)
    response = visitor.open(path)
    if path != "/desk/":
        assert (response.status_code, response.location) == (302, "/desk/")
        visitor.open(response.location)
    assert [each["words"] for each in visitor.page.forms[0]["buttons"]] == ["Sign in"]


def test_the_desk_is_found_without_its_last_slash(client):
    response = client.get("/desk")
    assert (response.status_code, response.location) == (302, "/desk/")


def test_a_link_from_elsewhere_does_not_sign_anybody_out(app):
    client = app.test_client()
    client.set_cookie("other", "of another application", path="/")
    response = client.get("/desk/", headers={"Sec-Fetch-Site": "cross-site"})
    assert 'http-equiv="refresh"' in response.text
    assert "Set-Cookie" not in response.headers


# The end of a session


def is_out(visitor):
    visitor.open("/desk/")
    return bool(visitor.page.buttons("Sign in"))


def copy_of(visitor, app):
    """Somebody who has stolen the cookie."""
    thief = Visitor(app)
    cookie = visitor.client.get_cookie("desk", path="/desk/")
    thief.client.set_cookie("desk", cookie.value, path="/desk/")
    return thief


def test_signing_out_ends_every_copy_of_the_cookie(app, approver):
    thief = copy_of(approver, app)
    assert not is_out(thief)
    approver.press("Sign out")
    assert is_out(approver)
    assert is_out(copy_of(thief, app))


@pytest.mark.parametrize("end", ["revoke", "rotate", "twelve hours"])
def test_a_session_ends_with_its_key_and_after_twelve_hours(app, approver, at, end):
    message = ask()
    approver.open()
    if end == "revoke":
        ApiKey.named("Ann").revoke(TUESDAY_NOON)
    elif end == "rotate":
        ApiKey.named("Ann").rotate(TUESDAY_NOON + DAY, TUESDAY_NOON)
    else:
        at(TUESDAY_NOON + timedelta(hours=12) - database.MILLISECOND)
        assert not is_out(approver)
        at(TUESDAY_NOON + timedelta(hours=12))
    response = approver.post("/desk/", [("approve", str(message.id))])
    assert response.status_code == 403
    assert "nothing was changed" in approver.page.text
    assert is_out(approver)
    assert not again(message).approved


def test_a_session_signed_by_another_secret_is_none(app, approver, desk_settings):
    other = create_app(desk_settings._replace(secret_key="x" * 32))
    assert is_out(copy_of(approver, other))


def test_ended_sessions_are_cleared_away(app, approver, at):
    at(TUESDAY_NOON + DAY)
    Visitor(app).sign_in(issue("Bob", "front"))
    assert SignIn.select().count() == 1


# Forms from elsewhere


@pytest.mark.parametrize("forged", ["", "forged", "of another session", "of before the sign-in"])
def test_a_form_without_its_sessions_token_changes_nothing(app, forged):
    message, secret = ask(), issue("Ann", "front")
    visitor, stranger = Visitor(app), Visitor(app)
    visitor.open()
    stranger.open()
    tokens = {"of another session": stranger.token, "of before the sign-in": visitor.token}
    visitor.sign_in(secret)
    sent = [("approve", str(message.id)), ("csrf_token", tokens.get(forged, forged))]
    for path in ("/desk/", "/desk/messages", f"/desk/messages/{message.id}"):
        response = visitor.post(path, sent)
        assert (response.status_code, response.mimetype) == (400, "text/html")
    assert visitor.post("/desk/sign-out", sent).status_code == 400
    assert not is_out(visitor)
    assert not again(message).approved


def test_the_sign_in_carries_a_token_too(app):
    visitor = Visitor(app)
    visitor.open()
    response = visitor.post("/desk/sign-in", [("key", issue("Ann"))])
    assert (response.status_code, response.mimetype) == (400, "text/html")
    assert SignIn.select().count() == 0


def test_only_a_post_with_a_token_changes_the_list(operator):
    sent = {"number": NEW_YORK, "add": ""}
    for method in ("HEAD", "GET", "OPTIONS", "PUT", "POST"):
        operator.client.open("/desk/do-not-call", method=method, data=sent)
        assert not DoNotCall.lists(NEW_YORK)


ELSEWHERE = [
    {"Origin": "https://evil.test"},
    {"Origin": "http://localhost.evil.test"},
    {"Origin": "http://localhost:8001"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://["},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://localhost"},
]
FROM_HERE = [
    {"Origin": "http://localhost"},
    {"Origin": "https://localhost:443"},
    {"Origin": "https://x.test"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "https://of-a-proxy.test"},
]


@on_sqlite
@pytest.mark.parametrize("headers", [*ELSEWHERE, *FROM_HERE], ids=str)
def test_a_form_of_another_site_is_refused_even_with_a_token(desk_settings, compiled, headers):
    app = create_app(desk_settings._replace(public_url="https://x.test/staging"))
    app.jinja_env.bytecode_cache = compiled
    visitor, message = Visitor(app), ask()
    visitor.open()
    form = {"key": issue("Olga", role=Role.OPERATOR), "csrf_token": visitor.token}
    signed_in = visitor.client.post("/desk/sign-in", data=form, headers=headers)
    assert signed_in.status_code == (403 if headers in ELSEWHERE else 303)
    assert SignIn.select().exists() == (headers in FROM_HERE)
    if headers in ELSEWHERE:
        visitor.sign_in(form["key"])
    visitor.open()
    form = {"approve": str(message.id), "csrf_token": visitor.token}
    response = visitor.client.post("/desk/", data=form, headers=headers)
    assert response.status_code == (403 if headers in ELSEWHERE else 303)
    assert guarded(response) or response.status_code == 303
    assert again(message).approved == (headers in FROM_HERE)


@pytest.mark.parametrize("prefix", ["", "/staging"])
@pytest.mark.parametrize(
    "path", ["//desk/", "//desk", "///desk/messages", "//desk/static/desk.css"]
)
def test_two_slashes_lead_to_no_desk(client, prefix, path):
    response = client.get("/", environ_overrides={"PATH_INFO": path, "SCRIPT_NAME": prefix})
    assert (response.status_code, response.mimetype) == (404, "application/json")
    assert "Set-Cookie" not in response.headers


@on_sqlite
@pytest.mark.parametrize("form", ["application/x-www-form-urlencoded", "multipart/form-data"])
def test_a_form_of_very_many_fields_is_refused_before_it_is_parsed(operator, monkeypatch, form):
    parsed = []
    monkeypatch.setattr(sessions, "check_token", lambda: parsed.append(len(request.form)))
    body = "&".join(["a"] * 30_000)
    if form.startswith("multipart"):
        field = '--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'
        body, form = field * 1_000 + "--x--\r\n", f"{form}; boundary=x"
    response = operator.client.post("/desk/", data=body, content_type=form)
    assert response.status_code == 413
    assert parsed == []


# What waits


def test_an_approver_sees_what_goes_where_and_when(approver, at):
    ask("See you at 3", to=LONDON, send_at=TUESDAY_NOON + 5 * HOUR, created_at=TUESDAY_NOON - HOUR)
    approver.open()
    for words in (
        *("Waiting for approval 1", "+44 20 8366 1177", "London, United Kingdom", "See you at 3"),
        *("10:00 PM, Tuesday, Mar 3 there", "in 5 hours", "10:00 PM, Tuesday, Mar 3 UTC"),
        "Requested by shop, 1 hour ago",
    ):
        assert words in approver.page.text


@pytest.mark.parametrize(
    ("hour", "words"),
    [
        (17, "At once : it is 12:00 PM, Tuesday, Mar 3 there"),
        (23, "9:00 AM, Wednesday, Mar 4 there in 15 hours"),
    ],
)
def test_what_is_due_goes_at_once_or_at_the_next_opening(approver, at, hour, words):
    ask()
    at(TUESDAY_NOON.replace(hour=hour))
    approver.open()
    assert words in approver.page.text


def test_what_is_due_in_quiet_hours_goes_after_them(database_url):
    night, eight = TUESDAY_NOON + 10 * HOUR, TUESDAY_NOON + 20 * HOUR
    hours = daily(0, 1440, quiet=(21 * 60, 8 * 60))
    for send_date in (None, night):
        message = ask(send_at=night, send_date=send_date)
        assert entries.Entry(message, night, hours, DAY).leaves_at == eight


def test_the_year_is_shown_where_it_is_another(approver):
    ask(send_at=TUESDAY_NOON.replace(year=2031))
    ask(send_at=TUESDAY_NOON.replace(year=9999, month=12, day=31, hour=23), to="+61255501234")
    approver.open()
    assert "Monday, Mar 3, 2031 there" in approver.page.text
    assert "in 7,973 years" in approver.page.text


def test_what_is_to_be_sent_first_stands_first(approver):
    late, soon = ask("late", send_at=TUESDAY_NOON + DAY), ask("soon")
    approver.open()
    assert approver.page.text.index("soon") < approver.page.text.index("late")
    assert late.id != soon.id


def test_approving_records_the_approver_and_the_instant(approver, run):
    message = ask()
    approver.open()
    approver.press("Approve", message)
    assert "1 text approved" in approver.page.text
    assert "Nothing is waiting for approval" in approver.page.text
    kept = again(message)
    assert (kept.approved, kept.approved_by, kept.approved_at) == (True, "Ann", TUESDAY_NOON)
    assert kept.status == Status.QUEUED
    shown = run("messages", "show", str(message.id))
    assert '"approved_by": "Ann"' in shown
    assert '"approved_at": "2026-03-03T17:00:00.000Z"' in shown


def test_a_text_in_doubt_is_cancelled_unless_the_carrier_has_it(operator):
    doubtful = ask(approved=True, in_doubt=1, in_doubt_since=TUESDAY_NOON, send_date=None)
    operator.open("/desk/messages")
    operator.press("Cancel", doubtful)
    assert "1 text cancelled, unless the carrier has it already." in operator.page.text
    assert not operator.page.buttons("Cancel")
    operator.open(f"/desk/messages/{doubtful.id}")
    words = "This text was cancelled by Olga, unless the carrier has it already."
    assert words in operator.page.text
    assert again(doubtful).status == Status.QUEUED


def test_refusing_cancels_for_good(approver):
    message = ask()
    approver.open()
    approver.press("Refuse", message)
    assert "1 text refused" in approver.page.text
    kept = again(message)
    assert (kept.status, kept.cancelled_by, kept.approved) == (Status.CANCELLED, "Ann", False)


@pytest.mark.parametrize("words", ["Approve selected", "Refuse selected"])
def test_thirty_are_decided_in_one_request(approver, words):
    asked = ask_many(35)
    approver.open()
    approver.press(words, selected=asked[:30])
    assert f"30 texts {words.split()[0].lower().rstrip('e')}ed" in approver.page.text
    waiting = {each.id for each in Message.select() if not each.approved and not each.finished_at}
    assert waiting == {each.id for each in asked[30:]}


def test_nothing_selected_changes_nothing_and_says_so(approver):
    message = ask()
    approver.open()
    approver.press("Approve selected")
    assert "No text was selected" in approver.page.text
    assert not again(message).approved


def test_all_of_a_page_can_be_selected_without_a_script(approver):
    ask_many(3)
    approver.open("/desk/?select=all")
    assert [checked for *_, checked in approver.page.forms[1]["boxes"]] == [True] * 3
    approver.press("Approve selected")
    assert "3 texts approved" in approver.page.text
    ask_many(2)
    approver.open(approver.at)
    assert not any(checked for *_, checked in approver.page.forms[1]["boxes"])


MEANWHILE = {
    "was approved by Bob": lambda m: m.approve("Bob", TUESDAY_NOON),
    "was refused by Bob": lambda m: m.decide(False, "Bob", TUESDAY_NOON),
    "was approved by Bob and was sent": lambda m: (
        m.approve("Bob", TUESDAY_NOON) and receipts.sent({m.id: None}, TUESDAY_NOON)
    ),
    "is being sent right now": lambda m: Message.update(
        approved=True, status=Status.SENDING
    ).execute(),
    "expired": lambda m: Message.expire(TUESDAY_NOON, TUESDAY_NOON + 100 * DAY),
}


@pytest.mark.parametrize("words", MEANWHILE)
@pytest.mark.parametrize("button", ["Approve", "Refuse", "Approve selected"])
def test_what_changed_meanwhile_is_reported_and_stays(approver, words, button):
    message = ask()
    Message.update(first_send_at=TUESDAY_NOON).execute()
    approver.open()
    MEANWHILE[words](message)
    before = vars(again(message))["__data__"]
    if button == "Approve selected":
        approver.press(button, selected=[message])
    else:
        approver.press(button, message)
    assert "1 text not changed" in approver.page.text
    assert words.removeprefix("was approved by Bob and ") in approver.page.text
    assert vars(again(message))["__data__"] == before


def test_what_an_older_version_stored_is_shown(operator):
    message = ask(status=Status.SENT, parts=None, country=None, finished_at=TUESDAY_NOON)
    for page in ("messages", f"messages/{message.id}"):
        assert operator.open(f"/desk/{page}").status_code == 200


def test_a_late_approval_says_that_the_text_expired(app, at):
    message = ask(first_send_at=TUESDAY_NOON)
    at(TUESDAY_NOON + 73 * HOUR)
    approver = Visitor(app)
    approver.sign_in(issue("Ann", "front"))
    assert "Too late" in approver.page.text
    approver.press("Approve", message)
    assert "expired" in approver.page.text
    assert again(message).status == Status.EXPIRED
    assert not again(message).approved


def test_one_of_thirty_that_changed_is_reported_by_itself(approver):
    asked = ask_many(30)
    approver.open()
    asked[7].approve("Bob", TUESDAY_NOON)
    approver.press("Approve selected", selected=asked)
    assert "29 texts approved" in approver.page.text
    assert "1 text not changed" in approver.page.text
    assert "was approved by Bob" in approver.page.text
    assert again(asked[7]).approved_by == "Bob"


def test_fifty_that_all_changed_are_all_named(approver):
    asked = ask_many(50)
    approver.open()
    for each in asked:
        each.approve("Bob", TUESDAY_NOON)
    approver.press("Approve selected", selected=asked)
    assert approver.page.text.count("was approved by Bob") == 50


def test_of_two_decisions_at_once_the_first_is_kept(approver):
    message = ask()
    first, second = again(message), again(message)
    assert first.decide(True, "Ann", TUESDAY_NOON)
    assert not second.decide(False, "Bob", TUESDAY_NOON)
    assert not second.decide(True, "Bob", TUESDAY_NOON)
    assert (again(message).status, again(message).approved_by) == (Status.QUEUED, "Ann")


# Undone


MINUTE = timedelta(minutes=1)
TOLD = {"Approve": "approved", "Refuse": "refused", "Cancel": "cancelled"}


@pytest.mark.parametrize("button", TOLD)
@pytest.mark.parametrize("where", ["list", "message"])
def test_a_decision_names_its_text_and_is_undone(operator, at, button, where):
    message = ask(approved=button == "Cancel", status=Status.SCHEDULED, send_at=TUESDAY_NOON + HOUR)
    EventAddress.set(ApiKey.named("shop"), "http://x.test", TUESDAY_NOON)
    told = TOLD[button]
    before = vars(again(message))["__data__"]
    page = "/desk/messages" if where == "list" else f"/desk/messages/{message.id}"
    operator.open(page)
    operator.press(button, message)
    assert f"1 text {told}. {told.capitalize()}: +1 212-555-0123 Undo" in operator.page.text
    operator.open(page)
    assert not operator.page.buttons("Undo")
    form = [(f"undo-{button.lower()}", "selected"), ("id", str(message.id))]
    at(TUESDAY_NOON + MINUTE - database.MILLISECOND)
    operator.post(page, [("csrf_token", operator.token), *form])
    assert f"1 text no longer {told}. No longer {told}: +1 212-555-0123" in operator.page.text
    assert vars(again(message))["__data__"] == before
    operator.post(page, [("csrf_token", operator.token), *form])
    assert "Undo works for one minute" in operator.page.text
    assert vars(again(message))["__data__"] == before
    operator.press(button, message)
    events = [json.loads(event.body)["data"]["status"] for event in Event.select()]
    assert events == ([] if button == "Approve" else ["cancelled"] * 2)


@on_sqlite
def test_many_decisions_are_undone_together(approver):
    asked = ask_many(12)
    approver.open()
    approver.press("Refuse selected", selected=asked)
    named = " , ".join(["+1 212-555-0123"] * 10)
    assert f"12 texts refused. Refused: {named} and 2 more Undo" in approver.page.text
    approver.press("Undo")
    assert "12 texts no longer refused" in approver.page.text
    assert "Waiting for approval 12" in approver.page.text


GONE = {
    "is being sent right now": lambda m: Message.update(status=Status.SENDING).execute(),
    "and was sent": lambda m: receipts.sent({m.id: None}, TUESDAY_NOON),
    "and waits for the carrier": lambda m: Message.update(in_doubt=1).execute(),
}


@on_sqlite
@pytest.mark.parametrize("words", GONE)
def test_an_approved_text_that_may_have_gone_is_not_taken_back(approver, words):
    message = ask()
    approver.open()
    approver.press("Approve", message)
    GONE[words](message)
    before = vars(again(message))["__data__"]
    approver.press("Undo")
    assert "Undo works for one minute, and only until the text is sent" in approver.page.text
    assert "1 text not changed" in approver.page.text
    assert words.removeprefix("and ") in approver.page.text
    assert vars(again(message))["__data__"] == before


@on_sqlite
def test_only_the_same_person_undoes_and_only_what_was_decided(app, operator):
    message = ask()
    operator.open()
    operator.press("Refuse", message)
    other = Visitor(app)
    other.sign_in(issue("Ann", "front"))
    for action in ("undo-approve", "undo-refuse"):
        sent = [("csrf_token", other.token), (action, str(message.id))]
        assert "was refused by Olga" in other.post("/desk/", sent).text
    sent = [("csrf_token", other.token), ("undo-cancel", str(message.id))]
    assert other.post("/desk/", sent).status_code == 403
    assert again(message).status == Status.CANCELLED
    assert not again(message).undo_cancel("Olga", TUESDAY_NOON + MINUTE)
    Message.update(to=None, message=None).execute()
    assert not again(message).undo_cancel("Olga", TUESDAY_NOON)


def test_a_text_that_was_withdrawn_or_is_listed_by_now_is_undone_as_it_may(database_url):
    withdrawn = store(approved=True, in_doubt=1, in_doubt_since=TUESDAY_NOON)
    listed = store(to=LONDON, check_dnc=True)
    for message in (withdrawn, listed):
        assert message.cancel("Olga", TUESDAY_NOON)
    DoNotCall.add([LONDON], TUESDAY_NOON, "reply", "carrier")
    for message in (withdrawn, listed):
        assert not message.undo_cancel("Ann", TUESDAY_NOON)
        assert not message.undo_cancel("Olga", TUESDAY_NOON + MINUTE)
        assert message.undo_cancel("Olga", TUESDAY_NOON)
        assert not message.undo_cancel("Olga", TUESDAY_NOON)
    Message.promote(TUESDAY_NOON, TUESDAY_NOON - DAY)
    assert not again(withdrawn).is_withdrawn
    assert [again(each).status for each in (withdrawn, listed)] == [Status.QUEUED, Status.BLOCKED]


def test_an_undo_keeps_to_the_limit_of_its_recipient(database_url):
    limit = parse_recipient_limit("1/24h")
    refused, other = store(), store(to=LONDON)
    for message in (refused, other):
        assert message.cancel("Olga", TUESDAY_NOON)
    store(TUESDAY_NOON - DAY, to=LONDON)
    store()
    assert not refused.undo_cancel("Olga", TUESDAY_NOON, limit)
    assert other.undo_cancel("Olga", TUESDAY_NOON, limit)
    withdrawn = store(to="+12125550188", in_doubt=1, in_doubt_since=TUESDAY_NOON)
    assert withdrawn.cancel("Olga", TUESDAY_NOON)
    assert withdrawn.undo_cancel("Olga", TUESDAY_NOON, limit), "it counts already"
    done = [row.message_id for row in Audit.select().where(Audit.what == Action.UNDONE)]
    assert done == [other.id, withdrawn.id]


# A group sees its own


@pytest.mark.parametrize(
    "hidden",
    [
        {"key": "other", "group": "back"},
        {"key": "alone", "group": None},
        {"available_to_group": False},
    ],
)
def test_an_approver_sees_and_changes_nothing_of_others(approver, hidden):
    message = ask("theirs", **hidden)
    ask("ours")
    approver.open()
    assert "ours" in approver.page.text
    assert "theirs" not in approver.page.text
    assert approver.open(f"/desk/messages/{message.id}").status_code == 404
    approver.open()
    token = ("csrf_token", approver.token)
    approver.post("/desk/", [token, ("approve", str(message.id))])
    assert "no such message here" in approver.page.text
    approver.post("/desk/", [token, ("refuse", "selected"), ("id", str(message.id))])
    approver.post(f"/desk/messages/{message.id}", [token, ("approve", str(message.id))])
    kept = again(message)
    assert (kept.status, kept.approved, kept.approved_by) == (Status.QUEUED, False, None)


def test_an_approver_without_a_group_reads_why_nothing_is_shown(app):
    ask(key="alone", group=None)
    visitor = Visitor(app)
    visitor.sign_in(issue("Ann"))
    assert "belongs to no group" in visitor.page.text


def test_a_revoked_keys_texts_still_wait(approver):
    ask("still here")
    ApiKey.named("shop").revoke(TUESDAY_NOON)
    approver.open()
    assert "still here" in approver.page.text


@pytest.mark.parametrize("path", ["/desk/messages", "/desk/do-not-call"])
def test_operators_pages_are_closed_to_approvers(approver, path):
    assert approver.open(path).status_code == 403
    assert approver.response.mimetype == "text/html"
    assert not any(path in link for link in approver.page.links)


@pytest.mark.parametrize("button", ["cancel", "retry"])
def test_operators_buttons_are_closed_to_approvers(approver, button):
    status = {"cancel": Status.SCHEDULED, "retry": Status.FAILED}[button]
    message = ask(approved=True, status=status)
    approver.open()
    token = ("csrf_token", approver.token)
    assert approver.post("/desk/", [token, (button, str(message.id))]).status_code == 403
    sent = [token, ("number", NEW_YORK), ("add", "")]
    assert approver.post("/desk/do-not-call", sent).status_code == 403
    assert again(message).status == status
    assert not DoNotCall.lists(NEW_YORK)


# Hostile input

HOSTILE = (
    "<script>alert(1)</script>\n\"'&amp; {{ 7 * 7 }} \u202etxt.exe\u200b\x07 👩\u200d🚀 "
    + "W" * 1500
)


def test_a_hostile_text_is_shown_as_it_is(approver, operator):
    message = ask(HOSTILE)
    for visitor, path in (
        (approver, "/desk/"),
        (approver, f"/desk/messages/{message.id}"),
        (operator, "/desk/messages"),
    ):
        html = visitor.open(path).text
        assert html.count("<script") == html.count('<script src="/desk/static/desk.js"') == 1
        assert "&lt;script&gt;alert(1)&lt;/script&gt;\n&#34;&#39;&amp;amp; {{ 7 * 7 }}" in html
        for character in "\u202e\u200b\x07":
            assert character not in html
            assert f">U+{ord(character):04X}<" in html
        assert "RIGHT-TO-LEFT OVERRIDE" in html
        assert "👩\u200d🚀" in html
        assert "W" * 1500 in html


def test_a_text_of_what_nobody_sees_does_not_fill_the_page(operator):
    """Fifty of them would be more than a slow reader is sent."""
    message = ask("\u202e\u200b" * 800)
    html = operator.open(f"/desk/messages/{message.id}").text
    # Ten in the text, and one among the characters that make more parts
    assert html.count("U+202E") == html.count("U+200B") == 11
    assert "and 1,580 more that cannot be seen" in html


@pytest.mark.parametrize(
    "text",
    [
        *("a\u3164b", "\u115fa", "\u1160", "\uffa0", "a\u2800b", "e\u034f", "a\ufe0fb", "a\ufe00"),
        *("\u180b", "\u180f", "\u17b4", "\u17b5", "a\U000e0101", "\u00ad", "\u2065", "\ufff0"),
        *("\u2060", "\U000e0001", "\U0001d173", "\U0001bca0"),
        *("pay\u200dpal", "pay\u200cpal", "\u200d", "1\u200d2", "👩\u200da", "a\u200d🚀"),
    ],
    ids=ascii,
)
def test_what_nobody_sees_is_named(text):
    (hidden,) = (each for each in text if not each.isprintable() or entries.visible(each) != each)
    assert hidden not in entries.visible(text)
    assert f">U+{ord(hidden):04X}<" in entries.visible(text)


@pytest.mark.parametrize(
    "text",
    [
        *("👩\u200d🚀", "👩🏽\u200d🚀", "❤\ufe0f\u200d🔥", "🏳\ufe0f\u200d🌈", "👨\u200d⚕\ufe0f"),
        *("🙂\u200d↔\ufe0f", "1\ufe0f\u20e3", "☎\ufe0e", "©\ufe0f", "⛓\ufe0f\u200d💥"),
        *(
            "می\u200cخواهم",
            "क्\u200dष",
            "ශ්\u200dරී",
            "ക്\u200c",
            "Zoë",
            "e\u0301",
            "한국어",
            "日本\u3000",
        ),
    ],
    ids=ascii,
)
def test_what_a_script_or_an_emoji_needs_stays(text):
    assert entries.visible(text) == text


def test_the_last_hour_of_the_calendar_is_an_hour_like_any_other(operator):
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    message = ask(send_date=end, send_at=end, status=Status.SCHEDULED)
    for path in ("/desk/", f"/desk/messages/{message.id}"):
        assert operator.open(path).status_code == 200


def test_hostile_names_and_errors_are_escaped(operator):
    bad = "<b>\u202e"
    message = ask(key=bad, group=bad, approved=True, status=Status.FAILED, last_error=bad)
    CarrierState.passed("x", TUESDAY_NOON, 300)
    CarrierState.begin_pause("x", TUESDAY_NOON, TUESDAY_NOON, trouble=bad)
    for path in ("/desk/", "/desk/messages", f"/desk/messages/{message.id}"):
        assert "<b>" not in operator.open(path).text


@pytest.mark.parametrize("page", ["/desk/", "/desk/messages"])
def test_no_query_is_an_error_of_ours(operator, page):
    for query in (
        *("after=x", "after=1-2", "after=-1-" + "0" * 32, "after=999999999999999-" + "f" * 32),
        *("after=%00", "status=x", "number=x", "number=%00", "status=sent&after=1", "select=%ff"),
        *("number=%2B1%20212%20555%200123&status=failed", "status=%F0%9F%92%A3"),
    ):
        response = operator.open(f"{page}?{query}")
        assert response.status_code in (200, 400, 404), query
        assert response.mimetype == "text/html"


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [("approve", "")],
        [("approve", "x")],
        [("approve", "selected"), ("id", "\0")],
        [("approve", "selected"), *(("id", f"{n:032x}") for n in range(51))],
        [("delete", "selected")],
        [("approve", "x" * 100_000)],
    ],
)
def test_no_form_is_an_error_of_ours(operator, sent):
    message = ask()
    response = operator.post("/desk/", [("csrf_token", operator.token), *sent])
    assert response.status_code in (400, 413)
    assert response.mimetype == "text/html"
    assert not again(message).approved


def test_the_same_id_twice_counts_once(approver):
    message = ask()
    approver.open()
    approver.press("Approve selected", selected=[message, message])
    assert "1 text approved" in approver.page.text


# Around the pages


def guarded(response):
    policy = response.headers["Content-Security-Policy"]
    return (
        policy.startswith("default-src 'none'; style-src 'self'; script-src 'self';")
        and "frame-ancestors 'none'" in policy
        and "form-action 'self'" in policy
        and "unsafe" not in policy
        and response.headers["Cache-Control"] == "no-store"
        and response.headers["X-Content-Type-Options"] == "nosniff"
        and response.headers["Referrer-Policy"] == "same-origin"
    )


SCRIPT = "/desk/static/desk.js"


def test_every_page_is_guarded_and_brings_nothing_of_others(operator, app):
    message = ask()
    paths = (*PAGES, f"/desk/messages/{message.id}", "/desk/nowhere", "/desk/messages?status=x")
    for visitor in (operator, Visitor(app)):
        for path in paths:
            response = visitor.open(path)
            assert guarded(response)
            assert not re.search(r"<script>|\son\w+=|style=|//", response.text)
            assert {a["src"] for tag, a in visitor.page.elements if tag == "script"} <= {SCRIPT}


def test_the_style_sheet_is_there_for_all(client):
    for name in ("desk.css", "desk.js", "icon.svg"):
        with client.get(f"/desk/static/{name}") as response:
            assert response.status_code == 200
            assert "Set-Cookie" not in response.headers
    assert client.get("/desk/static/../views.py").status_code == 404


@pytest.mark.parametrize("path", ["/desk/nowhere", "/desk/messages/x", "/desk/static/x"])
def test_what_is_not_there_is_a_page_for_people(operator, path):
    response = operator.open(path)
    assert (response.status_code, response.mimetype) == (404, "text/html")
    assert guarded(response)


def test_a_wrong_method_is_a_page_that_names_the_right_ones(client):
    response = client.delete("/desk/messages")
    assert (response.status_code, response.mimetype) == (405, "text/html")
    assert "POST" in response.headers["Allow"]


def test_beside_the_desk_errors_stay_json(client):
    for path in ("/nowhere", "/desks", "/v1/desk/"):
        assert client.get(path).json["statusCode"] == 404


@on_sqlite
def test_a_database_that_is_away_is_a_page_for_people(approver, desk_settings):
    away = create_app(desk_settings._replace(database_url="sqlite:////nowhere/messages.db"))
    response = copy_of(approver, away).open()
    assert (response.status_code, response.mimetype) == (503, "text/html")


# Pages


def next_page(visitor):
    links = (link for link in visitor.page.links if "after=" in link and "select=" not in link)
    return next(links, None)


def walk(visitor, path):
    """The texts of this page and all that follow it."""
    while path:
        visitor.open(path)
        yield re.findall(r"text \d+", visitor.page.text)
        path = next_page(visitor)


def test_nothing_is_skipped_or_shown_twice_while_others_arrive(approver):
    ask_many(120)
    seen = []
    for number, page in enumerate(walk(approver, "/desk/")):
        seen += page
        ask(f"text {1000 + number}", send_at=TUESDAY_NOON - HOUR)
    assert seen == [f"text {number}" for number in range(120)]


def test_texts_of_one_instant_and_several_keys_are_paged_too(approver):
    for number in range(110):
        ask(f"text {number}", key=f"shop {number % 3}")
    seen = [text for page in walk(approver, "/desk/") for text in page]
    assert len(seen) == 110
    assert len({*seen}) == 110


def test_a_decision_leads_back_to_its_page(approver):
    asked = ask_many(60)
    approver.open()
    approver.open(next_page(approver))
    approver.press("Approve", asked[55])
    assert "text 54" in approver.page.text
    assert "text 55" not in approver.page.text


def store_thousand_like(message):
    """Store a thousand copies of a message."""
    row = Message.select().where(Message.id == message.id).dicts().get()
    rows = [row | {"id": models.new_id(TUESDAY_NOON)} for _ in range(1000)]
    for start in range(0, 1000, 25):
        Message.insert_many(rows[start : start + 25]).execute()


def test_more_than_a_thousand_are_not_counted(approver, operator):
    store_thousand_like(ask(send_at=TUESDAY_NOON + 2 * HOUR))
    ask(send_at=TUESDAY_NOON + HOUR, status=Status.SCHEDULED)
    for visitor in (approver, operator):
        visitor.open()
        assert "Waiting for approval 1,000+" in visitor.page.text


def test_more_than_a_thousand_of_an_hour_are_not_counted(operator):
    asked = ask(status=Status.SCHEDULED, send_at=TUESDAY_NOON + HOUR)
    store_thousand_like(asked)
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 2 * HOUR)
    operator.open()
    words = "1,001+ texts ( 1,000+ not approved). Busiest hour: 18:00 UTC, 1,000+ texts."
    assert f"Next 24 hours: {words}" in operator.page.text


def test_a_queued_text_goes_out_this_hour_once_it_is_approved(operator):
    asked = ask(status=Status.QUEUED, send_at=TUESDAY_NOON)
    operator.open()
    assert "Next 24 hours: 0 texts. Due once approved: 1 text." in operator.page.text
    operator.press("Approve", asked)
    assert "Next 24 hours: 1 text." in operator.page.text
    assert "Due once approved" not in operator.page.text


# An operator's day


def test_an_operator_approves_for_every_group(operator):
    message = ask(key="alone", group=None, available_to_group=False)
    operator.open()
    operator.press("Approve", message)
    assert again(message).approved_by == "Olga"


@pytest.mark.parametrize("status", [*Status])
def test_an_operator_finds_messages_by_status(operator, status):
    ended = TUESDAY_NOON if status in models.FINISHED else None
    held(status, message="this one", finished_at=ended)
    other = Status.SENT if status != Status.SENT else Status.FAILED
    held(other, message="another", finished_at=TUESDAY_NOON)
    operator.open(f"/desk/messages?status={status}")
    assert "this one" in operator.page.text
    assert "another" not in operator.page.text
    operator.open("/desk/messages")
    assert "this one" in operator.page.text
    assert "another" in operator.page.text


def test_queued_messages_are_found_approved_or_not(operator):
    ask("not yet")
    store(message="already")
    operator.open("/desk/messages?status=queued")
    assert "not yet" in operator.page.text
    assert "already" in operator.page.text


@pytest.mark.parametrize("written", ["+442083661177", "+44 (0)20 8366-1177", "+44.20.8366.1177"])
def test_an_operator_finds_messages_by_number(operator, written):
    store(message="this one", to=LONDON)
    store(message="another")
    operator.open("/desk/messages?number=" + written.replace("+", "%2B"))
    assert "this one" in operator.page.text
    assert "another" not in operator.page.text


@on_sqlite
def test_a_national_number_needs_its_country(operator):
    store(message="this one", to=LONDON)
    for region in ("gb", "GB"):
        operator.open(f"/desk/messages?number=020+8366-1177&region={region}")
        assert "this one" in operator.page.text
    for region, words in (
        ("", "and its country"),
        ("XX", "two letters"),
        ("US", "and its country"),
    ):
        response = operator.open(f"/desk/messages?number=020+8366-1177&region={region}")
        assert response.status_code == 400
        assert words in operator.page.text
    operator.open("/desk/do-not-call")
    operator.press("Add", number="020 8366 1177", region="gb")
    assert "+44 20 8366 1177 is on the list now" in operator.page.text
    assert ("region", "GB") in operator.page.forms[1]["inputs"]
    assert DoNotCall.lists(LONDON)


@on_sqlite
def test_every_button_is_named_with_its_number_and_trouble_is_an_alert(operator):
    ask()
    store(status=Status.SCHEDULED, to=LONDON)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON)
    operator.open("/desk/")
    roles = [attrs.get("role") for tag, attrs in operator.page.elements if tag == "p"]
    assert roles.count("alert") == 1  # no scheduler runs
    operator.open("/desk/messages")
    named = {
        "Refuse": "Refuse the text to +1 212-555-0123",
        "Approve": "Approve the text to +1 212-555-0123",
        "Cancel": "Cancel the text to +44 20 8366 1177",
        "Retry": "Retry the text to +1 212-555-0123",
    }
    for words, name in named.items():
        assert [button["aria-label"] for _, button in operator.page.buttons(words)] == [name]


def test_what_is_no_number_is_reported(operator):
    response = operator.open("/desk/messages?number=12")
    assert response.status_code == 400
    assert "country code" in operator.page.text


@pytest.mark.parametrize("status", [None, Status.SCHEDULED, Status.SENT, Status.SENDING])
def test_an_operators_pages_skip_nothing(operator, status):
    ended = TUESDAY_NOON if status == Status.SENT else None
    for number in range(110):
        held(status or Status.QUEUED, message=f"text {number}", finished_at=ended)
    query = f"?status={status}" if status else ""
    seen = [text for page in walk(operator, f"/desk/messages{query}") for text in page]
    assert (len(seen), len({*seen})) == (110, 110)


def test_an_operator_cancels(operator):
    message = store(status=Status.SCHEDULED)
    for path in ("/desk/messages?status=scheduled", f"/desk/messages/{message.id}"):
        operator.open(path)
        assert operator.page.buttons("Cancel")
    operator.press("Cancel", message)
    assert "1 text cancelled" in operator.page.text
    assert (again(message).status, again(message).cancelled_by) == (Status.CANCELLED, "Olga")


# What a decision needs


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello", "1 part"),
        ("x" * 161, "2 parts"),
        ("x" * 70 + "’", "’ makes these 2 parts instead of 1"),
        ("“" + "x" * 70 + "”", "“ and ” make these 2 parts instead of 1"),
        ("x" * 159 + "€", "€ makes these 2 parts instead of 1"),
        ("x" * 159 + "€" + "’", "’ makes these 3 parts instead of 2"),
        ("x" * 70 + "\u200b", "U+200B makes these 2 parts instead of 1"),
        ("x" * 70 + "\xa0", "a no-break space makes these 2 parts instead of 1"),
        ("бвгдежз" * 11, "б, в, г, д, е and 2 more make these 2 parts instead of 1"),
        ("’", "1 part"),
    ],
)
def test_the_parts_of_a_text_are_shown_with_what_makes_them_more(approver, text, words):
    message = ask(text)
    for path in ("/desk/", f"/desk/messages/{message.id}"):
        approver.open(path)
        assert f"{words} ·" in approver.page.text


def test_how_often_a_number_was_texted_in_the_last_day_is_shown(approver):
    message = ask()
    approver.open()
    assert "no text to this number in the last day" in approver.page.text
    for status in (Status.SENT, Status.DELIVERED, Status.UNDELIVERED):
        store(status=status, finished_at=TUESDAY_NOON - 23 * HOUR, key=key_named("other"))
    store(status=Status.SENT, finished_at=TUESDAY_NOON - 25 * HOUR)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON)
    store(status=Status.SENT, finished_at=TUESDAY_NOON, to=LONDON)
    tester = ApiKey.create(name="test", digest="t", role=Role.TESTER, created_at=TUESDAY_NOON)
    store(status=Status.SENT, finished_at=TUESDAY_NOON, key=tester)
    for path in ("/desk/", f"/desk/messages/{message.id}"):
        approver.open(path)
        assert "3 texts to this number in the last day" in approver.page.text


def test_the_hour_at_the_recipients_is_shown_for_what_goes_later(approver):
    ask(send_at=TUESDAY_NOON + 21 * HOUR, status=Status.SCHEDULED)
    approver.open()
    assert "9:00 AM, Wednesday, Mar 4 there" in approver.page.text
    assert "it is 12:00 PM, Tuesday, Mar 3 there now" in approver.page.text


@pytest.mark.parametrize("status", [Status.FAILED, Status.BLOCKED, Status.EXPIRED])
def test_an_operator_tries_again(operator, status):
    message = store(status=status, finished_at=TUESDAY_NOON)
    operator.open(f"/desk/messages?status={status}")
    operator.press("Retry", message)
    assert "1 text retried" in operator.page.text
    assert again(message).status == Status.SCHEDULED


def test_what_is_redacted_cannot_be_tried_again(operator):
    message = store(status=Status.FAILED, finished_at=TUESDAY_NOON, to=None, message=None)
    operator.open(f"/desk/messages/{message.id}")
    assert "cleared" in operator.page.text
    assert not operator.page.buttons("Retry")
    operator.post("/desk/messages", [("csrf_token", operator.token), ("retry", str(message.id))])
    assert again(message).status == Status.FAILED


def test_a_message_is_shown_with_its_history(operator):
    message = store(
        status=Status.DELIVERED,
        created_at=TUESDAY_NOON - 3 * HOUR,
        manual_mode=True,
        approved=True,
        approved_by="Ann",
        approved_at=TUESDAY_NOON - 2 * HOUR,
        finished_at=TUESDAY_NOON - HOUR,
        receipt_at=TUESDAY_NOON - HOUR / 2,
        attempts=2,
        carrier_reference="SM1",
    )
    operator.open(f"/desk/messages/{message.id}")
    told = ("Requested by app", "Approved by Ann", "Was sent", "Reached the phone")
    history = operator.page.text.partition("History")[2].lower()
    places = [history.index(words.lower()) for words in told]
    assert places == sorted(places)
    for words in ("SM1", "2 of at most 4", str(message.id), NEW_YORK):
        assert words in operator.page.text


def test_an_operator_keeps_the_do_not_call_list(operator):
    operator.open("/desk/do-not-call")
    for button, words, listed in (
        ("Check", "is not on the list", False),
        ("Add", "is on the list now", True),
        ("Add", "was on the list before", True),
        ("Check", "has been on the list since 2026-03-03, added by an operator", True),
        ("Remove", "is no longer on the list", False),
        ("Remove", "was not on the list", False),
    ):
        operator.press(button, number="+1 (212) 555-0123")
        assert f"+1 212-555-0123 {words}" in operator.page.text
        assert DoNotCall.lists(NEW_YORK) is listed


@pytest.mark.parametrize("button", ["Check", "Add", "Remove"])
def test_what_is_no_number_joins_no_list(operator, button):
    operator.open("/desk/do-not-call")
    for number in ("", "0", "+", "+1", "112", "\0", "<b>", "+1" * 5000):
        assert operator.press(button, number=number).status_code == 400, number
        assert "country code" in operator.page.text
        assert "<b>" not in operator.response.text
        assert DoNotCall.select().count() == 0


def test_numbers_and_texts_stay_out_of_the_log(operator, caplog):
    caplog.set_level("INFO")
    message = ask("a secret text")
    operator.open()
    operator.press("Approve", message)
    operator.open("/desk/do-not-call")
    operator.press("Add", number=NEW_YORK)
    assert f"message {message.id} approved by Olga" in caplog.text
    for hidden in ("a secret text", NEW_YORK[1:], "212-555"):
        assert hidden not in caplog.text


# On top


def test_an_operator_sees_what_goes_out_and_what_became_of_the_last_day(operator):
    for number in range(3):
        store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 5 * HOUR + number * HOUR / 60)
    store(status=Status.QUEUED, send_at=TUESDAY_NOON - HOUR)
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON - HOUR)
    ask(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 5 * HOUR)
    store(status=Status.SCHEDULED, send_at=TUESDAY_NOON + 25 * HOUR)
    store(status=Status.DELIVERED, finished_at=TUESDAY_NOON - HOUR)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON - 2 * HOUR)
    store(status=Status.FAILED, finished_at=TUESDAY_NOON - 25 * HOUR)
    operator.open()
    text = operator.page.text
    assert "Next 24 hours: 6 texts ( 1 not approved). Busiest hour: 22:00 UTC, 4 texts." in text
    assert "Last 24 hours: 1 delivered, 1 failed" in text
    images = [attrs for tag, attrs in operator.page.elements if tag == "svg"]
    assert [image["role"] for image in images] == ["img", "img"]
    heights = [float(a["height"]) for t, a in operator.page.elements if a.get("class") == "bar"]
    assert max(heights) == 66.0


def test_an_approver_sees_no_figures_of_others(approver):
    approver.open()
    assert "24 hours" not in approver.page.text


@pytest.mark.parametrize(
    ("name", "trouble", "passed", "words"),
    [
        (None, None, None, "no scheduler has run yet"),
        ("twilio", None, TUESDAY_NOON - HOUR, "the last scheduler pass was 1 hour ago"),
        ("", None, TUESDAY_NOON, "No carrier is set"),
        (
            "twilio",
            "20003: wrong",
            TUESDAY_NOON,
            "The carrier has refused the account for 1 hour : 20003",
        ),
    ],
)
def test_an_operator_sees_the_carriers_trouble(operator, name, trouble, passed, words):
    if name is not None:
        CarrierState.passed(name, passed, 300)
    if trouble:
        CarrierState.begin_pause(name, TUESDAY_NOON - HOUR, TUESDAY_NOON - HOUR, trouble=trouble)
    operator.open()
    assert words in operator.page.text


def test_an_operator_sees_why_most_texts_end_badly(operator):
    for _ in range(5):
        held(Status.FAILED, finished_at=TUESDAY_NOON, last_error="<b>no credit")
    operator.open()
    words = "5 of the latest 5 texts failed for one reason: <b>no credit"
    assert words in operator.page.text
    for _ in range(5):
        held(Status.SENT, finished_at=TUESDAY_NOON + timedelta(seconds=1))
    operator.open()
    assert "for one reason" not in operator.page.text


def test_an_operator_sees_which_keys_are_at_a_limit_on_the_first_page(operator, app, at):
    secret = issue("shop <1>", role=Role.SENDER, limits=parse("1/min,9/d"))
    issue("idle", role=Role.SENDER, limits=parse("1/min"))
    client, body = app.test_client(), {"to": NEW_YORK, "message": "Hello"}
    operator.open()
    assert "limit" not in operator.page.text
    client.post("/v1/text-messages", json=body, headers={"X-Api-Key": secret})
    operator.open()
    assert "Keys at their limit: shop <1> (1/min)." in operator.page.text
    at(TUESDAY_NOON + timedelta(minutes=1))
    operator.open()
    assert "at their limit" not in operator.page.text


def test_an_approver_does_not_see_which_keys_are_at_a_limit(approver, monkeypatch):
    monkeypatch.setattr("reports.at_limit", lambda *_: [("shop", "1/d")])
    approver.open()
    assert "limit" not in approver.page.text


def test_of_many_keys_at_a_limit_ten_are_named(operator, monkeypatch):
    names = [(f"key {n}", "1/d") for n in range(12)]
    monkeypatch.setattr("reports.at_limit", lambda *_: names)
    operator.open()
    assert "key 9 (1/d) and 2 more." in operator.page.text
    assert "key 10" not in operator.page.text


def test_a_carrier_that_takes_texts_is_not_reported(operator):
    CarrierState.passed("twilio", TUESDAY_NOON, 300)
    operator.open()
    assert "refused the account" not in operator.page.text
    assert "Nothing is being sent" not in operator.page.text


def test_the_history_says_when_the_key_was_told(operator):
    told_at = TUESDAY_NOON + timedelta(minutes=1)
    message = store(status=Status.SENT, finished_at=TUESDAY_NOON, told_at=told_at)
    operator.open(f"/desk/messages/{message.id}")
    assert "app was told of it" in operator.page.text
    untold = store(status=Status.SENT, finished_at=TUESDAY_NOON)
    operator.open(f"/desk/messages/{untold.id}")
    assert "was told" not in operator.page.text
