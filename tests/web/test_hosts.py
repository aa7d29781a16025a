"""A request for a host that is no name is answered like any other."""

import pytest

from answers import PATH, accepted, refusal
from app import create_app
from samples import NEW_YORK

HOSTS = [
    "a..b",
    "x" * 64 + ".example",
    ".",
    "a..b:8000",
    "[::1",
    "\udce9".encode("utf-8", "surrogateescape").decode("latin-1"),
]


@pytest.mark.parametrize("host", HOSTS)
def test_the_operation_takes_a_text_whatever_the_host(client, key, host):
    headers = {"X-Api-Key": key, "Host": host}
    accepted(client.post(PATH, json={"to": NEW_YORK, "message": "Hello"}, headers=headers))


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/nowhere", "/v1/nowhere"])
def test_an_error_has_its_body_whatever_the_host(client, host, path):
    refusal(client.get(path, headers={"Host": host}), 404)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/desk/", "/desk/nowhere?to=%2B12125550123"])
def test_the_desk_shows_its_own_page_whatever_the_host(settings, database_url, host, path, caplog):
    client = create_app(settings._replace(secret_key="x" * 32)).test_client()
    response = client.get(path, headers={"Host": host})
    assert response.status_code in (200, 302, 404)
    assert response.mimetype == "text/html"
    assert "12125550123" not in caplog.text
    assert "Traceback" not in caplog.text
