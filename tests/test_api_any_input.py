"""For any input, the answer is a complete 201 or the one error body, never a 5xx."""

import json
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from answers import PATH, accepted, error_in, problems
from samples import LONDON, NEW_YORK, VALID
from texting.messages.model import Message

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(), values, max_size=4),
    max_leaves=10,
)
any_text = st.text(st.characters(), max_size=50)
instants = st.builds(
    lambda instant, offset, suffix: (
        instant.replace(
            tzinfo=None if offset is None else timezone(timedelta(minutes=offset))
        ).isoformat()
        + suffix
    ),
    st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59)),  # noqa: DTZ001
    st.none() | st.integers(-1439, 1439),
    st.sampled_from(["", "", "", "Z", "0", "+00"]),
)
requests = st.fixed_dictionaries(
    {},
    optional={
        "to": st.sampled_from([NEW_YORK, LONDON, "+80012345678"])
        | st.from_regex(r"\+[0-9 ]{3,16}", fullmatch=True)
        | json_values,
        "message": any_text | json_values,
        "send_date": instants | json_values,
        "manual_mode": st.booleans() | json_values,
        "available_to_group": st.booleans() | json_values,
        "check_dnc": st.booleans() | json_values,
    },
)
likely = st.fixed_dictionaries(
    {"to": st.sampled_from([NEW_YORK, LONDON]), "message": any_text},
    optional={"send_date": instants, "manual_mode": st.booleans(), "check_dnc": st.booleans()},
)
header_values = st.text(st.characters(max_codepoint=255), max_size=300)


@pytest.fixture
def created(database_url):
    """The ids in answers; at the end of the test exactly these must be stored."""
    ids = []
    yield ids
    assert {str(row.id) for row in Message.select(Message.id)} == set(ids)


def holds(response, created):
    """Check that an answer is a complete 201, or a 400 with a field's name before each problem."""
    if response.status_code == 201:
        created.append(accepted(response)["message_id"])
        return
    for problem in problems(response):
        assert ": " in problem


@given(body=requests | likely)
def test_any_json_is_created_or_refused(body, post_bytes, created):
    holds(post_bytes(json.dumps(body)), created)


@given(body=st.binary(max_size=200) | st.text().map(str.encode) | json_values.map(json.dumps))
def test_any_bytes_are_created_or_refused(body, post_bytes, created):
    holds(post_bytes(body), created)


@hypothesis_settings(max_examples=20)
@given(
    headers=st.dictionaries(
        st.sampled_from(
            ["X_API_KEY", "AUTHORIZATION", "IDEMPOTENCY_KEY", "ACCEPT", "ORIGIN", "COOKIE"]
        ),
        header_values,
    ),
    content_type=header_values,
)
def test_any_header_is_answered(headers, content_type, client):
    environ = {f"HTTP_{name}": value for name, value in headers.items()}
    for method, path, status in (("POST", PATH, 401), ("GET", "/healthz", 200)):
        response = client.open(
            path, method=method, environ_overrides=environ | {"CONTENT_TYPE": content_type}
        )
        assert response.status_code == status
        if status == 401:
            error_in(status, response.headers["Content-Type"], response.text)


@given(value=header_values)
def test_any_idempotency_key_is_taken_or_refused(value, client, key, created):
    environ = {"HTTP_X_API_KEY": key, "HTTP_IDEMPOTENCY_KEY": value}
    response = client.post(PATH, json=VALID, environ_overrides=environ)
    holds(response, created)
    assert (response.status_code == 201) == (
        0 < len(value) < 256 and all("!" <= character <= "~" for character in value)
    )


@given(path=st.text(st.characters(max_codepoint=255), max_size=40))
def test_any_path_has_the_one_error_body(path, client):
    response = client.get("/", environ_overrides={"PATH_INFO": f"/v1/{path}"})
    error_in(response.status_code, response.headers["Content-Type"], response.text)
    assert response.status_code == 404
