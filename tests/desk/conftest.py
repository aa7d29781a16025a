"""People at the desk."""

import pytest
from jinja2 import FileSystemBytecodeCache

from app import create_app
from desk_visitor import signed_in
from samples import TUESDAY_NOON
from texting.access.keys import Role

SECRET = "not so secret, but long enough"


@pytest.fixture
def desk_settings(settings):
    return settings._replace(secret_key=SECRET)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """Where templates are kept compiled: each test has an application of its own."""
    return FileSystemBytecodeCache(tmp_path_factory.mktemp("templates"))


@pytest.fixture
def app(desk_settings, compiled):
    app = create_app(desk_settings)
    app.jinja_env.bytecode_cache = compiled
    return app


@pytest.fixture(autouse=True)
def noon(at):
    at(TUESDAY_NOON)


@pytest.fixture
def approver(app):
    """Ann, who approves for the group of the shop."""
    return signed_in(app, "Ann", "front")


@pytest.fixture
def operator(app):
    return signed_in(app, "Olga", role=Role.OPERATOR)
