"""A link signs its person in, once, for ten minutes."""

import io
from concurrent.futures import ThreadPoolExecutor

import pytest
import segno

from app import create_app
from databases import on_both
from desk_visitor import Visitor, is_out, issue, signed_in
from samples import DAY, HOUR, MILLISECOND, MINUTE, TUESDAY_NOON
from texting.access.audit import Audit
from texting.access.keys import ApiKey, Role
from texting.access.sign_ins import SignIn

PUBLIC = "http://texts.example.com/stage"
OVER = "This link was used, is older than ten minutes, or its key has changed."


@pytest.fixture
def desk_settings(desk_settings):
    return desk_settings._replace(public_url=PUBLIC)


@pytest.fixture
def token(run):
    """What a new link of Ann's has behind its #."""
    issue("Ann", "front")
    return lambda: link_of(run, "Ann").partition("#")[2]


def link_of(run, name):
    return run("keys", "link", name).splitlines()[0]


def follow(visitor, token):
    visitor.open("/desk/link")
    return visitor.press("Sign in", link=token, follow=False).status_code


def test_the_link_is_printed_with_its_code(run):
    issue("Olga", role=Role.OPERATOR)
    printed = run("keys", "link", "Olga")
    link, _, code = printed.partition("\n")
    assert link.startswith(f"{PUBLIC}/desk/link#")
    drawn = io.StringIO()
    segno.make_qr(link, error="l").terminal(drawn, border=2, compact=True)
    assert code == drawn.getvalue()
    assert max(map(len, code.splitlines())) < 80
    row = Audit.get(Audit.what == "sign-in link made")
    assert (row.key_name, row.number, row.details) == ("Olga", None, None)
    assert ApiKey.named("Olga").last_used_at is None


@on_both
def test_it_signs_in_once_in_all_processes_even_after_the_sign_out(app, token, desk_settings):
    link = token()
    for visitor in (Visitor(app), Visitor(app)):  # a messenger looks first
        assert visitor.open("/desk/link").status_code == 200
        assert len(visitor.page.buttons("Sign in")) == 1
    assert follow(visitor, link) == 303
    assert "Signed in as Ann, approver of front" in visitor.read()
    visitor.press("Sign out")
    for another in (visitor, Visitor(create_app(desk_settings))):
        assert follow(another, link) == 403
        assert OVER in another.page.text
        assert is_out(another)
    rows = [(each.what, each.who) for each in Audit.select().where(Audit.who == "Ann")]
    assert rows == [("signed in", "Ann"), ("signed out", "Ann")]


def test_a_link_stays_used_whatever_the_audit_calls_that(app, token):
    link = token()
    assert follow(Visitor(app), link) == 303
    Audit.update(details="in other words", what="came in").execute()
    assert follow(Visitor(app), link) == 403


@on_both
def test_of_many_at_once_one_signs_in(app, token):
    link, visitors = token(), [Visitor(app) for _ in range(6)]
    with ThreadPoolExecutor(6) as pool:
        answers = [*pool.map(lambda visitor: follow(visitor, link), visitors)]
    assert sorted(answers) == [303, *[403] * 5]
    assert SignIn.select().count() == 1


@pytest.mark.parametrize(
    ("later", "status"), [(10 * MINUTE, 403), (10 * MINUTE - MILLISECOND, 303), (-HOUR, 403)]
)
def test_it_works_for_ten_minutes(app, token, at, later, status):
    link = token()
    at(TUESDAY_NOON + later)
    assert follow(Visitor(app), link) == status


def test_each_of_two_links_works(app, token, at):
    first = token()
    at(TUESDAY_NOON + MILLISECOND)
    second = token()
    assert [follow(Visitor(app), each) for each in (second, first)] == [303, 303]


def test_links_of_two_people_that_are_made_at_one_moment_both_work(app, token, run):
    issue("Bert", "front")
    links = token(), link_of(run, "Bert").partition("#")[2]
    assert [follow(Visitor(app), each) for each in links] == [303, 303]


KEY_CHANGES = {
    "revoke": lambda key: key.revoke(TUESDAY_NOON),
    "rotate": lambda key: key.rotate(TUESDAY_NOON + DAY, TUESDAY_NOON),
    "pause": lambda key: key.pause(TUESDAY_NOON),
    "expire": lambda key: key.extend(TUESDAY_NOON, TUESDAY_NOON),
    "revoke and create": lambda key: key.revoke(TUESDAY_NOON) and issue("Ann", "front"),
}


