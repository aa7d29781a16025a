"""Find out which of Apprise's plugins read their carrier's answer, and write it down.

    .venv/bin/python bin/apprise_plugins.py [--check]

It writes carriers/apprise_plugins.py and the table in docs/carriers.md, or says with `--check`
whether they are up to date.

Each plugin that texts a phone number sends one text, but requests is kept from the network: every
request is answered with 200 and one of the bodies below, none of which is a yes. A plugin that
calls them all a yes does not read its carrier's answer. Run it again after an update of Apprise:
a test holds the two to the version that is installed.
"""

import io
import json
import logging
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import apprise
import requests
from apprise.manager_plugins import NotificationManager

NUMBER = "12125550123"
NUMBERS = {"Mobile Message": "61491570156"}  # texts nobody but Australians
NOES = [
    b"",
    b"ERROR",
    b"<html>Log in</html>",
    b"[]",
    b"{}",
    *(
        json.dumps(no).encode()
        for no in (
            {"error": "Bad Credentials", "message": "refused", "code": 401, "status": "error"},
            {"success": False, "status": 0, "errors": [{"code": 1, "message": "refused"}]},
            {"messages": [{"status": "4", "error-text": "Bad Credentials"}], "message-count": "1"},
            {"return": {"status": 418, "message": "refused"}, "type": "error", "response_code": 0},
            {"SMSMessageData": {"Message": "Failed", "Recipients": []}, "result": "ERROR"},
        )
    ),
]
HEX, WORD = "0123456789abcdef" * 4, "abcdefghijklmnopqrstuvwxyz0123456789"
URLS = {
    "46elks": "46elks://user:secret@+15005550006/{to}",
    "800.com": f"eight00com://{WORD}@15005550006/{{to}}",
    "AWS Simple Notification Service (SNS)": f"sns://AHIAJGNT76XIMXDBIJYA/{WORD}/us-west-2/{{to}}",
    "Africas Talking": f"atalk://user@{WORD}/{{to}}",
    "BulkSMS": "bulksms://token:secret@{to}",
    "BulkVS": "bulkvs://user:secret@15005550006/{to}",
    "CM.com": "cm://sender@aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee/{to}",
    "ClickSend": f"clicksend://user:{WORD}@{{to}}",
    "Clickatell": f"clickatell://{WORD}/{{to}}",
    "D7 Networks": f"d7sms://{WORD}@{{to}}",
    "Evolution API": f"evolution://{WORD}@127.0.0.1/instance/{{to}}",
    "Exotel": f"exotel://sid:{WORD}@15005550006/{{to}}",
    "Gupshup": f"gupshup://app:{WORD}@15005550006/{{to}}",
    "Infobip": f"infobip://{WORD}@example.api.infobip.com/{{to}}",
    "Kaleyra": f"kaleyra://HXSID123:{WORD}@SENDER/{{to}}",
    "Kavenegar": f"kavenegar://15005550006@{WORD}/{{to}}",
    "Kudosity": f"burstsms://{WORD[:8]}:{WORD[:16]}@15005550006/{{to}}",
    "MSG91": f"msg91://{'t' * 20}@{'a' * 23}/{{to}}",
    "MessageBird": f"msgbird://{'a' * 25}/15005550006/{{to}}",
    "Mobile Message": "mobilemessage://user:secret@SENDER/{to}",
    "Notifyre": f"notifyre://{WORD}/{{to}}",
    "Octopush": f"octopush://user@example.com/{WORD}/{{to}}",
    "Plivo": f"plivo://{'a' * 25}@{'t' * 40}/15005550006/{{to}}",
    "RingCentral": f"ringc://15005550006:{WORD}@client/{WORD}/{{to}}",
    "SMS Eagle": f"smseagle://{WORD}@127.0.0.1/{{to}}",
    "SMS Manager": f"smsmgr://{WORD}@{{to}}",
    "SMSC": "smsc://user:secret@{to}",
    "SMSTunnel": f"smstunnel://{WORD}/{{to}}",
    "SerwerSMS": "serwersms://user:secret@SENDER/{to}",
    "Signal API": "signal://127.0.0.1/15005550006/{to}",
    "Sinch": f"sinch://{HEX[:32]}:{HEX[:32]}@15005550006/{{to}}",
    "Telesign": f"telesign://AAAAAAAA-BBBB-CCCC-DDDD-EEEEEEEEEEEE:{WORD}@{{to}}",
    "Telnyx": f"telnyx://{WORD}@15005550006/{{to}}",
    "Threema Gateway": f"threema://*THEGWID@{'s' * 16}/{{to}}",
    "VoIPms": "voipms://secret:user@example.com/15005550006/{to}",
    "Whapi.Cloud": f"whapi://{WORD}/{{to}}",
    "WhatsApp": f"whatsapp://{WORD}@15005550006/{{to}}",
    "httpSMS": f"httpsms://{WORD}@15005550006/{{to}}",
    "seven": f"seven://{WORD}/{{to}}",
    "JSON": "json://127.0.0.1/?:to={to}",
    "Form": "form://127.0.0.1/?:to={to}",
    "XML": "xml://127.0.0.1/?:to={to}",
}
LEFT_OUT = {
    *("Twilio", "Vonage", "SMPP"),  # have a module of their own here
    "DingTalk",  # a chat, which mentions phone numbers
}


