"""Bytes of a query that are no UTF-8 are bad input, and no error of ours."""

import pytest

pytestmark = pytest.mark.options


@pytest.mark.parametrize(
    "query", ["\xff=\xfe", "strict=\xff", "a=\xc3\xa9", "%ff=%fe", "\xff" * 5000]
)
@pytest.mark.parametrize("path", ["/", "/healthz", "/desk/", "/v1/text-messages", "/nowhere"])
def test_a_query_of_any_bytes_gets_no_500(client, path, query):
    raw = {"QUERY_STRING": query}  # as WSGI has bytes
    assert client.get(path, environ_overrides=raw).status_code in (200, 302, 400, 404, 405)
