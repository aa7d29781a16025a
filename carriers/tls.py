"""Which authorities vouch for the certificates of carriers."""

import ssl

import certifi


def trusted() -> ssl.SSLContext:
    """Return a TLS context that trusts the authorities of the machine and those of certifi."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
