"""Settings: read from the environment and .env, typed, bounded, refused all at once."""

import contextlib
import os
import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import peewee
import psycopg
import pytest

from running import ROOT
from samples import ALL_OPTIONS
from texting import database
from texting.settings import Settings, SettingsError, warn_of_misspelt

UNCHECKED = {"NOTIFY_URL", "CARRIER_URL", "PORT", "WEB_CONCURRENCY"}
"""What is checked later, or by gunicorn's configuration."""

CHECKED = [name for name in map(str.upper, Settings._fields) if name not in UNCHECKED]
BAD = dict.fromkeys(CHECKED, "s3cret") | dict.fromkeys(("STOP_REPLY", "HELP_REPLY"), "s3cret" * 300)
BAD |= {"DATABASE_URL": "mysql://s3cret", "QUIET_HOURS_FILE": "absent.toml"}


def test_tests_with_all_options_on_set_each_setting_without_a_default(loaded):
    without_default = {name.upper() for name, value in loaded()._asdict().items() if not value}
    switches = {"SKIP_HOLIDAYS", "ALLOW_PREMIUM_RATE"}
    assert {*ALL_OPTIONS} == without_default - switches - {"PORT", "QUIET_HOURS_FILE"}
    assert all(getattr(loaded(**ALL_OPTIONS), name.lower()) for name in ALL_OPTIONS)


def test_the_example_shows_the_defaults(loaded):
    example = (ROOT / ".env.example").read_text()
    shown = dict(re.findall(r"^# ([A-Z_]+)=(.*)$", example, re.MULTILINE))
    fields = Settings._fields
    ours = {name: value for name, value in shown.items() if name.lower() in fields}
    assert {name.lower() for name in ours} == {*fields} - {"carrier_url"}
    assert loaded(**ours) == loaded()._replace(port=8000)


WEEKEND_HOURS = {6: (540, 1020), 0: (540, 1020), 5: (600, 840)}
SEVERAL_HOSTS = (
    "postgresql://u:p@db1,db2/d?target_session_attrs=read-write",
    "postgresql://u:p@db1:5432,db2/d",
    "postgresql://u@%2Frun%2Fa,%2Frun%2Fb/d",
)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("BUSINESS_HOURS", "00:00-24:00", (0, 1440)),
        ("BUSINESS_HOURS", "08:30 - 12:01", (510, 721)),
        ("BUSINESS_HOURS", "23:59-24:00", (1439, 1440)),
        ("BUSINESS_HOURS", "mon 08:00-24:00", {0: (480, 1440)}),
        ("BUSINESS_HOURS", "Sun - mon  09:00 - 17:00 ,\tsat 10:00-14:00", WEEKEND_HOURS),
        ("QUIET_HOURS", "", None),
        ("QUIET_HOURS", " 21:00-08:00", (1260, 480)),
        ("QUIET_HOURS", "16:59 - 24:00", (1019, 1440)),
        ("QUIET_HOURS", "sat 21:00-12:00, HOLIDAYS 00:00-24:00", {5: (1260, 720), 7: (0, 1440)}),
        ("QUIET_HOURS", "fri-sun 21:00-08:00", dict.fromkeys((4, 5, 6), (1260, 480))),
        ("QUIET_HOURS_FILE", "", {}),
        ("BUSINESS_DAYS", "mon-fri", {0, 1, 2, 3, 4}),
        ("BUSINESS_DAYS", "mon,wed,sat", {0, 2, 5}),
        ("BUSINESS_DAYS", "Sat - Mon, wed", {5, 6, 0, 2}),
        ("BUSINESS_DAYS", "sun", {6}),
        ("BUSINESS_DAYS", "local", None),
        ("SKIP_HOLIDAYS", "true", True),
        ("MAX_MESSAGE_LENGTH", "1", 1),
        ("MAX_RETRIES", "0", 0),
        ("RETRY_DELAY", "0", 0),
        ("CLAIM_TIMEOUT", "1", 1),
        ("SEND_CONCURRENCY", "256", 256),
        ("SEND_RATE", "10/s", 10.0),
        ("KEEP_TEXTS", "90d", timedelta(days=90)),
        ("KEEP_MESSAGES", " 2y ", timedelta(days=730)),
        ("KEEP_MESSAGES", "999y", timedelta(days=999 * 365)),
        ("KEEP_MESSAGES", "99999d", timedelta(days=99_999)),
        ("KEEP_TEXTS", "", None),
        ("SEND_RATE", " 90/min ", 1.5),
        ("SEND_RATE", "", None),
        ("CARRIER_TIMEOUT", "600", 600),
        ("SHUTDOWN_TIMEOUT", "1", 1),
        ("SHUTDOWN_TIMEOUT", "600", 600),
        ("EXPIRE_AFTER", "30m", timedelta(minutes=30)),
        ("EXPIRE_AFTER", "10d", timedelta(days=10)),
        ("CHECK_DNC", "always", "always"),
        ("CHECK_DNC", "asked", "asked"),
        ("ALLOWED_COUNTRIES", "us, CA,001", {"US", "CA", "001"}),
        ("ALLOW_PREMIUM_RATE", "true", True),
        ("KEY_LIMITS", "1000/d, 5/s", (("5/s", 5, 1), ("1000/d", 1000, 86_400))),
        ("RECIPIENT_LIMIT", "3/24h", ("3/24h", 3, 86_400)),
        ("PUBLIC_URL", "https://texts.example.com/staging/", "https://texts.example.com/staging"),
        ("SECRET_KEY", f" {'x' * 32} ", "x" * 32),
        ("LOG_LEVEL", "debug", "DEBUG"),
        ("LOG_FORMAT", "json", "JSON"),
        ("CARRIER_URL", " console: ", "console:"),
        ("CARRIER_URL", "", None),
        ("METRICS_TOKEN", "", None),
        ("METRICS_TOKEN", "x" * 16, "x" * 16),
        *(("DATABASE_URL", url, url) for url in SEVERAL_HOSTS),
    ],
)
def test_a_value_is_read(name, text, value, loaded):
    assert getattr(loaded(**{name: text}), name.lower()) == value


