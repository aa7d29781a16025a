"""What is served from files comes whole from memory, and says how a browser may keep it."""

import gzip

import pytest

from app import create_app

pytestmark = pytest.mark.options
PATH = "/docs/swagger-ui-bundle.js"


def test_a_big_file_is_compressed_for_those_who_can_read_that(client):
    plain = client.get(PATH)
    packed = client.get(PATH, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == plain.data
    assert len(packed.data) < len(plain.data) / 2
    assert plain.headers["Vary"] == packed.headers["Vary"] == "Accept-Encoding"


def test_a_browser_that_has_a_file_gets_no_second_copy(client):
    known = client.get(PATH).headers["ETag"]
    again = client.get(PATH, headers={"If-None-Match": known})
    assert (again.status_code, again.data) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/", "/healthz", "/openapi.json", "/nowhere", "/v1/text-messages"]
)
def test_no_answer_to_a_program_is_kept_or_taken_for_another_type(client, path):
    headers = client.get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", ["/", "/docs", PATH, "/healthz", "/nowhere", "/desk/"])
def test_no_page_tells_another_site_its_address(client, path):
    headers = client.get(path, headers={"Accept": "text/html"}).headers
    assert headers["Referrer-Policy"] == "same-origin"


@pytest.mark.parametrize(
    ("public_url", "sent"),
    [("https://texts.example", True), ("http://texts.example", False), (None, False)],
)
def test_browsers_stay_with_https_where_the_service_has_it(
    settings, database_url, public_url, sent
):
    client = create_app(settings._replace(public_url=public_url)).test_client()
    assert ("Strict-Transport-Security" in client.get("/docs").headers) == sent
