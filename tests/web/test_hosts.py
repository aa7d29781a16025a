"""A request for a host that is no name is refused with the body, or the page, of any error."""

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