REFUSED = {
    "BUSINESS_HOURS": ["", "9-5", "9:00-17:00", "09:00-09:00", "09:60-17:00", "٠٩:٠٠-17:00"],
    "BUSINESS_DAYS": ["", "monday", "mon-", "mon,,tue", "0-4", "-", ","],
    "MAX_MESSAGE_LENGTH": ["", "0", "-1", "65537", "1e3", "１６", "1 600"],
    "MAX_RETRIES": ["-1", "101", "3.0", "true", "9" * 5000],
    "RETRY_DELAY": ["-1", "86401", "60s", "nan"],
    "CLAIM_TIMEOUT": ["0", "86401", "inf"],
    "SEND_CONCURRENCY": ["0", "257", "0x10"],
    "SEND_RATE": ["0/s", "5", "5/h", "-1/s", "1e9/s", "5/s,5/s", "1.5/s", "٣/s"],
    "CARRIER_TIMEOUT": ["0", "601", "1.5"],
    "SHUTDOWN_TIMEOUT": ["0", "601", "1.5"],
    "EXPIRE_AFTER": ["", "72", "0h", "-1d", "1w", "100000h", "٣d"],
    "CHECK_DNC": ["", "true"],
    "SKIP_HOLIDAYS": ["", "1"],
    "ALLOW_PREMIUM_RATE": ["", "yes", "1"],
    "KEY_LIMITS": ["0/s", "5", "5/year", "-1/s", "1e9/s", "5/s,5/s"],
    "RECIPIENT_LIMIT": ["3", "3/24s", "0/24h", "3/h", "3/24h,1/1h"],
    "ALLOWED_COUNTRIES": [",", "US,,CA", "US,", "U", "USAX", "US;CA", "+1", "ＵＳ"],
    "PUBLIC_URL": [
        *("texts.example.com", "ftp://s3cret", "https://a?b"),
        *(f"https://{host}" for host in ("u:s3cret@h", "[x", "h:99999", ":", "h:x")),
    ],
    "LOG_LEVEL": ["", "loud", "10", "INFO "],
    "LOG_FORMAT": ["", "xml"],
    "DATABASE_URL": [
        *("", "s3cret", "sqlite:", "sqlite://", "sqlite:///", "sqlite://s3cret.db"),
        *("SQLite:///x", " sqlite:///x", "sqlite:///messages.db?mode=ro"),
        *("mysql://u:s3cret@h/d", "http://s3cret", "/s3cret", "postgresql://u:s3cret%ZZ@h/d"),
        *("postgresql://u:s3@cret@h/d", "postgresql://u:s3/cret@h/d"),
        *("postgresql://u:53/s3cret@h/d", "postgresql://u:s3#@cret@h/d"),
        *("postgresql://u:s3cret@h:0/d", "postgresql://u:s3cret@h:65536/d"),
        *("postgresql://u:s3cret@[::1/d", "postgresql://u:s3cret@h/d?ssl_mode=disable"),
    ],
}


