"""Whom carriers' certificates are vouched for by."""

import ssl

import certifi


def trusted() -> ssl.SSLContext:
    """Return a TLS context that trusts the authorities of the machine and those of certifi."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
