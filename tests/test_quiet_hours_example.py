"""The example of docs/quiet-hours.md can be used as it is."""

import re
from datetime import UTC, datetime

import pytest

from running import ROOT
from texting import recipients
from texting.access.rules import Rules

PAGE = (ROOT / "docs/quiet-hours.md").read_text()


EXAMPLE, STRICT = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.M | re.S)

STATUTES = [
    # A number of the place, its local time, whether an advertisement may leave, the rule
    ("+12125550123", "2026-03-04 07:59", False, "47 CFR 64.1200(c)(1): 8 to 21"),
    ("+12125550123", "2026-03-04 08:00", True, ""),
    ("+12125550123", "2026-03-04 20:59", True, ""),
    ("+12125550123", "2026-03-04 21:00", False, ""),
    ("+18605550123", "2026-03-04 08:59", False, "Conn. Gen. Stat. 42-288a: 9 to 20"),
    ("+18605550123", "2026-03-04 20:00", False, ""),
    ("+13055550123", "2026-03-04 20:00", False, "Fla. Stat. 501.616: 8 to 20"),
    ("+15025550123", "2026-03-04 09:59", False, "KRS 367.46955: 10 to 21"),
    ("+15045550123", "2026-03-08 12:00", False, "La. R.S. 45:811: no Sunday"),
    ("+15045550123", "2026-03-09 08:00", True, ""),
    ("+13015550123", "2026-03-04 20:00", False, "Md. Com. Law 14-4501: 8 to 20"),
    ("+14055550123", "2026-03-04 20:00", False, "15 O.S. 775C.4: 8 to 20"),
    ("+15035550123", "2026-03-04 07:59", False, "Oregon HB 3865: 8 to 20"),
    ("+15035550123", "2026-03-04 08:00", True, ""),
    ("+15035550123", "2026-03-04 19:59", True, ""),
    ("+15035550123", "2026-03-04 20:00", False, ""),
    ("+14015550123", "2026-03-04 08:59", False, "R.I. Gen. Laws 5-61-2: Monday to Friday 9 to 18"),
    ("+14015550123", "2026-03-04 09:00", True, ""),
    ("+14015550123", "2026-03-04 17:59", True, ""),
    ("+14015550123", "2026-03-04 18:00", False, ""),
    ("+14015550123", "2026-03-07 09:59", False, "Saturday 10 to 17"),
    ("+14015550123", "2026-03-07 10:00", True, ""),
    ("+14015550123", "2026-03-07 17:00", False, ""),
    *[("+14015550123", f"2026-03-08 {hour:02}:30", False, "no Sunday") for hour in range(24)],
    ("+14015550123", "2026-03-09 08:59", False, ""),
    ("+14015550123", "2026-03-09 09:00", True, ""),
    ("+14015550123", "2026-11-26 12:00", False, "no federal holiday: Thanksgiving"),
    ("+18015550123", "2026-03-07 20:59", True, "Utah Code 13-25a-103(3): 8 to 21"),
    ("+18015550123", "2026-03-07 21:00", False, ""),
    *[("+18015550123", f"2026-03-08 {hour:02}:30", False, "no Sunday") for hour in range(24)],
    ("+18015550123", "2026-03-09 07:59", False, ""),
    ("+18015550123", "2026-03-09 08:00", True, ""),
    ("+18015550123", "2026-07-03 12:00", False, "no legal holiday: July 4 is a Saturday"),
    ("+12145550123", "2026-03-08 11:59", False, "Tex. Bus. & Com. Code 301.051: Sunday from 12"),
    ("+12145550123", "2026-03-08 12:00", True, ""),
    ("+12065550123", "2026-03-04 20:00", False, "RCW 80.36.390: 8 to 20"),
    ("+12055550123", "2026-03-04 20:00", False, "a vendor of Alabama: 8 to 20"),
    ("+12055550123", "2026-03-08 12:00", False, "no Sunday"),
    ("+12055550123", "2026-11-26 12:00", False, "no holiday"),
    ("+12055550123", "2026-03-09 08:00", True, ""),
    ("+16015550123", "2026-03-08 12:00", False, "of Mississippi: no Sunday"),
    ("+16015550123", "2026-11-26 12:00", True, "holidays as other days"),
    ("+16175550123", "2026-03-04 20:00", False, "of Massachusetts: 8 to 20"),
    ("+17025550123", "2026-03-04 08:59", False, "of Nevada: 9 to 20"),
    ("+17025550123", "2026-03-04 20:00", False, ""),
    *[
        each
        for number in ("+13135550123", "+16125550123", "+15055550123")
        for each in (
            (number, "2026-03-04 08:59", False, "of Michigan, Minnesota, New Mexico: 9 to 21"),
            (number, "2026-03-04 09:00", True, ""),
            (number, "2026-03-04 21:00", False, ""),
        )
    ],
    ("+12155550123", "2026-11-26 12:00", False, "of Pennsylvania: no holiday"),
    ("+12155550123", "2026-03-07 12:00", False, "Saturday 8 to 12"),
    ("+12155550123", "2026-03-08 12:00", True, ""),
    ("+33142685300", "2026-03-04 21:29", True, "af2m: 8 to 21:30"),
    ("+33142685300", "2026-03-04 21:30", False, ""),
    ("+16713001234", "2026-03-04 07:59", False, "the federal rule in Guam"),
    ("+16713001234", "2026-03-04 08:00", True, ""),
    ("+13406421234", "2026-03-04 21:00", False, "the Virgin Islands"),
    ("+16846221234", "2026-03-04 21:00", False, "American Samoa"),
    ("+16702345678", "2026-03-04 21:00", False, "the Northern Marianas"),
    ("+17872345678", "2026-03-04 21:00", False, "Puerto Rico"),
    ("+18005550199", "2026-03-08 17:00", False, "toll-free: wherever it is, as in Louisiana"),
]


