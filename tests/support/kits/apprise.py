"""Apprise, played by a receiver for its json:// plugin."""

from carrier_servers import Answer
from kits import Kit
from kits.webhook import WebhookServer


class AppriseServer(WebhookServer):
    """Play a carrier for Apprise's json:// plugin."""

    @property
    def url(self):
        """A CARRIER_URL for this server."""
        return f"json://{self.address}/texts?:to={{to}}"

    def yes(self, count):
        return Answer()


KIT = Kit(
    url="json://127.0.0.1/{to}",
    bad_urls={
        "": """
            nosuchcarrier://user:s3cret@127.0.0.1/path-token
            nosuchcarrier://user:s3cret@127.0.0.1/path-token/{to}
            tgram://123456789:s3cret-s3cret-s3cret-s3cret-s3cret/{to}
        """,
        "json://user:s3cret@": """
            127.0.0.1/path-token 127.0.0.1/path-token?to={to} /{to} 127.0.0.1/{to}?method=s3cret
            127.0.0.1/path-token/{to}?format=html
        """,
    },
    server=AppriseServer,
    for_now=(400, 404, 408, 422, 500, 503),
    in_doubt=(502, 504),
)
