"""QUIET_HOURS_FILE: read once, at the start; what is wrong in it stops the start, a line each."""

import pytest

from app import create_app
from texting.recipients.weeks import HOLIDAYS
from texting.settings import SettingsError, os
from texting.settings import load as load_settings

UNKNOWN = (
    "is no country with telephone numbers, nor a state or province of the United States or Canada"
)
FORM = "must be a start and an end, like 21:00-08:00"
DIFFERENT = "must start and end at different times"
NO_DAY = (
    "entry 1 must begin with one day or range of mon, tue, wed, thu, fri, sat, sun, or holidays"
)


@pytest.fixture
def load(loaded, tmp_path):
    """Load the settings with a file of these bytes or lines."""

    def read(text, **variables):
        written = text if isinstance(text, bytes) else text.encode()
        (tmp_path / "quiet.toml").write_bytes(written)
        return loaded(QUIET_HOURS_FILE=" quiet.toml ", **variables)

    return read


def test_each_line_is_read_as_quiet_hours_are(load):
    text = """
    # a comment
    FR = "sat-sun 00:00-24:00, holidays 00:00-24:00"
    US-TX = "21:00-08:00"  # another
    "CA-QC" = "none"
    """
    assert load(text).quiet_hours_file == {
        "FR": {5: (0, 1440), 6: (0, 1440), HOLIDAYS: (0, 1440)},
        "US-TX": (1260, 480),
        "CA-QC": None,
    }
    assert load("").quiet_hours_file == {}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        *((f'{place} = "21:00-08:00"', f"{place}: {UNKNOWN}") for place in ("XX", "AQ")),
        *((f'{place} = "21:00-08:00"', f"{place}: {UNKNOWN}") for place in ("US-PR", "US-XX")),
        *((f'{place} = "21:00-08:00"', f"{place}: {UNKNOWN}") for place in ("GB-SCT", "fr")),
        *((f'{place} = "21:00-08:00"', f"{place}: {UNKNOWN}") for place in ("US-tx", "Texas")),
        ('"F\\nR" = "21:00-08:00"', f"'F\\nR': {UNKNOWN}"),
        ('"" = "21:00-08:00"', f"'': {UNKNOWN}"),
        *(
            (f'{code} = "21:00-08:00"', f"{code}: {UNKNOWN} (did you mean {meant}?)")
            for code, meant in (("USA", "US"), ("UK", "GB"))
        ),
        ('SECRET_KEY = "s3cret"', f"SECRET_KEY: {UNKNOWN}"),
        ('FR = ""', f"FR: {FORM}"),
        ('FR = "21-8"', f"FR: {FORM}"),
        ('FR = "never"', f"FR: {NO_DAY}"),
        ('FR = "none, sun 00:00-24:00"', f"FR: {NO_DAY}"),
        ('FR = "sun 21:00-21:00"', f"FR: the hours of entry 1 {DIFFERENT}"),
        ('FR = "sun 1:00-2:00, sun 1:00-2:00"', f"FR: the hours of entry 1 {FORM}"),
        ('FR = "sun 01:00-02:00, sat-sun 01:00-02:00"', "FR: entry 2 must not repeat sun"),
        ("FR = 2100", 'FR: must be a text, like "21:00-08:00"'),
        ("FR = 21:00:00", 'FR: must be a text, like "21:00-08:00"'),
        ('FR = ["21:00-08:00"]', 'FR: must be a text, like "21:00-08:00"'),
        ('[US]\nTX = "21:00-08:00"', 'US: must be a text, like "21:00-08:00"'),
        ('US.TX = "21:00-08:00"', 'US: must be a text, like "21:00-08:00"'),
        ("FR", "FILE is not TOML, at end of document"),
        ("FR = 21:00-08:00", "FILE is not TOML, at line 1, column 8"),
        ("[" * 5_000, "FILE is not TOML, at line 1, column 3"),
        ("FR = " + "[" * 50_000, "FILE is nested too deeply"),
        ('FR = "none"\n DE="none"\n"FR"= "none" # again', "FILE is not TOML, at line 3, column 13"),
        ('FR = "none"\n\nFR = "none"\n=', "FILE is not TOML, at line 3, column 12"),
        (b'\xff\xfeFR = "none"', "FILE cannot be read (UnicodeDecodeError)"),
        (b'FR = "no\0ne"', "FILE is not TOML, at line 1, column 9"),
    ],
)
def test_a_line_that_cannot_be_used_stops_the_start_in_one_line(line, problem, load, tmp_path):
    with pytest.raises(SettingsError) as refusal:
        load(line)
    named = problem.replace("FILE", f"{tmp_path}/quiet.toml")
    assert str(refusal.value) == f"QUIET_HOURS_FILE: {named}"
    assert "s3cret" not in str(refusal.value)


def test_each_wrong_line_is_a_line_beside_those_of_other_variables(load):
    with pytest.raises(SettingsError) as refusal:
        load('XX = "none"\nFR = "none"\nDE = "x"', MAX_RETRIES="many")
    lines = str(refusal.value).splitlines()
    assert [": ".join(line.split(": ")[:2]) for line in lines] == [
        "QUIET_HOURS_FILE: XX",
        "QUIET_HOURS_FILE: DE",
        "MAX_RETRIES: must be a whole number from 0 to 100",
    ]


@pytest.mark.parametrize("path", ["absent.toml", ".", "a\0b"])
def test_a_file_that_cannot_be_read_stops_the_start(path, load, monkeypatch):
    load("")
    if "\0" in path:  # which only a file named .env can hold
        monkeypatch.setitem(os.environ._data, b"QUIET_HOURS_FILE", path.encode())
    else:
        monkeypatch.setenv("QUIET_HOURS_FILE", path)
    with pytest.raises(SettingsError, match=r"^QUIET_HOURS_FILE: [^\n]*$"):
        load_settings()


def test_a_file_that_changes_is_read_at_the_start_only(load, settings, tmp_path):
    read = load('FR = "21:00-08:00"')
    (tmp_path / "quiet.toml").write_text("FR = ")
    assert create_app(read._replace(database_url=settings.database_url))


def test_a_scheduler_does_not_start_with_a_wrong_one_either(start, tmp_path):
    (tmp_path / "cwd").mkdir(exist_ok=True)
    (tmp_path / "cwd" / "quiet.toml").write_text('FR = "00:00-24:00"\nXX = ""')
    process = start("scheduler.py", QUIET_HOURS_FILE="quiet.toml")
    assert process.wait() == 1
    assert process.output == f"QUIET_HOURS_FILE: XX: {UNKNOWN}\n"