ROOT = Path(__file__).parent.parent
MODULE = '''"""What bin/apprise_plugins.py found out about Apprise's plugins; not to be edited."""

VERSION = "{version}"  # Apprise's

_SCHEMES = """
{schemes}
"""
_READ_THE_ANSWER = """
{readers}
"""

SCHEMES = frozenset(_SCHEMES.split())
"""Every scheme of Apprise's."""
READ_THE_ANSWER = frozenset(_READ_THE_ANSWER.split())
"""Those that text phones, and look at more of the carrier's answer than its HTTP status."""
'''
TABLE = "<!-- bin/apprise_plugins.py writes this table -->\n", "<!-- end of the table -->\n"


def tried(url: str, number: str, body: bytes) -> tuple[bool, str]:
    """Return whether the plugin of a URL calls a 200 with `body` a yes, and what it sent."""
    sent = []

    def answer(session, request, **kwargs):
        content = request.body or b""
        content = content if isinstance(content, str) else content.decode(errors="replace")
        response = requests.Response()
        response.status_code, response.request, response.url = 200, request, request.url
        response.raw = io.BytesIO(body)
        if "oauth/token" in request.url:  # a plugin that signs in first
            response.raw = io.BytesIO(b'{"access_token": "secret", "expires_in": 3600}')
        else:
            sent.append(f"{request.url} {content}")
        return response

    with mock.patch("requests.Session.send", answer):
        plugin = apprise.Apprise.instantiate(url.replace("{to}", f"%2B{number}"))
        try:
            yes = plugin.send(body="text", title="", notify_type=apprise.NotifyType.INFO)
        except Exception:  # it could not make sense of the answer: so it read it
            yes = False
    if not sent:
        raise SystemExit(f"the plugin of {url} sent nothing: mend its URL here")
    return bool(yes), " ".join(sent)


def found() -> tuple[list[str], list[tuple[str, list[str], bool, str]]]:
    """Return every scheme, and a row for each plugin that texts."""
    manager = NotificationManager()
    plugins = {}
    for scheme in manager.schemas():
        plugins.setdefault(manager[scheme], []).append(scheme)
    rows = []
    for plugin, names in plugins.items():
        name = str(plugin.service_name)
        texts = any("phone" in token for token in getattr(plugin, "template_tokens", {}))
        if name not in URLS:
            if texts and name not in LEFT_OUT:
                raise SystemExit(f"{name} is a plugin that texts: give it a URL here")
            continue
        number = NUMBERS.get(name, NUMBER)
        outcomes = [tried(URLS[name], number, body) for body in NOES]
        reads = not all(yes for yes, _ in outcomes)
        sent = outcomes[0][1]
        plus = f"+{number}" in sent or f"%2B{number}" in sent
        form = "E.164" if plus else "digits of E.164" if number in sent else "national digits"
        rows.append((name, sorted(names), reads, form))
    return sorted(manager.schemas()), sorted(rows, key=lambda row: row[0].lower())


def wrapped(words: Iterable[str]) -> str:
    """Return words in lines that fit a source file."""
    return textwrap.fill(" ".join(words), 99)


def main() -> str | int:
    """Write carriers/apprise_plugins.py and the table of docs/carriers.md; return the status."""
    logging.getLogger("apprise").setLevel(logging.CRITICAL)
    schemes, rows = found()
    readers = sorted(name for _, names, reads, _ in rows if reads for name in names)
    module = MODULE.format(
        version=apprise.__version__, schemes=wrapped(schemes), readers=wrapped(readers)
    )
    lines = [
        "| Plugin | Scheme | Reads the carrier's answer | Sends the number as |\n",
        "|---|---|---|---|\n",
        *(
            f"| {name} | {', '.join(f'`{each}`' for each in names)} | {'yes' if reads else 'no'} "
            f"| {form} |\n"
            for name, names, reads, form in rows
        ),
    ]
    docs = ROOT / "docs" / "carriers.md"
    before, _, rest = docs.read_text().partition(TABLE[0])
    after = rest.partition(TABLE[1])[2]
    written = {
        ROOT / "carriers" / "apprise_plugins.py": module,
        docs: "".join([before, TABLE[0], *lines, TABLE[1], after]),
    }
    stale = [path.name for path, text in written.items() if path.read_text() != text]
    if "--check" in sys.argv:
        return f"out of date: {', '.join(stale)}" if stale else 0
    for path, text in written.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