@pytest.mark.parametrize(
    ("name", "text"),
    [(name, text) for name, texts in REFUSED.items() for text in texts],
    ids=lambda text: text[:40],
)
def test_a_value_that_cannot_be_used_is_refused_and_not_repeated(name, text, loaded):
    with pytest.raises(SettingsError) as refusal:
        loaded(**{name: text})
    line = str(refusal.value)
    assert line.startswith(f"{name}: must be ")
    assert "\n" not in line
    assert len(line) < 200
    assert "s3cret" not in line
    assert "cret" not in line


@pytest.mark.parametrize("password", ["s3@cret", "s3/cret", "s3 cret", "s3cret%", "s3:c/ret"])
def test_a_password_as_it_is_is_told_to_be_percent_encoded(password, loaded):
    with pytest.raises(SettingsError, match=r"percent-encode special characters \(@ is %40\)$"):
        loaded(DATABASE_URL=f"postgresql://u:{password}@h/d")
    url = f"postgresql://u:{quote(password, safe='')}@h/d"
    assert loaded(DATABASE_URL=url).database_url == url


DAYS = "mon, tue, wed, thu, fri, sat, sun"
TIMES = "must be times from 00:00 to 24:00, the first before 24:00"
FORM = "must be an opening and a closing time, like 09:00-17:00"
ORDER = "must be an opening and a later closing time of the same day"
NO_DAY = f"entry 1 must begin with one day or range of {DAYS}"
NO_HOURS = "entry 1 must have a space and hours after the days, like sat 10:00-14:00"
QUIET = "must be a start and an end, like 21:00-08:00"
NO_QUIET_DAY = f"entry 1 must begin with one day or range of {DAYS}, or holidays"
NO_QUIET = "entry 1 must have a space and hours after the days, like sat 21:00-12:00"
DIFFERENT = "must start and end at different times"


