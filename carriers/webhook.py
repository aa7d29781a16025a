"""A webhook of the operator's own."""

import base64
import binascii
import hashlib
import hmac
import json
import time
from urllib.parse import unquote, urlsplit

from carriers import Carrier, CarrierError
from carriers.http import Client, base_url, basic, reference

FOR_GOOD = {400, 413, 422}  # about this text or this recipient
ACCOUNT = {401, 403, 404}  # about the secret or the address


class Webhook(Carrier):
    """A POST of `{"message_id", "to", "message"}`: `webhook+https://HOST/PATH?secret=…`.

    It is signed as Standard Webhooks (https://www.standardwebhooks.com) asks, so that a receiver
    can use one of its libraries: `webhook-id` is the message's ID, which comes again if the text
    does. `secret` is taken as it is, or as base64 if it begins with `whsec_`; without one nothing
    is signed. All else in the URL is the address, its user and password HTTP's Basic ones.
    """

    name = "webhook"

    def __init__(self, url: str, concurrency: int, timeout: float):
        address = url.partition("+")[2]
        place, _, query = address.partition("?")
        options = query.split("&") if query else []
        secrets = [option for option in options if option.partition("=")[0] == "secret"]
        if len(secrets) > 1:
            raise ValueError("webhook+…:// has more than one secret")
        self._key = _key(unquote(secrets[0].partition("=")[2])) if secrets else None
        try:
            parts = urlsplit(place)
            user, password = parts.username, parts.password
            base = base_url(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())
        except ValueError:
            raise ValueError("webhook+… is followed by no https:// or http:// address") from None
        others = "&".join(option for option in options if option not in secrets)
        self._path = (base.path or "/") + (f"?{others}" if others else "")
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if user is not None:
            self._headers |= basic(unquote(user), unquote(password or ""))
        self._client = Client("the webhook", base._replace(path=""), concurrency, timeout)

    def send(self, to: str, text: str, *, message_id: str, valid_for: int) -> str | None:
        body = json.dumps({"message_id": message_id, "to": to, "message": text})
        answer = self._client.ask(
            "POST", self._path, body, self._headers | self._signature(message_id, body)
        )
        content = answer.json()
        if 200 <= answer.status < 300 and not content.get("error"):
            return reference(content.get("reference"))
        raise CarrierError(
            f"the webhook refused (HTTP {answer.status})",
            permanent=answer.status in FOR_GOOD,
            account=answer.status in ACCOUNT,
            too_fast=answer.status == 429,
            retry_after=answer.retry_after,
        )

    def close(self) -> None:
        self._client.close()

    def _signature(self, message_id, body):
        """Return the headers by which the receiver knows that a text is from us, and from now."""
        now = int(time.time())
        headers = {"webhook-id": message_id, "webhook-timestamp": str(now)}
        if self._key:
            mac = hmac.new(self._key, f"{message_id}.{now}.{body}".encode(), hashlib.sha256)
            headers["webhook-signature"] = f"v1,{base64.b64encode(mac.digest()).decode()}"
        return headers


def _key(secret):
    """Return the key that a secret stands for."""
    if not secret.startswith("whsec_"):
        key = secret.encode()
    else:
        encoded = secret.removeprefix("whsec_")
        try:
            key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
        except binascii.Error:
            raise ValueError("secret in webhook+…:// begins with whsec_ and is no base64") from None
    if not key:
        raise ValueError("secret in webhook+…:// is empty")
    return key
