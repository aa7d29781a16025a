"""Bad input: a clear 400 that lists every problem, and nothing is stored."""

import contextlib
import json
import time

import pytest

from answers import PATH, problems, refusal
from samples import LONDON, NEW_YORK, VALID
from texting.messages.model import Message
from texting.web import bodies

TYPES = {
    "null": None,
    "a boolean": True,
    "one": 1,
    "zero": 0,
    "a fraction": 1.5,
    "a string": "true",
    "an empty string": "",
    "an array": ["+12125550123"],
    "an object": {"to": NEW_YORK},
}
RIGHT_TYPES = {
    "message": "a string",
    **dict.fromkeys(("manual_mode", "available_to_group", "check_dnc"), "a boolean"),
}
FIELDS = ["to", "message", "send_date", "manual_mode", "available_to_group", "check_dnc"]

# These requests query only the key. Those that might differ run on both databases.


@pytest.fixture(autouse=True)
def nothing_stored(database_url):
    """Check at the end of each test that nothing was stored."""
    yield
    assert Message.select().count() == 0


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_the_wrong_type_is_refused(field, post, subtests):
    for name, value in TYPES.items():
        if name != RIGHT_TYPES.get(field):
            with subtests.test(name):
                (problem,) = problems(post(**{field: value}))
                assert problem.startswith(f"{field}: must ")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"to": ...}, ["to: is required"]),
        ({"message": ...}, ["message: is required"]),
        ({"to": ..., "message": ...}, ["to: is required", "message: is required"]),
        ({"message": " \t\r\n\u3000\x1f"}, ["message: must not be empty or only white space"]),
        ({"Retry": 1}, ["Retry: is not a field of this request"]),
        ({"": 1}, [": is not a field of this request"]),
        ({"\ud800": 1}, ["\ud800: is not a field of this request"]),
        ({"_schema": 1}, ["_schema: is not a field of this request"]),
        ({"message_id": 1}, ["message_id: is not a field of this request"]),
    ],
)
def test_missing_empty_and_unknown_fields_are_refused(fields, expected, post):
    assert problems(post(**fields)) == expected


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        *(("sendDate", "send_date"), ("send-date", "send_date"), ("Send_date", "send_date")),
        *(("send_dat", "send_date"), ("sendAt", "send_date"), ("phone", "to"), ("To", "to")),
        *(("phone_number", "to"), ("text", "message"), ("body", "message"), ("mesage", "message")),
        *(("message ", "message"), ("manualMode", "manual_mode"), ("checkDnc", "check_dnc")),
        ("availableToGroup", "available_to_group"),
    ],
)
def test_a_field_by_another_name_is_refused_with_the_one_that_is_meant(given, meant, post):
    told = f"{given}: is not a field of this request; did you mean {meant}?"
    assert problems(post(**{given: "2126-01-01T00:00Z"})) == [told]


def test_every_problem_is_listed_at_once(post):
    listed = problems(
        post(
            *(None,),
            to="12125550123",
            message=" \0" * 1000,
            send_date="2020-01-01T00:00Z",
            manual_mode=1,
            available_to_group=None,
            check_dnc="yes",
            chek_dnc=True,
        )
    )
    assert [problem.partition(":")[0] for problem in listed] == [
        *("to", "message", "message", "send_date", "manual_mode", "available_to_group"),
        *("check_dnc", "chek_dnc"),
    ]