ONE_EACH = "must be one opening and one closing time, or name the days"
NO_DAYS = "entry 2 must begin with days, like mon-fri 09:00-17:00"
ONE_QUIET = "must be one start and one end, or name the days"
NO_QUIET_DAYS = "must begin with days, like sun-fri 21:00-09:00"
WRONG_HOURS = {
    "17:00-09:00": ORDER,
    "09:00-25:00": TIMES,
    "09:00-12:00, 13:00-17:00": ONE_EACH,
    "mon-fri": NO_HOURS,
    "mon-fri09:00-17:00": NO_HOURS,
    "local 09:00-17:00": NO_DAY,
    "mon-fry 09:00-17:00": NO_DAY,
    "mon- 09:00-17:00": NO_DAY,
    "mon 22:00-02:00": f"the hours of entry 1 {ORDER}",
    "mon 09:00-24:30": f"the hours of entry 1 {TIMES}",
    "mon 09:00-17:00; sat 10:00-14:00": f"the hours of entry 1 {FORM}",
    "mon-fri 09:00-17:00, fri 10:00-14:00": "entry 2 must not repeat fri",
    "mon-fri 09:00-17:00, 10:00-14:00": NO_DAYS,
    "mon-fri 09:00-17:00,": NO_DAYS,
}
WRONG_QUIET_HOURS = {
    "21:00": QUIET,
    "21:00-08:60": QUIET,
    ",": ONE_QUIET,
    "21:00-08:00, 12:00-13:00": ONE_QUIET,
    "21:00-21:00": DIFFERENT,
    "9pm-8am": f"entry 1 {NO_QUIET_DAYS}",
    "sun 21:00-09:00, 22:00-06:00": f"entry 2 {NO_QUIET_DAYS}",
    "none 21:00-09:00": NO_QUIET_DAY,
    "mon-holidays 21:00-09:00": NO_QUIET_DAY,
    "holidays-mon 21:00-09:00": NO_QUIET_DAY,
    "holidays": NO_QUIET,
    "mon 21:00": f"the hours of entry 1 {QUIET}",
    "mon 21:00-21:00": f"the hours of entry 1 {DIFFERENT}",
    "fri-sun 21:00-09:00, sat 21:00-12:00": "entry 2 must not repeat sat",
    "holidays 00:00-24:00, holidays 00:00-12:00": "entry 2 must not repeat holidays",
    "24:00-08:00": TIMES,
}


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        *(("BUSINESS_HOURS", *each) for each in WRONG_HOURS.items()),
        *(("QUIET_HOURS", *each) for each in WRONG_QUIET_HOURS.items()),
        ("SKIP_HOLIDAYS", "yes", "must be one of true, false"),
        ("CHECK_DNC", "yes", "must be one of always, opted-out, asked"),
        ("SECRET_KEY", f" {'x' * 31} ", "must have at least 32 characters, chosen at random"),
        ("METRICS_TOKEN", "x" * 15, "must have at least 16 characters, chosen at random"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_mistake(name, text, problem, loaded):
    with pytest.raises(SettingsError) as refusal:
        loaded(**{name: text})
    assert str(refusal.value) == f"{name}: {problem}"


NAMED_DAYS = "must not be set, because BUSINESS_HOURS names the days"
TOO_SHORT = "must not be shorter than the window of RECIPIENT_LIMIT"


@pytest.mark.parametrize(
    ("problem", "variables"),
    [
        *(
            (NAMED_DAYS, {"BUSINESS_DAYS": days, "BUSINESS_HOURS": "mon 09:00-17:00"})
            for days in ("mon-fri", "local", "")
        ),
        (TOO_SHORT, {"KEEP_TEXTS": "2d", "RECIPIENT_LIMIT": "3/49h"}),
        (TOO_SHORT, {"KEEP_MESSAGES": "2d", "RECIPIENT_LIMIT": "3/49h"}),
    ],
)
def test_settings_that_contradict_each_other_are_refused_beside_other_problems(
    problem, variables, loaded
):
    assert loaded(KEEP_TEXTS="2d", KEEP_MESSAGES="2d", RECIPIENT_LIMIT="3/48h")
    with pytest.raises(SettingsError) as refusal:
        loaded(**variables, LOG_LEVEL="loud")
    first, other = str(refusal.value).splitlines()
    assert first == f"{next(iter(variables))}: {problem}"
    assert other.startswith("LOG_LEVEL: ")


def test_all_problems_are_reported_at_once(loaded):
    with pytest.raises(SettingsError) as refusal:
        loaded(**BAD)
    lines = str(refusal.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == list(BAD)
    assert "s3cret" not in str(refusal.value)


def test_a_file_named_env_is_read_and_the_environment_wins(loaded, tmp_path):
    (tmp_path / ".env").write_text(
        "# a comment\r\nMAX_RETRIES=7\r\nexport RETRY_DELAY='8'\r\n\r\nCLAIM_TIMEOUT = 9 # s\r\n"
    )
    settings = loaded(MAX_RETRIES="5")
    assert (settings.max_retries, settings.retry_delay, settings.claim_timeout) == (5, 8, 9)


def test_a_file_named_env_above_is_not_read(loaded, tmp_path, monkeypatch):
    (tmp_path / ".env").write_text("MAX_RETRIES=7")
    (tmp_path / "inner").mkdir()
    monkeypatch.chdir(tmp_path / "inner")
    assert loaded().max_retries == 3


def test_a_file_named_env_that_cannot_be_read_is_a_problem(loaded, tmp_path):
    (tmp_path / ".env").write_bytes(b"\xff\xfeA\0=\0")
    with pytest.raises(SettingsError, match=rf"^{tmp_path}/\.env: cannot be read"):
        loaded()


OF_OTHER_PROGRAMS = (
    *("HOST", "LOGNAME", "PUBLIC_KEY", "SECRET", "JWT_SECRET_KEY", "CI_LOG_LEVEL", "BASE_URL"),
    *("DATABASE_PUBLIC_URL", "DATABASE_PRIVATE_URL", "TEST_DATABASE_URL", "AWS_SECRET_KEY"),
    *("RAILWAY_PUBLIC_DOMAIN", "RENDER_EXTERNAL_URL", "SSL_CERT_FILE", "FLASK_APP"),
)


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        *(("CARIER_URL", "CARRIER_URL"), ("SEND_CONCURENCY", "SEND_CONCURRENCY")),
        *(("carrier_url", "CARRIER_URL"), ("BUSINESS_HOUR", "BUSINESS_HOURS")),
        *(("DATABASE_URI", "DATABASE_URL"), ("WEB_CONCURENCY", "WEB_CONCURRENCY")),
        *((name, None) for name in OF_OTHER_PROGRAMS),
    ],
)
def test_a_misspelt_setting_is_named_with_the_one_it_resembles(name, setting, loaded, caplog):
    loaded(**{name: "s3cret"})
    warn_of_misspelt()
    words = f"{name} is not a setting; did you mean {setting}?"
    assert caplog.messages == ([words] if setting else [])


