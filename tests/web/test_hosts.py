"""A host that is no name, or a query of any bytes, is bad input and no error of ours.

They are refused with the body, or the page, of any error.
"""

import pytest

from answers import PATH, refusal
from app import create_app

pytestmark = pytest.mark.options
HOSTS = ["a..b", "x" * 64 + ".example", ".", ".a", "a..b:8000"]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/", PATH, "/nowhere"])
def test_a_program_gets_the_body_of_errors(client, host, path):
    refusal(client.get(path, headers={"Host": host}), 400)


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("path", ["/desk/", "/desk/nowhere?to=%2B12125550123"])
def test_the_desk_shows_its_own_page_whatever_the_host(settings, database_url, host, path, caplog):
    client = create_app(settings._replace(secret_key="x" * 32)).test_client()
    response = client.get(path, headers={"Host": host})
    assert response.status_code == 400
    assert response.mimetype == "text/html"
    assert "12125550123" not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "OPTIONS", "FOO"])
def test_no_answer_names_the_host_that_a_client_has_made_up(settings, method):
    client = create_app(settings._replace(secret_key="x" * 32)).test_client()
    for rule in map(str, client.application.url_map.iter_rules()):
        for path in {rule, f"{rule}/", f"/{rule}", rule.rstrip("/") or "/"}:
            answer = client.open(path, method=method, headers={"Host": "evil.example"})
            assert "evil.example" not in f"{answer.headers}{answer.text}", path


def test_a_form_for_the_desk_without_its_slash_is_405(settings):
    client = create_app(settings._replace(secret_key="x" * 32)).test_client()
    answer = client.post("/desk", data={"approve": "all"})
    refusal(answer, 405)
    assert answer.allow == {"GET", "HEAD", "OPTIONS"}


@pytest.mark.parametrize(
    "query", ["\xff=\xfe", "strict=\xff", "a=\xc3\xa9", "%ff=%fe", "\xff" * 5000]
)
@pytest.mark.parametrize("path", ["/", "/healthz", "/desk/", "/v1/text-messages", "/nowhere"])
def test_a_query_of_any_bytes_gets_no_500(client, path, query):
    raw = {"QUERY_STRING": query}  # as WSGI has bytes
    assert client.get(path, environ_overrides=raw).status_code in (200, 302, 400, 404, 405)
