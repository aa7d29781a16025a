"""The interface description: it is true, it is served, and a page lets requests be tried."""

import json
import re
import shutil
import subprocess
import sys
from uuid import UUID

import pytest
from marshmallow import RAISE

import schemas
from app import create_app
from browser import HOST
from running import ROOT
from samples import NEW_YORK, TUESDAY_NOON
from stored_messages import store
from texting import database
from texting.access.do_not_call import DoNotCall
from texting.access.keys import ApiKey
from texting.access.limits import parse
from texting.carriers import IncomingText
from texting.database import clock
from texting.events import outbox
from texting.events.outbox import EventAddress
from texting.messages import model
from texting.messages.model import FINISHED, Message
from texting.replies import inbound
from texting.replies.inbound import ReplyRules

WRITTEN = (ROOT / "texting/monitoring" / "openapi.json").read_text()
DESCRIPTION = json.loads(WRITTEN)
OPERATION = "/v1/text-messages"
POST = DESCRIPTION["paths"][OPERATION]["post"]
BODY = POST["requestBody"]["content"]["application/json"]
EXAMPLES = BODY["examples"]
SCHEMAS, ERRORS = DESCRIPTION["components"]["schemas"], DESCRIPTION["components"]["responses"]
REQUEST = SCHEMAS["TextMessageRequest"]


def check(value, schema):
    """Raise an error unless a value is as a schema of the description says."""
    from openapi_schema_validator import OAS31Validator, oas31_format_checker  # takes 0.2 s

    OAS31Validator(SCHEMAS[schema], format_checker=oas31_format_checker).validate(value)


def check_event(event, schema):
    """Raise an error unless an event has the described fields, in their order."""
    check(event, schema)
    described = SCHEMAS[schema]["properties"]
    assert [*event] == [*described]
    assert [*event["data"]] == [*described["data"]["properties"]]


def test_the_description_is_valid_openapi():
    from openapi_spec_validator import OpenAPIV31SpecValidator

    OpenAPIV31SpecValidator(DESCRIPTION).validate()


def test_the_description_needs_no_key(client):
    response = client.get("/openapi.json")
    assert response.status_code == 200
    assert response.mimetype == "application/json"
    assert response.text == WRITTEN


def test_the_description_has_the_longest_message_of_this_service(settings):
    client = create_app(settings._replace(max_message_length=20)).test_client()
    described = client.get("/openapi.json").json["components"]["schemas"]["TextMessageRequest"]
    assert described["properties"]["message"]["maxLength"] == 20


@pytest.mark.parametrize(
    ("public_url", "prefix", "server"),
    [
        (None, "", "/"),
        (None, "/staging", "/staging"),
        ("https://texts.example.com/v", "", "https://texts.example.com/v"),
    ],
)
def test_the_one_server_is_this_service(settings, public_url, prefix, server):
    client = create_app(settings._replace(public_url=public_url)).test_client()
    served = client.get("/openapi.json", base_url=f"http://localhost{prefix}").json
    assert [each["url"] for each in served["servers"]] == [server]


TYPES = {
    schemas.PhoneNumber: ("string", "phone"),
    schemas.Text: ("string", None),
    # OpenAPI's date-time is RFC 3339: it needs an offset and has no basic format
    schemas.FutureInstant: ("string", "iso-date-time"),
    schemas.Flag: ("boolean", None),
}
RULES = ("type", "format", "default")  # generated types make a field with a default required


def rules(field):
    """Return what the description must say about a field of a schema."""
    kind, form = TYPES[type(field)]
    told = {"type": kind, "format": form}
    return {name: rule for name, rule in told.items() if rule}


def test_the_description_has_the_fields_of_the_schema_in_its_order():
    told = [
        (name, {rule: field[rule] for rule in RULES if rule in field})
        for name, field in REQUEST["properties"].items()
    ]
    fields = schemas.TextMessageRequest().fields
    assert told == [(name, rules(field)) for name, field in fields.items()]
    assert REQUEST["required"] == [name for name, field in fields.items() if field.required]
    assert REQUEST["additionalProperties"] is False
    assert schemas.TextMessageRequest().unknown == RAISE


@pytest.mark.parametrize("to", [NEW_YORK, "+18005550199"])
def test_an_answer_has_all_described_fields_in_their_order(post, to):
    described, answer = SCHEMAS["TextMessageResponse"], post(to=to).json
    check(answer, "TextMessageResponse")
    assert described["required"] == list(described["properties"]) == list(answer)
    assert described["additionalProperties"] is False


def test_an_error_has_the_described_fields_in_their_order(post):
    described = SCHEMAS["Error"]
    error = json.loads(post(to=...).text)
    assert described["required"] == list(described["properties"]) == list(error)
    types = {bool: "boolean", str: "string", int: "integer", dict: "object"}
    for name, value in error.items():
        assert described["properties"][name]["type"] == types[type(value)]
    assert described["properties"]["error"]["enum"] == [True]
    assert described["properties"]["timestamp"]["format"] == "date-time"
    assert list(described["properties"]["details"]["properties"]) == list(error["details"])


