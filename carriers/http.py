"""What carriers over HTTP share: a pool of connections, trust, time-outs, Retry-After."""

import ssl
import time
from email.utils import mktime_tz, parsedate_tz
from urllib.parse import parse_qsl, urlsplit

LONGEST_PAUSE = 3600  # seconds: no carrier's Retry-After holds messages back for longer


def base_url(query):
    """Return the parts of the base URL in a twilio:// URL's query, or Twilio's own."""
    options = dict(parse_qsl(query, keep_blank_values=True))
    try:
        base = urlsplit(options.pop("base_url", "https://api.twilio.com"))
        usable = base.scheme in ("http", "https") and base.hostname and base.port != 0
    except ValueError:
        usable = False
    if options:
        raise ValueError("twilio://… takes no option but base_url")
    if not usable or base.username is not None or base.query or base.fragment:
        raise ValueError("base_url in twilio://… is no http:// or https:// address")
    return base


def trusted():
    """Return a TLS context that trusts what the machine trusts, and what requests does."""
    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def seconds(retry_after):
    """Return a Retry-After header, seconds or an HTTP date, as seconds from now, or None."""
    try:
        if retry_after.strip().isdecimal():
            seconds = int(retry_after)
        else:
            seconds = mktime_tz(parsedate_tz(retry_after)) - time.time()
    except (AttributeError, TypeError, ValueError, OverflowError):
        return None
    return min(max(seconds, 0), LONGEST_PAUSE)
