"""What /healthz tells somebody without a token: which part is unwell, in no word of the carrier."""

import json

import pytest

from app import create_app
from carriers import CarrierError
from models import Status
from samples import MINUTE, SECOND, TUESDAY_NOON
from stored_messages import store

TOKEN = "a token of the tests"
WORDS = "account AC123 of Ann's is suspended"
BRINGS_IT = {"Authorization": f"Bearer {TOKEN}"}
STRANGERS = [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}]


@pytest.fixture
def client(settings, at):
    at(TUESDAY_NOON)
    return create_app(settings._replace(metrics_token=TOKEN)).test_client()


@pytest.fixture
def unwell(client, carrier, run_pass, at):
    """A service whose carrier refuses the account, after texts that all failed for one reason."""
    for _ in range(5):
        store(status=Status.FAILED, finished_at=TUESDAY_NOON, last_error=WORDS)
    text = store()
    carrier.answers[text.to] = CarrierError(WORDS, account=True)
    run_pass(TUESDAY_NOON)
    at(TUESDAY_NOON + 3 * MINUTE + SECOND)
    return client


def told(response):
    return response.json["details"] if response.status_code == 503 else response.json


@pytest.mark.parametrize("headers", STRANGERS)
@pytest.mark.parametrize("query", ["", "?strict"])
def test_strangers_read_which_part_is_unwell_and_no_word_of_the_carrier(unwell, query, headers):
    response = unwell.get(f"/healthz{query}", headers=headers)
    assert response.status_code == (503 if query else 200)
    assert WORDS not in response.text
    assert "fake" not in response.text
    down, spike, scheduler = told(response)["problems"]
    assert down.startswith("the carrier has ")
    assert down.endswith(" since 2026-03-03T17:00:00.000Z")
    assert spike == "5 of the latest 5 texts failed for one reason"
    assert scheduler.startswith("no scheduler makes a pass")
    assert told(response)["commonest_error"]["error"] is None
    assert told(response)["commonest_error"]["messages"] >= 5


@pytest.mark.parametrize("query", ["", "?strict"])
def test_those_who_bring_the_token_read_the_words(unwell, query):
    response = unwell.get(f"/healthz{query}", headers=BRINGS_IT)
    down, spike, *_ = told(response)["problems"]
    assert down.endswith(WORDS)
    assert spike.endswith(WORDS)
    assert told(response)["commonest_error"]["error"] == WORDS


def test_without_a_token_nobody_over_http_reads_them_but_the_shell_does(unwell, settings):
    app = create_app(settings)
    for headers in ({}, BRINGS_IT, {"Authorization": "Bearer "}):
        assert WORDS not in app.test_client().get("/healthz", headers=headers).text
    shown = json.loads(app.test_cli_runner().invoke(args=["stats", "--json"]).stdout)
    assert WORDS in shown["problems"][0]
    assert shown["commonest_error"]["error"] == WORDS