def test_the_offset_of_a_number_in_several_zones_is_described_as_a_list():
    one, several = SCHEMAS["TextMessageResponse"]["properties"]["timezone_offset"]["oneOf"]
    assert one == {"type": "number"}
    assert several == {"type": "array", "items": {"type": "number"}, "minItems": 2}


@pytest.mark.slow
def test_the_description_and_the_service_agree_on_white_space():
    pattern = REQUEST["properties"]["message"]["pattern"]
    blank = {char for char in map(chr, range(sys.maxunicode + 1)) if not re.search(pattern, char)}
    assert blank == {char for char in map(chr, range(sys.maxunicode + 1)) if char.isspace()} | {
        "\0"
    }


@pytest.mark.parametrize(
    ("text", "status"),
    [
        *((text, 201) for text in ("2099-11-05T14:05:00-05:00", "2099-11-05T14:05Z")),
        *((text, 201) for text in ("20991105T140500,5+0530", "2099-W45-4T14:05")),
        *((text, 400) for text in ("2099-11-05", "2099-11-05 14:05:00Z", "tomorrow", "")),
    ],
)
def test_the_description_and_the_service_accept_the_same_dates(text, status, post):
    pattern = REQUEST["properties"]["send_date"]["pattern"]
    assert pattern == clock.INSTANT
    described = re.search(pattern, text)
    assert bool(described) == (status == 201)
    assert post(send_date=text).status_code == status


def test_the_example_request_gets_the_example_answer(post, at):
    at(TUESDAY_NOON)
    answer = post(**EXAMPLES["now"]["value"]).json
    properties = SCHEMAS["TextMessageResponse"]["properties"]
    example = {name: described["example"] for name, described in properties.items()}
    assert answer | {"message_id": example["message_id"]} == example


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_request_is_accepted(post, name):
    assert post(**EXAMPLES[name]["value"]).status_code == 201


def schema_of(body):
    """The name of the schema of a body."""
    return body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]


def test_generators_find_a_name_for_every_body():
    """They make nothing of a reference to a path item: TypeScript's webhooks were `never`."""
    assert schema_of(POST["requestBody"]) == "TextMessageRequest"
    assert schema_of(POST["responses"]["201"]) == "TextMessageResponse"
    bodies = DESCRIPTION["components"]["requestBodies"]
    operations = {}
    for name, webhook in DESCRIPTION["webhooks"].items():
        assert [*webhook] == ["post"]
        body = bodies[webhook["post"]["requestBody"]["$ref"].rpartition("/")[2]]
        others = {outbox.REPLIED: "ReplyEvent", outbox.TEST: "TestEvent"}
        assert schema_of(body) == others.get(name, "Event")
        operations[name] = webhook["post"]["operationId"]
    assert len({*operations.values()}) == len(operations)


def test_every_final_state_is_a_described_event():
    states = {f"text_message.{status}" for status in FINISHED}
    assert {*DESCRIPTION["webhooks"]} == states | {outbox.REPLIED, outbox.TEST}
    described = SCHEMAS["Event"]["properties"]
    assert {*described["type"]["enum"]} == states
    assert {*described["data"]["properties"]["status"]["enum"]} == {*FINISHED}


@pytest.mark.parametrize("status", FINISHED)
def test_every_event_has_the_described_fields_in_their_order(status):
    of = {"status": status, "attempts": 1, "last_error": "no such number", "parts": 1}
    event = json.loads(outbox.body(Message(id=UUID(int=7), **of), TUESDAY_NOON))
    check_event(event, "Event")


def test_the_event_of_a_reply_has_the_described_fields_in_their_order(database_url):
    store(status="sent", finished_at=TUESDAY_NOON)
    EventAddress.set(ApiKey.named("app"), "http://127.0.0.1/", TUESDAY_NOON)
    inbound.record(
        [IncomingText(NEW_YORK, "Yes")], TUESDAY_NOON, ReplyRules("fake", "asked", None, None)
    )
    event = json.loads(outbox.Event.get().body)
    check_event(event, "ReplyEvent")


def test_the_event_of_a_test_has_the_described_fields_in_their_order():
    check_event(json.loads(outbox.body_of_test(TUESDAY_NOON)), "TestEvent")


