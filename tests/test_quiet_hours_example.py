"""The example of docs/quiet-hours.md can be used as it is."""

import re
from datetime import UTC, datetime

import recipients
import settings as environment
from access.rules import Rules
from running import ROOT

PAGE = (ROOT / "docs/quiet-hours.md").read_text()


def test_the_example_loads_leaves_each_place_open_and_names_sources(monkeypatch, tmp_path):
    (example,) = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)
    monkeypatch.chdir(tmp_path)
    for name in environment.Settings._fields:
        monkeypatch.delenv(name.upper(), raising=False)
    (tmp_path / "quiet.toml").write_text(example)
    monkeypatch.setenv("QUIET_HOURS_FILE", "quiet.toml")
    monkeypatch.setenv("QUIET_HOURS", "21:00-08:00")
    settings = environment.load()
    assert len(settings.quiet_hours_file) >= 20
    now = datetime(2026, 11, 24, tzinfo=UTC)
    assert Rules.from_settings(settings).never_open(now, None) == []
    lines = [line for line in example.splitlines() if not line.startswith("#")]
    unsourced = [line for line in lines if "#" not in line]
    assert unsourced == [line for line in lines if line[:3] in ("US ", "CA ")]  # on the line before
    assert re.search(r"read the rules on \d{4}-\d\d-\d\d", PAGE)
    assert "counsel has the last word" in PAGE


def test_no_law_is_a_default(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in environment.Settings._fields:
        monkeypatch.delenv(name.upper(), raising=False)
    rules = Rules.from_settings(environment.load())
    assert rules.quiet.are_none
    assert rules.hours(recipients.find("+12142345678")).quiet == ()
