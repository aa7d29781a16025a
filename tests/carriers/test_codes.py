"""What carriers' codes mean: the tables of codes and the errors of `send` agree."""

import contextlib

import pytest

from carrier_errors import connect, meaning, refused, send
from carrier_servers import playing
from kits import KITS, OURS, WITH_SERVER, codes_of

GROUPS = {"permanent": "for good", "too_fast": "too fast", "account": "the account"}


@pytest.mark.parametrize("name", WITH_SERVER)
def test_no_code_means_two_things(name):
    groups = [codes_of(name, group) for group in GROUPS]
    groups += [{*KITS[name].for_now}, {*KITS[name].in_doubt}]
    assert all(groups[:3])
    assert len(set().union(*groups)) == sum(map(len, groups))


@pytest.mark.parametrize(
    ("name", "code", "means"),
    [
        *(
            (
                name,
                code,
                "opted out"
                if means == "for good" and code in codes_of(name, "opted_out")
                else means,
            )
            for name in WITH_SERVER
            for group, means in GROUPS.items()
            for code in sorted(codes_of(name, group), key=str)
        ),
        *((name, code, "for now") for name in WITH_SERVER for code in KITS[name].for_now),
        *((name, code, "in doubt") for name in WITH_SERVER for code in KITS[name].in_doubt),
    ],
)
def test_a_text_is_refused_as_the_code_says(name, code, means):
    for server in playing(KITS[name].server):
        server.answer = KITS[name].answer(code)
        with contextlib.closing(connect(server.url)) as carrier:
            error = refused(carrier)
        assert meaning(error) == means
        assert str(code) in str(error) or f"0x{code:02X}" in str(error)


def of_countries(name):
    """Return the codes of the account that may be about the recipient's country."""
    return codes_of(name, "no_route") & codes_of(name, "account")


@pytest.mark.parametrize(
    ("name", "code"),
    [(name, code) for name in OURS for code in sorted(of_countries(name))],
)
def test_a_from_that_serves_others_does_not_reach_this_country(monkeypatch, name, code):
    """For ten minutes; then nothing tells that it serves anybody."""
    british, kit = "+447700900123", KITS[name]
    for server in playing(kit.server):
        server.answers[british] = kit.answer(code)
        carrier = connect(server.url)
        assert meaning(refused(carrier, british)) == "the account"
        send(carrier)
        error = refused(carrier, british)
        assert (meaning(error), error.no_route) == ("for now", True)
        monkeypatch.setattr("texting.carriers.http.RECENTLY", -1)
        send(carrier)
        assert meaning(refused(carrier, british)) == "the account"
        monkeypatch.undo()
        send(carrier)
        server.answer = kit.answer(min(codes_of(name, "account") - of_countries(name), key=str))
        assert meaning(refused(carrier)) == "the account"