NO_NUMBERS = [
    *("2125550123", "\0+12125550123", "+1\x00212", "tel:+12125550123", "bob@example.com"),
    *("+１２１２５５５０１２３", "＋12125550123", "+١٢١٢٥٥٥٠١٢٣", "+1212555012३"),
    *("+12125550123x5", "+12125550123;ext=5", "+12125550123,,5", "+12125550123 ext. 5"),
    *("+1800FLOWERS", "+1-800-FLOWERS", "+1.2125550123e10", "++12125550123", "+0012125550123"),
    *("+112", "911", "+911", "+", "", "+0", "+" + "1" * 60_000, "1" * 10_000),
    *("+99912345678", "+11111111111", "+10005550123", "+121255501234", "+1212555012"),
    *("\ud800", "\u202a+12125550123\u202c"),
]
NOTATIONS = {
    NEW_YORK: [
        *("+1 212 555 0123", "+1 (212) 555-0123", "+1 212–555–0123", "+1(212)5550123"),
        *("+1\u00a0212\u00a0555\u00a00123", "+1.2125550123", "12125550123", "-12125550123"),
        *(" +12125550123", "+12125550123 ", "\n+12125550123", "+12125550123\n"),
    ],
    LONDON: ["+4402083661177", "+44 (0)20 8366 1177"],
}
"""How numbers are written that are in another notation than E.164, by their form in that."""


def test_a_to_that_is_no_number_is_refused_without_a_suggestion(post, subtests):
    for number in NO_NUMBERS:
        with subtests.test(ascii(number[:40])):
            (problem,) = problems(post(to=number))
            assert problem.startswith("to: ")
            assert ": +" not in problem


def test_a_number_in_another_notation_is_refused_with_its_e164_form(post, subtests):
    for form, written in NOTATIONS.items():
        for number in written:
            with subtests.test(number):
                plus = "" if number.strip()[0] in "+\uff0b" else ", with a plus sign before it"
                assert problems(post(to=number)) == [f"to: must be in E.164 format{plus}: {form}"]


NO_INSTANTS = [
    *("2126-02-29T12:00:00Z", "2126-04-31T12:00:00Z", "2126-13-01T00:00:00Z"),
    *("2126-01-01T25:00:00Z", "2126-01-01T12:60:00Z", "2126-01-01T12:00:61Z"),
    *("2126-01-01", "20260101", "T12:00:00Z", "12:00", "2126-W01-1", "2126-01-01T"),
    *("2126-01-01 12:00:00Z", "2126-01-01t12:00:00z", "2126-01-01T12:00:00 Z"),
    *("2126-01-01T12:00:00UTC", "2126-01-01T12:00:00+25:00", "2126-01-01T12:00:00Z+01:00"),
    *("2126-01-01T12:00:00[Europe/Paris]", "Tue, 03 Mar 2026 17:00:00 GMT", "4923000000"),
    *("2126-01-01T10.5Z", "2126-01-01T10:00.5Z", "2126-01-01T10,25+02:00"),  # of hours or minutes
    *("2126-01-01T10:00+05:75", "2126-01-01T10:00+05:30:60", "2126-01-01T1000.5Z"),
    *("tomorrow", "", " ", "2126-01-01T12:00:00Z\n", "２126-01-01T12:00:00Z", "2126-01-01T\0"),
    *("10000-01-01T00:00:00Z", "99999999999-01-01T00:00:00Z", "-2126-01-01T00:00:00Z"),
    *("9999-12-31T23:59:59-00:01", "9999-12-31T23:59:59.999-23:59", "0001-01-01T00:00+23:59"),
    *("1969-12-31T23:59:59.999Z", "2026-03-03T17:00:00Z", "2" * 60_000, "\ud800"),
]


def test_a_send_date_that_is_no_future_instant_is_refused(post, subtests):
    for text in NO_INSTANTS:
        with subtests.test(ascii(text[:40])):
            (problem,) = problems(post(send_date=text))
            assert problem.startswith("send_date: must ")


@pytest.mark.parametrize("text", ["a\0", "\0", "\ud800", "\udfff\ud800", "😀"[0] + "\ud83d"])
def test_a_text_that_no_database_can_store_is_refused(text, post):
    listed = problems(post(message=text))
    assert (
        "message: must not contain U+0000 or a lone surrogate, which no carrier can send" in listed
    )


