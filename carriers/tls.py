"""Certificate authorities for connections to carriers."""

import ssl

import certifi


def trusted() -> ssl.SSLContext:
    """Return a TLS context that trusts the machine's certificate authorities and certifi's."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
