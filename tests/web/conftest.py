"""The application as carriers see it that call back."""

import pytest

from app import create_app
from signed_callbacks import PUBLIC_URL


@pytest.fixture
def open_client(settings):
    """A client of the application for a carrier: `open_client(TWILIO, check_dnc="always")`."""

    def make(carrier_url, public_url=PUBLIC_URL, **changes):
        changed = settings._replace(carrier_url=carrier_url, public_url=public_url, **changes)
        return create_app(changed).test_client()

    return make
