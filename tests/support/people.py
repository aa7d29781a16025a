"""People who take notices of Apprise's json:// plugin, over HTTP on loopback.

PYTEST_DONT_REWRITE lets tests import the class.
"""

import json

import pytest

from carrier_servers import Answer, CarrierServer, playing


class People(CarrierServer):
    """Record what they are told; answer with `answer`."""

    def __init__(self):
        super().__init__()
        self.answer = Answer()

    def read(self, request):
        body = json.loads(request.body)
        return body["title"], body["message"]

    @property
    def url(self):
        return f"json://user:s3cret@{self.address}/notices"

    @property
    def told(self):
        return [text for _, text in self.texts]


@pytest.fixture
def people():
    yield from playing(People)
