"""A request's problems are listed up to twenty, then counted, so that none costs much."""

import json

import pytest

from answers import accepted, problems
from samples import VALID

UNKNOWN = "is not a field of this request"


def unknown(count):
    return {f"field{n}": n for n in range(count)}


@pytest.mark.parametrize(
    ("count", "last"),
    [
        (1, f"field0: {UNKNOWN}"),
        (20, f"field19: {UNKNOWN}"),
        (21, "body: has 1 more problem"),
        (22, "body: has 2 more problems"),
        (2_000, "body: has 1980 more problems"),
    ],
)
def test_twenty_problems_are_listed_and_the_others_counted(post_bytes, count, last):
    found = problems(post_bytes(json.dumps(VALID | unknown(count)).encode()))
    assert len(found) == min(count, 21)
    assert found[:20] == [f"field{n}: {UNKNOWN}" for n in range(min(count, 20))], "as given"
    assert found[-1] == last


def test_the_known_fields_come_first(post_bytes):
    found = problems(post_bytes(json.dumps(unknown(50) | {"to": 1, "message": ""}).encode()))
    assert found[0] == "to: must be a string"
    assert found[1] == "message: must not be empty or only white space"
    assert found[2] == f"field0: {UNKNOWN}"
    assert found[-1] == "body: has 32 more problems"


def test_names_given_twice_are_counted_too(post_bytes):
    pairs = ",".join(f'"field{n}":1,"field{n}":2' for n in range(30))
    found = problems(post_bytes(f"{{{pairs}}}".encode()))
    assert found[:20] == [f"field{n}: is given twice" for n in range(20)]
    assert found[20:] == ["body: has 10 more problems"]


@pytest.mark.parametrize("body", ['{"%s":1}', '{"%s":1,"%s":1}'])
def test_a_long_name_is_not_repeated(post_bytes, body):
    name = "é" * 10_000
    response = post_bytes(body.replace("%s", name).encode())
    assert any(each.startswith(f"{'é' * 100}…: ") for each in problems(response))
    assert len(response.data) < 2_000
    (fits,) = problems(post_bytes(json.dumps(VALID | {"e" * 100: 1}).encode()))
    assert fits == f"{'e' * 100}: {UNKNOWN}"


def test_a_field_of_no_name_is_a_problem_and_a_valid_request_has_none(post_bytes):
    assert problems(post_bytes(json.dumps(VALID | {"": 1}).encode())) == [f": {UNKNOWN}"]
    accepted(post_bytes(json.dumps(VALID).encode()))