def test_in_a_file_named_env_a_name_may_be_less_similar(loaded, tmp_path, caplog):
    (tmp_path / ".env").write_text("CARRIER=console:\nMAX_RETRY=1\nTZ=UTC\nLOG_FILE=x\n")
    loaded(POSTGRES_PASSWORD="x")
    warn_of_misspelt()
    assert caplog.messages == [
        "CARRIER is not a setting; did you mean CARRIER_URL?",
        "MAX_RETRY is not a setting; did you mean MAX_RETRIES?",
    ]
    for name in ("CARRIER", "MAX_RETRY", "TZ", "LOG_FILE"):
        os.environ.pop(name)


@pytest.mark.parametrize(
    "host", ["DYNO", "RENDER", "RAILWAY_ENVIRONMENT", "FLY_APP_NAME", "K_SERVICE"]
)
def test_a_host_with_an_ephemeral_disk_needs_a_database(host, loaded):
    with pytest.raises(
        SettingsError, match=r"^DATABASE_URL: must be set: this host loses its files"
    ):
        loaded(**{host: "x"})
    assert (
        loaded(**{host: "x", "DATABASE_URL": "postgresql:///d"}).database_url == "postgresql:///d"
    )


@pytest.mark.parametrize(("port", "workers"), [("0", "0"), ("65536", "1001"), ("８０", "two")])
def test_gunicorns_own_settings_are_read_as_strictly(port, workers, start, tmp_path):
    (tmp_path / "cwd").mkdir()
    # gunicorn itself reads only the environment
    (tmp_path / "cwd" / ".env").write_text(f"PORT={port}\nWEB_CONCURRENCY={workers}\n")
    process = start("gunicorn", "-c", ROOT / "gunicorn.conf.py", "app:create_app()")
    assert process.wait() == 1
    assert [line.partition(": must be ")[0] for line in process.output.splitlines()] == [
        *("PORT", "WEB_CONCURRENCY")
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["flask", "keys", "list"],
        ["gunicorn", "-c", ROOT / "gunicorn.conf.py", "app:create_app()"],
        ["scheduler.py"],
    ],
    ids=lambda words: words[0],
)
def test_every_process_stops_with_these_lines(words, start):
    process = start(*words, **BAD)
    assert process.wait() == 1
    lines = process.output.splitlines()
    assert [line.partition(":")[0] for line in lines] == list(BAD)
    assert "s3cret" not in process.output


def test_a_misspelt_carrier_is_refused_with_the_one_it_resembles(start):
    process = start("scheduler.py", CARRIER_URL="Twillio://AC5:s3cret@+15005550006")
    assert process.wait() == 1
    assert process.output == "CARRIER_URL: Twillio is not a carrier; did you mean twilio?\n"


