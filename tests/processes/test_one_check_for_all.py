"""Every process checks the same before it starts, and says what is wrong in plain lines."""

import pytest

from running import ROOT, free_port, wait_until

PROCESSES = {
    "web": ["gunicorn", "-c", ROOT / "gunicorn.conf.py", "app:create_app()"],
    "scheduler": ["scheduler.py"],
    "commands": ["flask", "check"],
    "release": ["flask", "db", "upgrade"],
}


UNKNOWN = "no country with telephone numbers has the ISO 3166 code UK (did you mean GB?)"


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("ALLOWED_COUNTRIES", "US,UK", f"{UNKNOWN}\n"),
        ("QUIET_HOURS", "17:00-13:00", "leave no minute of BUSINESS_HOURS open"),
    ],
)
def test_what_cannot_be_served_stops_every_process(process, name, value, problem, start):
    ended = start(*PROCESSES[process], **{name: value})
    assert ended.wait() == 1
    *_, line = ended.output.splitlines(keepends=True)
    assert line.startswith(f"{name}: {problem}")
    assert "Traceback" not in ended.output


@pytest.mark.parametrize("process", ["scheduler", "commands", "release"])
def test_gunicorns_own_settings_are_checked_before_gunicorn_reads_them(process, start):
    """gunicorn itself ends with a traceback; the release phase and systemd run a command first."""
    ended = start(*PROCESSES[process], WEB_CONCURRENCY="four", PORT="http", MAX_RETRIES="x")
    assert ended.wait() == 1
    lines = ended.output.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["MAX_RETRIES", "PORT", "WEB_CONCURRENCY"]


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        ({"DATABASE_URL": "sqlite:////no/such/folder/a.db"}, "the database: cannot be reached"),
        (
            {"DATABASE_URL": "postgresql://u:s3cret@127.0.0.1:1/d"},
            "the database: cannot be reached",
        ),
        ({"DATABASE_URL": "sqlite:///misspelt.db"}, "the tables: not up to date: flask db upgrade"),
        ({"CARRIER_URL": "twilio://AC5:s3cret@+15005550006"}, "PUBLIC_URL is not set"),
    ],
)
def test_the_web_says_at_its_start_what_will_not_work(environ, line, start):
    web = start(*PROCESSES["web"], PORT=str(free_port()), **environ)
    wait_until(lambda: "Listening at" in web.output)
    assert line in web.output.partition("Listening at")[0]
    assert "s3cret" not in web.output
    assert "Traceback" not in web.output
    assert web.terminate() == 0


def test_the_scheduler_says_so_too(start):
    url = "twilio://AC5:s3cret@+15005550006?base_url=http://127.0.0.1:1"
    scheduler = start("scheduler.py", "--every", "5", CARRIER_URL=url)
    wait_until(lambda: "texts go to twilio" in scheduler.output)
    wait_until(lambda: "PUBLIC_URL is not set, so twilio cannot call back" in scheduler.output)
    wait_until(lambda: "the pass failed" in scheduler.output)  # now a signal ends it in order
    assert scheduler.terminate() == 0


def test_with_a_public_url_nothing_is_said(start):
    url = "twilio://AC5:s3cret@+15005550006"
    web = start(
        *PROCESSES["web"],
        PORT=str(free_port()),
        CARRIER_URL=url,
        PUBLIC_URL="https://texts.example.com",
    )
    wait_until(lambda: "Listening at" in web.output)
    assert "PUBLIC_URL" not in web.output
    web.terminate()
