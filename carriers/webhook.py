"""The operator's own webhook."""

import base64
import hashlib
import hmac
import json
import time
from urllib.parse import unquote

from carriers import Codes, urls
from carriers.http import HttpCarrier, basic, reference


class Webhook(HttpCarrier):
    """POST `{"message_id", "to", "message"}` to `webhook+https://HOST/PATH?secret=…`.

    Requests are signed according to Standard Webhooks (https://www.standardwebhooks.com), so
    receivers can verify them with its libraries. `webhook-id` is the message's ID, and stays the
    same if a text is sent again. `secret` is the key itself, or its base64 after `whsec_`. Without
    a secret nothing is signed. The rest of the URL is the address; user and password are sent by
    HTTP Basic authentication.
    """

    name, title = "webhook", "the webhook"
    codes = Codes(for_good={400, 413, 422}, account={401, 403, 404}, too_fast={429})  # HTTP

    def __init__(self, url: str, concurrency: int, timeout: float, *_: object):
        address = url.partition("+")[2]
        place, _, query = address.partition("?")
        options = query.split("&") if query else []
        secrets = [option for option in options if option.partition("=")[0] == "secret"]
        if len(secrets) > 1:
            raise ValueError("webhook+…:// has more than one secret")
        self._key = _key(unquote(secrets[0].partition("=")[2])) if secrets else None
        base = urls.split(place)
        if base is None or base.fragment:
            raise ValueError("webhook+… needs an https:// or http:// address")
        others = "&".join(option for option in options if option not in secrets)
        self._target = (base.path or "/") + (f"?{others}" if others else "")
        headers = {"Content-Type": "application/json"}
        if base.username is not None:
            headers |= basic(unquote(base.username), unquote(base.password or ""))
        base = base._replace(netloc=base.netloc.rpartition("@")[2], path="")
        super().__init__(base, headers, concurrency, timeout)

    def send(self, to: str, text: str, *, message_id: str, valid_for: int) -> str | None:
        body = json.dumps({"message_id": message_id, "to": to, "message": text})
        headers = self.headers | self._signature(message_id, body)
        answer = self.ask("POST", self._target, body=body, headers=headers)
        content = answer.json()
        if answer.success and not content.get("error"):
            return reference(content.get("reference"))
        reason = f"the webhook refused (HTTP {answer.status})"
        silent = answer.status in (502, 503, 504)  # a gateway's word, and not the receiver's
        raise self.refusal(answer, answer.status, reason, silent=silent)

    def _signature(self, message_id, body):
        """Return the headers that prove to the receiver who sent a text, and when."""
        now = int(time.time())
        headers = {"webhook-id": message_id, "webhook-timestamp": str(now)}
        if self._key:
            mac = hmac.new(self._key, f"{message_id}.{now}.{body}".encode(), hashlib.sha256)
            headers["webhook-signature"] = f"v1,{base64.b64encode(mac.digest()).decode()}"
        return headers


def _key(secret):
    """Return the key that a secret denotes."""
    if not secret.startswith("whsec_"):
        key = secret.encode()
    else:
        encoded = secret.removeprefix("whsec_")
        try:
            key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except ValueError:
            raise ValueError("after whsec_ the secret in webhook+…:// must be base64") from None
    if not key:
        raise ValueError("secret in webhook+…:// is empty")
    return key
