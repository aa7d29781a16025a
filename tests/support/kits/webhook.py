"""The operator's own webhook."""

import json

from carrier_servers import Answer, CarrierServer
from kits import Kit


class WebhookServer(CarrierServer):
    """Play the operator's webhook; with `keeps_ids` it knows a text that comes again."""

    keeps_ids = False

    def __init__(self):
        super().__init__()
        self.kept = {}

    @property
    def url(self):
        """A CARRIER_URL for this server."""
        return f"webhook+http://{self.address}/texts?secret=s3cret"

    def read(self, request):
        body = json.loads(request.body)
        return body["to"], body["message"]

    def take(self, request):
        id = request.headers.get("webhook-id")
        if self.keeps_ids and id in self.kept:
            return self.kept[id]
        answer = super().take(request)
        if getattr(answer, "status", 0) == 202:
            self.kept[id] = answer
        return answer

    def yes(self, count):
        return Answer(202, {"reference": f"ref-{count}"})


KIT = Kit(
    url="webhook+http://127.0.0.1/",
    bad_urls={
        "webhook+": """
            https: https:// https:/127.0.0.1 https://?secret=s3cret https://[s3cret/
            https://127.0.0.1:s3cret/ https://127.0.0.1/#s3cret
            https://127.0.0.1/?secret=whsec_s3cret-s3cret ftp://127.0.0.1/?secret=s3cret
            https://127.0.0.1/?secret=s3cret&secret=s3cret
        """,
    },
    server=WebhookServer,
    for_now=(301, 408, 500, 503),
    in_doubt=(502, 504),
)