@pytest.mark.parametrize("change", KEY_CHANGES)
def test_a_key_that_changed_voids_it(app, token, change):
    link = token()
    KEY_CHANGES[change](ApiKey.named("Ann"))
    assert follow(Visitor(app), link) == 403
    assert SignIn.select().count() == 0


@on_both
def test_a_pause_voids_it_for_good_and_no_later_one(app, token, at):
    link, key = token(), ApiKey.named("Ann")
    assert key.pause(TUESDAY_NOON)
    assert key.resume(TUESDAY_NOON)
    assert follow(Visitor(app), link) == 403
    at(TUESDAY_NOON + MILLISECOND)
    assert follow(Visitor(app), token()) == 303


def test_what_is_no_link_signs_nobody_in(app, token, desk_settings):
    link, other = token(), create_app(desk_settings._replace(secret_key="x" * 40))
    cookie = signed_in(app, "Olga").client.get_cookie("desk", path="/desk/").value
    for tried in ("", "\0", link[:-1], link + "x", link.swapcase(), "é" * 9_999, cookie):
        assert follow(Visitor(app), tried) == 403
    assert follow(Visitor(other), link) == 403
    thief = Visitor(app)
    thief.client.set_cookie("desk", link, path="/desk/")
    assert is_out(thief)
    assert SignIn.select().count() == 1  # Olga's


@pytest.mark.parametrize("public_url", [PUBLIC, PUBLIC.replace("http:", "https:")])
def test_a_link_from_elsewhere_is_loaded_again_before_it_sets_a_cookie(desk_settings, public_url):
    """Or any site could sign people out: the browser keeps its cookie back, and would lose it."""
    client = create_app(desk_settings._replace(public_url=public_url)).test_client()
    elsewhere = client.get("/desk/link", headers={"Sec-Fetch-Site": "cross-site"})
    assert elsewhere.status_code == 200
    assert "data-load-again" in elsewhere.text
    assert "<form" not in elsewhere.text
    assert "refresh" not in elsewhere.text
    assert "Set-Cookie" not in elsewhere.headers
    for site in ("none", "same-origin", "same-site", None):
        response = client.get("/desk/link", headers={"Sec-Fetch-Site": site} if site else {})
        assert "data-fragment" in response.text
        assert "data-load-again" not in response.text


def test_a_link_ends_the_session_before_it(app, token):
    visitor = signed_in(app, "Olga", role=Role.OPERATOR)
    assert follow(visitor, token()) == 303
    assert "Signed in as Ann" in visitor.read()
    assert [each.key.name for each in SignIn.select()] == ["Ann"]


@pytest.mark.parametrize(
    ("name", "role", "change", "words"),
    [
        ("shop", Role.SENDER, None, "is a sender's key: it can send texts but not sign in"),
        ("test", Role.TESTER, None, "is a tester's key"),
        *(
            ("Ann", Role.APPROVER, each, "is revoked, expired or paused")
            for each in ("revoke", "pause", "expire")
        ),
    ],
)
def test_only_a_key_that_opens_the_desk_has_links(refused, name, role, change, words):
    issue(name, "front", role)
    if change:
        KEY_CHANGES[change](ApiKey.named(name))
    assert words in refused("keys", "link", name)
    assert "no key named 'Bob'" in refused("keys", "link", "Bob")
    assert not Audit.select().where(Audit.what == "sign-in link made").exists()


@pytest.mark.options
@pytest.mark.parametrize("missing", ["public_url", "secret_key"])
def test_without_an_address_or_a_desk_there_are_no_links(desk_settings, missing):
    issue("Ann", "front")
    runner = create_app(desk_settings._replace(**{missing: None})).test_cli_runner()
    result = runner.invoke(args=["keys", "link", "Ann"])
    assert (result.exit_code, result.stdout) == (1, "")
    words = f"a link needs PUBLIC_URL and SECRET_KEY; missing: {missing.upper()}\n"
    assert result.stderr.endswith(words)


def test_no_log_has_what_signs_in(app, token, caplog):
    caplog.set_level("DEBUG")
    link = token()
    assert [follow(Visitor(app), link) for _ in range(2)] == [303, 403]
    assert link not in caplog.text


def test_who_signs_in_by_a_link_reads_as_whom(app, token):
    visitor = Visitor(app)
    follow(visitor, token())
    words = "You are signed in as Ann, approver of front."
    assert words in visitor.read("/desk/")
    assert words not in visitor.read("/desk/"), "once"
    assert words not in signed_in(app, "Bob", "front").page.text
