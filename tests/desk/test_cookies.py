"""The desk's cookie is for https and this host, unless the desk is known to be without https."""

import re

import pytest

from app import create_app
from databases import on_sqlite
from desk_visitor import Visitor, is_out, issue

PUBLIC = "https://texts.example.com"
ELSEWHERE = "http://texts.example.com"


def cookie_of(settings, public_url, host, prefix=""):
    """The name of the cookie, its path, and whether it is for https only."""
    client = create_app(settings._replace(public_url=public_url)).test_client()
    response = client.get("/desk/", base_url=host + prefix)
    cookie = response.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Domain" not in cookie
    name, path = re.match(r"([^=]+)=.*Path=([^;]+)", cookie).groups()
    return name, path, "; Secure" in cookie


@pytest.mark.parametrize("host", [ELSEWHERE, "http://localhost", "http://10.0.0.7:8000"])
@pytest.mark.parametrize(
    ("public_url", "prefix", "cookie"),
    [
        (PUBLIC, "", ("__Host-desk", "/", True)),
        (PUBLIC + "/stage", "/stage", ("__Secure-desk", "/stage/desk/", True)),
        (ELSEWHERE, "", ("desk", "/desk/", False)),
        (ELSEWHERE + "/stage", "/stage", ("desk", "/stage/desk/", False)),
    ],
)
@on_sqlite
def test_public_url_decides_wherever_it_is_set(desk_settings, host, public_url, prefix, cookie):
    assert cookie_of(desk_settings, public_url, host, prefix) == cookie


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("localhost", True),
        ("LOCALHOST:8000", True),
        ("shop.localhost", True),
        ("127.0.0.1:8000", True),
        ("[::1]:8000", True),
        ("192.168.1.7:8000", True),
        ("10.1.2.3", True),
        ("mac.local:8000", True),
        ("texts.example.com", False),
        ("texts.example.com:8000", False),
        ("8.8.8.8", False),
        ("[2001:4860:4860::8888]:8000", False),
        ("localhost.example.com", False),
        ("mylocalhost", False),
        ("notlocal", False),
        ("10.example.com", False),
    ],
)
@on_sqlite
def test_without_it_https_is_left_out_for_local_addresses_alone(desk_settings, host, is_local):
    expected = ("desk", "/desk/", False) if is_local else ("__Host-desk", "/", True)
    assert cookie_of(desk_settings, None, f"http://{host}") == expected


@on_sqlite
@pytest.mark.parametrize(
    ("public_url", "prefix"), [(PUBLIC, ""), (PUBLIC + "/stage", "/stage"), (ELSEWHERE, "")]
)
def test_people_sign_in_and_out_with_it(desk_settings, public_url, prefix):
    visitor = Visitor(create_app(desk_settings._replace(public_url=public_url)), prefix)
    assert visitor.sign_in(issue("Ann", "front")).status_code == 303
    assert "Waiting for approval" in visitor.page.text
    visitor.press("Sign out")
    assert is_out(visitor)


@on_sqlite
@pytest.mark.parametrize("public_url", [PUBLIC, ELSEWHERE])
def test_a_link_from_elsewhere_is_opened_once_more_only_without_the_cookie(
    desk_settings, public_url
):
    client = create_app(desk_settings._replace(public_url=public_url)).test_client()
    linked = {"Sec-Fetch-Site": "cross-site"}
    assert 'http-equiv="refresh"' in client.get("/desk/", headers=linked).text
    client.get("/desk/")  # brings the cookie
    assert 'http-equiv="refresh"' not in client.get("/desk/", headers=linked).text


@on_sqlite
@pytest.mark.parametrize("host", ["[", "[x", "[::1", "a:b", ":", "", "]"])
def test_a_host_that_is_none_is_no_error_of_ours(desk_settings, host):
    client = create_app(desk_settings).test_client()
    response = client.get("/desk/", headers={"Host": host})
    assert response.status_code < 500


@on_sqlite
def test_the_cookie_of_the_whole_host_is_set_and_read_by_the_desk_alone(desk_settings):
    client = create_app(desk_settings._replace(public_url=PUBLIC)).test_client()
    client.get("/desk/")
    for path in ("/", "/healthz", "/docs"):
        response = client.get(path)
        assert "Set-Cookie" not in response.headers
        assert "Cookie" not in response.headers.get("Vary", "")
