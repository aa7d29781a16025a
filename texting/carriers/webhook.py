"""Signed POSTs according to Standard Webhooks: the operator's own webhook, and events.

https://www.standardwebhooks.com has libraries that verify them.
"""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Collection
from datetime import timedelta
from typing import ClassVar
from urllib.parse import unquote

from texting.carriers import Codes, Outgoing, urls
from texting.carriers.http import HttpCarrier, Response, basic, reference


class SignedPosts(HttpCarrier):
    """POST JSON to one address; user and password in it are sent by HTTP Basic authentication."""

    def __init__(self, address: str, concurrency: int, timeout: float):
        base = urls.split(address)
        self._target = (base.path or "/") + (f"?{base.query}" if base.query else "")
        headers = {"Content-Type": "application/json"}
        if base.username is not None:
            headers |= basic(unquote(base.username), unquote(base.password or ""))
        base = base._replace(netloc=base.netloc.rpartition("@")[2], path="")
        super().__init__(base, headers, concurrency, timeout)

    def post_signed(self, webhook_id: str, body: str, secrets: Collection[bytes]) -> Response:
        """POST a body, with a signature by each of these secrets, if any."""
        headers = self.headers | signature(webhook_id, body, secrets)
        return self.ask("POST", self._target, body=body, headers=headers)


def signature(webhook_id: str, body: str, secrets: Collection[bytes]) -> dict[str, str]:
    """Return the headers that prove to a receiver who sent a body, and when."""
    now = int(time.time())
    headers = {"webhook-id": webhook_id, "webhook-timestamp": str(now)}
    signed = f"{webhook_id}.{now}.{body}".encode()
    macs = [hmac.new(secret, signed, hashlib.sha256).digest() for secret in secrets]
    if macs:
        written = (f"v1,{base64.b64encode(mac).decode()}" for mac in macs)
        headers["webhook-signature"] = " ".join(written)
    return headers


def decoded(secret: str) -> bytes:
    """Return the bytes of a `whsec_` secret; raise ValueError if they are not base64."""
    encoded = secret.removeprefix("whsec_")
    return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)


class Webhook(SignedPosts):
    """POST `{"message_id", "to", "message"}` to `webhook+https://HOST/PATH?secret=…`.

    `webhook-id` is the message's ID, and stays the same if a text is sent again. `secret` is the
    key itself, or its base64 after `whsec_`. Without a secret nothing is signed. The rest of the
    URL is the address.
    """

    name, title = "webhook", "the webhook"
    options: ClassVar = {"secret": None}
    keeps_ids = timedelta.max  # the receiver's duty
    codes = Codes(permanent={400, 413, 422}, account={401, 403, 404}, too_fast={429})  # HTTP

    def __init__(self, url: str, concurrency: int, timeout: float, *_: object):
        address = url.partition("+")[2]
        place, _, query = address.partition("?")
        options = query.split("&") if query else []
        secrets = [option for option in options if option.partition("=")[0] == "secret"]
        if len(secrets) > 1:
            raise ValueError("webhook+…:// has more than one secret")
        self._keys = [_key(unquote(each.partition("=")[2])) for each in secrets]
        base = urls.split(place)
        if base is None or base.fragment:
            raise ValueError("webhook+… needs an https:// or http:// address")
        others = "&".join(option for option in options if option not in secrets)
        super().__init__(place + (f"?{others}" if others else ""), concurrency, timeout)

    def send(self, outgoing: Outgoing) -> str | None:
        body = json.dumps(
            {"message_id": outgoing.message_id, "to": outgoing.to, "message": outgoing.text}
        )
        answer = self.post_signed(outgoing.key, body, self._keys)
        content = answer.json()
        if answer.success and not content.get("error"):
            return reference(content.get("reference"))
        reason = f"the webhook refused (HTTP {answer.status})"
        if content.get("error"):  # the receiver's own word, whatever the status
            raise self.refusal(answer, answer.status, reason)
        silent = answer.status in (502, 503, 504)  # more likely a gateway's
        in_doubt = answer.leaves_doubt
        raise self.refusal(answer, answer.status, reason, silent=silent, in_doubt=in_doubt)


def _key(secret):
    """Return the key that a secret denotes."""
    try:
        key = decoded(secret) if secret.startswith("whsec_") else secret.encode()
    except ValueError:
        raise ValueError("after whsec_ the secret in webhook+…:// must be base64") from None
    if not key:
        raise ValueError("secret in webhook+…:// is empty")
    return key
