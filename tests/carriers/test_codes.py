"""What carriers' codes mean: the docs, the tables of codes and the errors of `send` agree."""

import contextlib
import re

import pytest

import carriers
from carrier_errors import connect, meaning, refused, send
from carrier_servers import Answer, refusal, verdict
from carriers import apprise, pdus, twilio, vonage, webhook
from carriers.http import STATUSES
from running import ROOT

CODES = {
    "Twilio": twilio.Twilio.codes,
    "Vonage": vonage.Vonage.codes,
    "SMPP": pdus.CODES,
    "webhook": webhook.Webhook.codes,
    "Apprise": apprise.CODES,
}
WITH_STATUSES = ("Twilio", "Vonage")  # a status of HTTP counts where there is no code
GROUPS = {"for_good": "for good", "too_fast": "too fast", "account": "the account"}
DOCS = (ROOT / "docs" / "carriers.md").read_text()


def codes_of(name, group):
    """Return a carrier's codes of one meaning as numbers, and its statuses of HTTP."""
    statuses = getattr(STATUSES, group) if name in WITH_STATUSES else ()
    return {*map(int, getattr(CODES[name], group)), *statuses}


@pytest.mark.parametrize("name", CODES)
def test_the_docs_sort_a_carriers_answers_as_it_does(name):
    for_good, too_fast, account = (codes_of(name, group) for group in GROUPS)
    (row,) = re.findall(rf"^\| {name} \|(.*?)\|(.*?)\|(.*?)\|.*\|$", DOCS, re.MULTILINE)
    row = [re.sub("401 to 404", "401, 402, 403, 404", cell) for cell in row]
    described = [{int(code, 0) for code in re.findall(r"0x\w+|\d+", cell)} for cell in row]
    if "and the like" in row[0]:  # Twilio has hundreds
        assert described[0] <= for_good
        assert described[2] <= account
        for_good, account = described[0], described[2]
    assert described == [for_good, too_fast, account]


@pytest.mark.parametrize("name", CODES)
def test_no_code_means_two_things(name):
    groups = [codes_of(name, group) for group in GROUPS]
    assert len(set().union(*groups)) == sum(map(len, groups))


def answer(name, code):
    """Return the answer with a code, which is a status where the carrier has no others."""
    if name == "Twilio" and code not in range(100, 600):
        return refusal(code, 503 if code == 20503 else 400)
    if name == "Vonage" and code not in range(400, 600):
        return verdict({"status": str(code)})
    return Answer(code)


FOR_NOW = [
    *(("Twilio", code) for code in (21999, 20500, 20503, 301, 307, 400, 500, 503, 599)),
    *(("Vonage", code) for code in (2, 5, 10, 99, 400, 500, 503)),
    *(("SMPP", code) for code in (0x04, 0x08, 0x45, 0xFF, 0x400, 0xFFFFFFFF)),
    *(("webhook", code) for code in (301, 408, 500, 502, 503, 504)),
    *(("Apprise", code) for code in (400, 404, 408, 422, 500, 503)),
]


@pytest.mark.parametrize(
    ("name", "code", "means"),
    [
        *(
            (name, code, "opted out" if code == 21610 else means)
            for name in CODES
            for group, means in GROUPS.items()
            for code in sorted(codes_of(name, group))
        ),
        *((name, code, "for now") for name, code in FOR_NOW),
        *((name, code, "in doubt") for name in (*WITH_STATUSES, "Apprise") for code in (502, 504)),
    ],
)
def test_a_text_is_refused_as_the_code_says(request, name, code, means):
    server = request.getfixturevalue("peer" if name == "SMPP" else f"{name.lower()}_server")
    server.answer = code if name == "SMPP" else answer(name, code)
    with contextlib.closing(connect(server.url)) as carrier:
        error = refused(carrier)
    assert meaning(error) == means
    assert name != "SMPP" or not error.silent
    assert str(code) in str(error) or f"0x{code:02X}" in str(error)


@pytest.mark.parametrize("code", [21211, 21999, 0])
def test_a_429_is_too_fast_whatever_the_code(twilio_server, code):
    twilio_server.answer = refusal(code, 429)
    assert meaning(refused(connect(twilio_server.url))) == "too fast"


@pytest.mark.parametrize(
    ("kind", "of_country", "of_account"),
    [
        ("twilio_server", refusal(21606), refusal(20003, 401)),
        ("twilio_server", refusal(21703), refusal(20003, 401)),
        ("vonage_server", verdict({"status": "15"}), verdict({"status": "4"})),
    ],
)
def test_a_sender_that_serves_others_does_not_reach_this_country(
    request, monkeypatch, kind, of_country, of_account
):
    """For ten minutes; then nothing tells that it serves anybody."""
    server, british = request.getfixturevalue(kind), "+447700900123"
    server.answers[british] = of_country
    carrier = connect(server.url)
    assert meaning(refused(carrier, british)) == "the account"
    send(carrier)
    error = refused(carrier, british)
    assert (meaning(error), error.no_route) == ("for now", True)
    monkeypatch.setattr("carriers.http.RECENTLY", -1)
    send(carrier)
    assert meaning(refused(carrier, british)) == "the account"
    server.answer = of_account
    assert meaning(refused(carrier)) == "the account"


# Completeness


MODULES = {each.split(":")[0].split(".")[1] for each in carriers.OWN.values()} | {"apprise"}


def test_every_carrier_with_codes_is_in_these_tables():
    assert {name.lower() for name in CODES} == MODULES - {"console", "simulator"}


@pytest.mark.parametrize("name", sorted(MODULES))
def test_every_carrier_has_a_section_of_its_own(name):
    assert re.search(rf"^(## |`).*{name}", DOCS, re.MULTILINE | re.IGNORECASE)
