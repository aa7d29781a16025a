"""Lines of the log: one per event, with its instant, in text or in JSON."""

import json
import re
import socket

import pytest

from running import ALWAYS, post
from samples import VALID
from texting import logs
from texting.settings import VERSION

INSTANT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def lines_in(process):
    """The lines of a process that logs JSON; each must be an object with its instant."""
    lines = [json.loads(line) for line in process.output.splitlines()]
    assert lines
    assert all(re.fullmatch(INSTANT, line["time"]) for line in lines)
    return lines


def test_a_line_of_text_begins_with_its_instant_in_utc(shared_web):
    web, _ = shared_web
    for line in web.output.splitlines():
        assert re.match(rf"{INSTANT} [A-Z]+ (gunicorn\.error|web) ", line)


@pytest.mark.slow
def test_the_web_writes_json_from_its_first_line_to_its_last(serve, database_url):
    web = serve(database_url, LOG_FORMAT="json", CARIER_URL="console:")
    with socket.create_connection(("127.0.0.1", web.port), timeout=60) as connection:
        connection.sendall(b"this is not HTTP\r\n\r\n")
        assert connection.recv(65_536)
    assert web.terminate() == 0
    messages = [line["message"] for line in lines_in(web)]
    assert messages[0] == f"Text Message Sending Service {VERSION}"
    assert messages[1] == "CARIER_URL is not a setting; did you mean CARRIER_URL?"
    assert messages[2].startswith("Starting gunicorn")
    assert "answered 400 to key -" in messages
    assert messages[-1] == "Shutting down: Master"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("threading.Thread(target=lambda: 1 / 0).start()", "ZeroDivisionError"),
        ("warnings.warn('old')", "UserWarning"),
    ],
)
def test_a_message_of_python_itself_is_one_line_of_json(code, name, start):
    begin = "import threading, warnings; from texting import logs; logs.start('INFO', 'JSON'); "
    process = start("python", "-c", begin + code)
    process.wait()
    (line,) = lines_in(process)
    assert name in line["message"] + line.get("exc_info", "")


MANY_THREADS = """
import logging, threading
from texting import logs
logs.start('INFO', 'JSON')
write = lambda: [logging.info("%s", "x" * 300) for _ in range(100)]
threads = [threading.Thread(target=write) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def test_lines_of_many_threads_are_whole_and_complete(start):
    process = start("python", "-c", MANY_THREADS)
    assert process.wait() == 0
    assert [line["message"] for line in lines_in(process)] == ["x" * 300] * 800


def test_invalid_settings_are_reported_in_json_too(start):
    bad = {"LOG_FORMAT": "json", "MAX_RETRIES": "many", "LOG_LEVEL": "loud"}
    process = start("python", "-c", "from texting import settings; settings.load_or_exit()", **bad)
    assert process.wait() == 1
    said = [line["message"].partition(":")[0] for line in lines_in(process)]
    assert said == ["MAX_RETRIES", "LOG_LEVEL"]


def test_the_two_formats_have_the_same_content(caplog):
    logs.log.warning("a line")
    (record,) = caplog.records
    text, object_ = logs.formatter("TEXT").format(record), logs.formatter("JSON").format(record)
    known = json.loads(object_)
    told = ("time", "level", "name", "message")
    assert [known[name] for name in told] == text.replace(" - ", " ").split(" ", 3)


def test_lines_about_a_message_have_its_id_and_the_key_as_fields_in_json(
    serve, schedule, database_url, key
):
    web = serve(database_url, LOG_FORMAT="json", **ALWAYS)
    response = post(web, key, VALID)
    message_id = json.loads(response.text)["message_id"]
    assert post(web, key, VALID | {"to": "nobody"}).status == 400
    scheduler = schedule(CARRIER_URL="simulator:", LOG_FORMAT="json")
    assert scheduler.wait() == 0
    assert web.terminate() == 0
    stored, refused = (line for line in lines_in(web) if "key" in line)
    assert (stored["message_id"], stored["key"], stored["level"]) == (message_id, "app", "INFO")
    assert stored["request_id"] == response.headers["X-Request-Id"]
    assert refused["key"] == "app"
    sent = [line for line in lines_in(scheduler) if "message_id" in line]
    assert [(line["message_id"], line["key"]) for line in sent] == [(message_id, "app")]