NO_OBJECTS = [
    *(b"", b" ", b"\0", b"{", b"{}}", b'{"to"}', b"{'to': 1}", b"to=1&message=2", b"<a/>"),
    *(b"null", b"true", b"1", b'"text"', b"[]", b'[{"to": "+12125550123"}]', b"// {}\n{}"),
    *(b"NaN", b'{"to": NaN}', b"Infinity", b'{"to": -Infinity}', b'{"to": 1e999}', b"[01]"),
    *(b"[" * 60_000, b"[" * 30_000 + b"]" * 30_000, b'{"a":' * 10_000 + b"1" + b"}" * 10_000),
    *(b"9" * 5_000, b'{"message": ' + b"9" * 5_000 + b"}", b'{"to": -' + b"9" * 60_000 + b"}"),
    *(b'{"to": "a\nb"}', b'{"to": "\\x"}', b'{"to": "\\u12"}', b'{"to": "\xff"}', b"\xed\xa0\x80"),
    *(json.dumps(VALID).encode(each) for each in ("utf-16", "utf-16-le", "utf-32", "utf-8-sig")),
    b'{"to": "+12125550123", "message": "caf\xe9"}',
    b'{"to": "+12125550123", "message": "a", "message": "a"}',
    b'{"to": "+12125550123", "message": "a", "t\\u006f": "+12125550123"}',
    json.dumps(VALID).encode() * 2,
]


@pytest.mark.parametrize("idempotency", [{}, {"Idempotency-Key": "1"}], ids=["", "idempotent"])
def test_a_body_that_is_not_one_json_object_in_utf8_is_refused(idempotency, post_bytes, subtests):
    for body in NO_OBJECTS:
        with subtests.test(ascii(body[:40])):
            listed = problems(post_bytes(body, **idempotency))
            named = {problem.partition(":")[0] for problem in listed}
            assert named <= {"body", "to", "message", "a"}


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_pythons_extensions_of_json_are_refused(constant, post_bytes):
    body = f'{{"to": "+12125550123", "message": "a", "check_dnc": {constant}}}'
    assert problems(post_bytes(body)) == [f"body: must be JSON, which has no {constant}"]


def test_nesting_is_refused_at_every_depth(post_bytes, subtests):
    for depth in (1, 10, *range(900, 1010), 3_000):  # from about 1,000 on, Python cannot parse it
        with subtests.test(depth=depth):
            value = "[" * depth + "]" * depth
            listed = problems(post_bytes(f'{{"message": {value}}}', **{"Idempotency-Key": "1"}))
            assert listed in (
                ["body: is nested too deeply"],
                ["to: is required", "message: must be a string"],
            )


def test_nesting_beyond_the_largest_body_is_413(post_bytes):
    refusal(post_bytes(b"[" * 100_000), 413)


def test_a_name_given_twice_is_named(post_bytes):
    assert problems(post_bytes(b'{"to": 1, "to": 2, "a": {"b": 1, "b": 2}}')) == [
        "b: is given twice"
    ]
    assert problems(post_bytes(b'{"to": 1, "message": 1, "to": 2, "message": 2}')) == [
        "to: is given twice",
        "message: is given twice",
    ]


def test_a_repeated_name_among_many_is_found_in_about_the_time_of_parsing():
    many = ",".join(f'"{n:x}":0' for n in range(7_000))

    def cost(body):
        times = []
        for _ in range(5):
            started = time.process_time()
            with contextlib.suppress(bodies.BadRequest):
                bodies.parse(body.encode())
            times.append(time.process_time() - started)
        return min(times)

    assert cost(f'{{{many},"0":1}}') < 20 * cost(f"{{{many}}}")


@pytest.mark.parametrize(
    "content_type",
    [
        *(None, "", "text/plain", "text/json", "application/x-www-form-urlencoded", "json"),
        *("application/jsonp", "application/vnd.api+json", "multipart/form-data; boundary=x"),
        *("application/json, application/json", "*/*", "application/ json", "\xff"),
    ],
)
def test_another_content_type_is_refused(content_type, client, key):
    headers = {"X-Api-Key": key} | ({"Content-Type": content_type} if content_type else {})
    response = client.post(PATH, data=json.dumps(VALID), headers=headers)
    assert problems(response) == ["Content-Type: must be application/json"]
