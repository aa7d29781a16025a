"""The README says what is true: its curl, its answers, its commands, its settings."""

import json
import re
import shlex
import uuid

import pytest

import models
import settings as environment
from running import ROOT
from samples import TUESDAY_NOON

README = (ROOT / "README.md").read_text()
PARCEL = uuid.UUID("019cb4b5-1080-7d2c-9e4f-3a1f0b8d5c11")  # the message of the README


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_curl_gets_the_printed_answer(client, key, at, monkeypatch):
    at(TUESDAY_NOON)
    monkeypatch.setattr(models, "new_id", lambda now: PARCEL)
    words = shlex.split(blocks("sh")[0].replace("$API_KEY", key))
    headers = dict(words[n + 1].split(": ", 1) for n, word in enumerate(words) if word == "-H")
    assert words[:2] == ["curl", "http://localhost:8000/v1/text-messages"]
    response = client.post("/v1/text-messages", data=words[words.index("-d") + 1], headers=headers)
    assert response.status_code == 201
    assert list(json.loads(response.text).items()) == list(json.loads(blocks("json")[0]).items())


def test_the_printed_error_is_what_a_careless_request_gets(post, at):
    at(TUESDAY_NOON)
    response = post(to="+1 212 555 0123", send_dat="2026-03-03T18:00:00Z")
    assert response.json == json.loads(blocks("json")[1])


def test_the_operators_commands_print_what_is_printed(flask, post, at, monkeypatch):
    at(TUESDAY_NOON)
    monkeypatch.setattr(models, "new_id", lambda now: PARCEL)
    post(manual_mode=True, send_date="2026-03-04T14:00:00Z")
    for session in blocks("console"):
        for command, printed in re.findall(r"^\$ flask (.*)\n((?:[^$].*\n)*)", session, re.M):
            result = flask(*shlex.split(command))
            assert result.exit_code == 0, result.output
            assert _without_secrets(result.output) == _without_secrets(printed)


def _without_secrets(text):
    return re.sub(r"tms_\S{43}", "tms_", text)


def test_every_setting_is_described_with_its_default(settings):
    described = dict(re.findall(r"^\| `([A-Z_]+)`[^|]*\| `?([^|`]*)`? \|", README, re.M))
    example = (ROOT / ".env.example").read_text()
    for name in environment.Settings._fields:
        assert f"`{name.upper()}`" in README
        assert name.upper() in example
    for name in ("max_message_length", "max_retries", "retry_delay", "claim_timeout"):
        assert described[name.upper()] == str(getattr(settings, name))


@pytest.mark.parametrize("group", ["db", "keys", "dnc", "messages", "stats", "openapi"])
def test_every_group_of_commands_is_mentioned(group):
    assert f"flask {group}" in README


def test_every_file_that_is_mentioned_is_there():
    for name in re.findall(r"`(\w[\w./-]*\.(?:py|json|yaml|txt|md|example))`", README):
        assert (ROOT / name).exists(), name
