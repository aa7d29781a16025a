"""Connections to carriers: trusted certificate authorities, and why a connection failed."""

import errno
import re
import socket
import ssl

import certifi

CERTIFICATE = {  # by OpenSSL's X509_V_ERR_… codes
    9: "its certificate is not valid yet",
    10: "its certificate has expired",
    **dict.fromkeys((18, 19, 20, 21), "its certificate is signed by an unknown authority"),
    **dict.fromkeys((62, 64), "its certificate is for another host"),
}


def trusted() -> ssl.SSLContext:
    """Return a TLS context that trusts the machine's certificate authorities and certifi's."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def reason_of(error: BaseException | None) -> str:
    """Return for an operator why a connection failed, without names and addresses.

    The errors of libraries are followed to their causes.
    """
    while error:
        if words := _words(error):
            return words
        error = error.__cause__ or error.__context__
    return "the connection failed"


def _words(error):
    """Return the meaning of one exception, or None."""
    match error:
        case ssl.SSLCertVerificationError():
            return CERTIFICATE.get(error.verify_code, "its certificate is not valid")
        case ssl.SSLError():
            return "there is no TLS that both sides speak"
        case socket.gaierror(errno=socket.EAI_NONAME | socket.EAI_NODATA) | UnicodeError():
            return "there is no such host name"
        case socket.gaierror():
            return "its host name cannot be looked up"
        case ConnectionRefusedError():
            return "nobody listens there (connection refused)"
        case TimeoutError():
            return "it did not answer in time"
        case ConnectionError():
            return "the connection was lost at once"
        case OSError(errno=errno.ENETUNREACH | errno.EHOSTUNREACH):
            return "there is no route to it"
        case OSError(errno=None):
            # asyncio joins the errors of several addresses into the words of one exception.
            codes = re.findall(r"\[Errno (\d+)\]", str(error))
            return _words(OSError(int(codes[-1]), "")) if codes else None
    return None