def fail_with(monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr("texting.recipients.hours.BusinessHours.facts", fail)


BREAK = {
    "400": lambda post, client, patch: post(to="+12120000000", message=...),
    "401": lambda post, client, patch: post(headers={"X-Api-Key": "unknown"}),
    "403": lambda post, client, patch: (
        DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator") and post(check_dnc=True)
    ),
    "405": lambda post, client, patch: client.get(OPERATION),
    "413": lambda post, client, patch: post(message="x" * 70_000),
    "429": lambda post, client, patch: (
        ApiKey.named("app").limit(parse("1/min"), TUESDAY_NOON) or (post() and post())
    ),
    "500": lambda post, client, patch: fail_with(patch, RuntimeError()) or post(),
    "503": lambda post, client, patch: fail_with(patch, database.ERRORS[0]("is gone")) or post(),
}


def test_every_status_is_described():
    assert POST["responses"].keys() == {"201", *BREAK}


@pytest.mark.parametrize("status", BREAK)
def test_every_error_looks_like_its_example(status, post, client, at, monkeypatch):
    at(TUESDAY_NOON)
    described = ERRORS[POST["responses"][status]["$ref"].rpartition("/")[2]]
    response = BREAK[status](post, client, monkeypatch)
    assert response.status == f"{status} {response.status.partition(' ')[2]}"
    assert response.json == described["content"]["application/json"]["example"]
    for name, header in described.get("headers", {}).items():
        example = str(header["example"])
        assert set(response.headers[name].split(", ")) == set(example.split(", "))


@pytest.fixture
def attack(start, shared_web):
    """Let schemathesis send requests made from the description to gunicorn; return its output."""
    web, key = shared_web

    def run(*options):
        schemathesis = start(
            "schemathesis",
            *("--config-file", ROOT / "tests/monitoring/schemathesis.toml", "--no-color"),
            *("run", f"{web.url}/openapi.json", "--url", web.url, "--header", f"X-Api-Key: {key}"),
            *options,
        )
        assert schemathesis.wait(1200) == 0, schemathesis.output
        return schemathesis.output

    return run


def test_no_request_made_from_the_description_breaks_it(attack):
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    assert "No issues found" in attack("--generation-deterministic", "--max-examples", "30")


@pytest.mark.soak
@pytest.mark.parametrize("mode", ["positive", "all"])
def test_no_request_of_many_breaks_the_description(attack, mode):
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "operator")
    options = ("--mode", mode, "--max-time", "120", "--max-examples", "100000", "--workers", "2")
    assert "No issues found" in attack(*options)


def test_the_page_loads_nothing_from_other_hosts(client):
    with client.get("/docs") as response:
        page = response.text
        assert response.mimetype == "text/html"
        assert "'self'" in response.headers["Content-Security-Policy"]
    assert "//" not in page
    for name in re.findall(r'(?:src|href)="docs/([^"]+)"', page):
        assert f"docs/{name}" in page
        with client.get(f"/docs/{name}") as response:
            assert response.status_code == 200


@pytest.mark.parametrize(
    "path", ["", "index.html", "swagger-ui.js", "..", "../app.py", "%2e%2e%2fapp.py", "x/page.js"]
)
def test_no_other_file_is_served_below_the_page(client, path):
    response = client.get(f"/docs/{path}")
    assert response.status_code == 404
    assert response.json["statusCode"] == 404


@pytest.mark.parametrize("path", ["/docs", "/docs/page.js", "/openapi.json"])
def test_the_page_is_read_only(client, path):
    response = client.post(path)
    assert response.status_code == 405
    assert response.json["statusCode"] == 405
    assert "GET" in response.headers["Allow"]


@pytest.mark.parametrize("prefix", [pytest.param("", marks=pytest.mark.soak), "/staging"])
def test_a_request_can_be_tried_on_the_page(browser, serve, database_url, key, prefix):
    base = f"http://{HOST}:{serve(database_url, SCRIPT_NAME=prefix).port}{prefix}"
    browser.open(f"{base}/docs")
    browser.look_like(390, 844)
    assert browser.text("h1.title").startswith("Text Message Sending Service")
    assert browser.text(".opblock-summary-path") == OPERATION
    browser.click(".btn.authorize")
    assert browser.count(".auth-container input") == 1
    browser.write(".auth-container input", key)
    browser.click(".auth-btn-wrapper .authorize")
    browser.click(".auth-btn-wrapper .btn-done")
    browser.click(".try-out__btn")
    browser.click(".execute")
    assert browser.text(".live-responses-table .response .response-col_status").startswith("201")
    assert browser.sideways() == 0
    kept = [{"to": sent.to, "message": sent.message} for sent in model.Message.select()]
    assert kept == [EXAMPLES["now"]["value"]]
    requested = browser.requested()
    assert f"{base}{OPERATION}" in requested
    assert {url for url in requested if not url.startswith(f"{base}/")} == set()
    assert browser.complaints() == []


def test_the_page_has_the_request_in_code(browser, shared_web, tmp_path):
    web, key = shared_web
    address = f"http://{HOST}:{web.port}"
    browser.open(f"{address}/docs")
    browser.look_like(1280, 800)
    browser.wait_for("return document.querySelectorAll('#samples pre').length == 3")
    where = "return document.querySelector('{}').getBoundingClientRect().bottom <= innerHeight"
    assert browser.run(where.format(".try-out__btn"))
    codes = "return [...document.querySelectorAll('#samples pre')].map(each => each.innerText)"
    codes = [code.replace("KEY", key).replace(HOST, "127.0.0.1") for code in browser.run(codes)]
    curl, python, js = codes
    ways = {"sh": curl, "python": python, "node": js}
    for name, code in ways.items():
        if shutil.which(name):
            file = tmp_path / f"{name}.mjs"
            file.write_text(code)
            told = subprocess.run([name, file], capture_output=True, text=True, check=True).stdout
            assert '"status":"queued"' in told
    assert browser.complaints() == []