@pytest.fixture
def read(loaded, tmp_path):
    """Load settings with a QUIET_HOURS_FILE of this text."""

    def write(text, **variables):
        (tmp_path / "quiet.toml").write_text(text)
        return loaded(QUIET_HOURS_FILE="quiet.toml", **variables)

    return write


@pytest.fixture
def rules(read):
    """Return the rules that a QUIET_HOURS_FILE makes."""
    return lambda text: Rules.from_settings(read(text))


def may_leave(rules, number, local):
    recipient = recipients.find(number)
    at = datetime.fromisoformat(local).replace(tzinfo=recipient.zone).astimezone(UTC)
    return rules.hours(recipient).quiet_time(recipient.clocks, at) is None


def test_the_example_keeps_to_the_statutes(rules):
    example = rules(EXAMPLE)
    wrong = [each for each in STATUTES if may_leave(example, *each[:2]) is not each[2]]
    assert wrong == []


def test_the_strict_line_is_at_least_as_strict_but_for_what_the_page_names(rules):
    strict = rules(STRICT)
    named = ("+1504", "+1401", "+1801", "+1502", "+1800", "+1205", "+1601", "+1215")
    forbidden = [each for each in STATUTES if not each[2] and each[0].startswith("+1")]
    of_states = [each for each in forbidden if recipients.find(each[0]).country == "US"]
    laxer = {each[0][:5] for each in of_states if may_leave(strict, *each[:2])}
    assert laxer <= {*named}


def test_the_example_loads_and_names_sources(read):
    settings = read(EXAMPLE, QUIET_HOURS="21:00-08:00")
    assert len(settings.quiet_hours_file) >= 20
    lines = [line for line in EXAMPLE.splitlines() if not line.startswith("#")]
    unsourced = [line for line in lines if "#" not in line]
    before = ("US ", "CA ", "PR ", "GU ", "VI ", "AS ", "MP ")  # theirs is on a line before
    assert unsourced == [line for line in lines if line.startswith(before)]
    assert re.search(r"read the rules on \d{4}-\d\d-\d\d", PAGE)
    assert "counsel has the last word" in PAGE


def test_no_law_is_a_default(loaded):
    rules = Rules.from_settings(loaded())
    assert rules.quiet.are_none
    assert rules.hours(recipients.find("+12142345678")).quiet == ()