@pytest.mark.parametrize("words", [["scheduler.py"], ["flask", "check"]], ids=" ".join)
def test_a_mistyped_carrier_stops_the_start_and_is_not_repeated(words, start):
    mistyped = r"Twilio:/AC5:s3cret@+15005550006?base_url=http://127.0.0.1 smpp:\\u:s3cret@h/FROM"
    hidden = "webhook+https://127.0.0.1/?secret=s3cret nonsense#name=other"
    process = start(*words, CARRIER_URL=f"{mistyped} {hidden}")
    assert process.wait() == 1
    lines = process.output.splitlines()
    told = [f"CARRIER_URL: carrier {number}: not the URL of a carrier" for number in (1, 2, 4)]
    assert [line.partition(": console:")[0] for line in lines] == told
    assert not any(word in process.output for word in ("s3cret", "AC5", "ac5", "nonsense"))


def test_a_process_reads_the_file_beside_it(start, tmp_path):
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / ".env").write_text("DATABASE_URL=sqlite:///here.db\n")
    assert start("flask", "db", "upgrade").wait() == 0
    assert (tmp_path / "cwd" / "here.db").exists()
    assert start("flask", "db", "upgrade", DATABASE_URL="sqlite:///there.db").wait() == 0
    assert (tmp_path / "cwd" / "there.db").exists()


@pytest.fixture
def reach():
    """Connect to a database by its URL and query it; return the connection."""

    def ask(url):
        database.connect(url)
        assert database.db.execute_sql("SELECT 1").fetchone() == (1,)
        return database.db.connection()

    yield ask
    database.disconnect()


@pytest.mark.parametrize("path", ["relative.db", "a b/ü.db", "per%20cent#.db"])
@pytest.mark.parametrize("absolute", [True, False])
def test_a_path_to_sqlite_is_taken_as_it_stands(path, absolute, loaded, reach, tmp_path):
    (tmp_path / path).parent.mkdir(exist_ok=True)
    url = f"sqlite:///{tmp_path / path if absolute else path}"
    assert ("////" in url) == absolute
    (tmp_path / path).touch()
    reach(loaded(DATABASE_URL=url).database_url).execute("CREATE TABLE t (id)")
    assert (tmp_path / path).stat().st_size


@pytest.fixture
def role(postgres):
    """A role whose password has every special character of URLs: its name and its password."""
    name, password = "tms_special", "p@ss:w/o?r#d[]%&= ü'\"\\+$"
    with contextlib.closing(psycopg.connect(postgres, autocommit=True)) as connection:
        (hba,) = connection.execute("SHOW hba_file").fetchone()
        if os.access(hba, os.W_OK):  # the tests' own server trusts all other roles
            rules = Path(hba).read_text()
            Path(hba).write_text(f"local all {name} scram-sha-256\n{rules}")
            connection.execute("SELECT pg_reload_conf()")
        literal = psycopg.sql.Literal(password)
        connection.execute(
            psycopg.sql.SQL(f"CREATE ROLE {name} LOGIN PASSWORD {{}}").format(literal)
        )
        yield name, password
        connection.execute(f"DROP ROLE {name}")


def test_a_percent_encoded_password_opens_postgres(postgres, role, loaded, reach):
    name, password = role
    known = psycopg.conninfo.conninfo_to_dict(postgres)
    where = f"host={quote(known['host'], safe='')}&port={known.get('port', 5432)}"
    url = "postgres://{}:{}@/{}?" + where
    good = loaded(DATABASE_URL=url.format(name, quote(password, safe=""), known["dbname"]))
    connection = reach(good.database_url)
    assert connection.info.user == name
    assert connection.info.password == password
    with pytest.raises(peewee.OperationalError, match="password"):
        reach(url.format(name, quote(password[:-1], safe=""), known["dbname"]))


def test_a_socket_folder_can_stand_for_the_host(postgres, loaded, reach):
    known = psycopg.conninfo.conninfo_to_dict(postgres)
    if not known["host"].startswith("/"):
        pytest.skip("TEST_DATABASE_URL names no socket")
    url = f"postgresql://{known['user']}@{quote(known['host'], safe='')}/{known['dbname']}"
    assert reach(loaded(DATABASE_URL=url).database_url).info.host == known["host"]
