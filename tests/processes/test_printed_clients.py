"""The clients of docs/api.md, run as printed: no text twice, and none too fast."""

import http.client
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from access import limits
from access.keys import ApiKey
from database import clock
from models import Message
from running import PYTHON, ROOT, Process, wait_until
from samples import NEW_YORK

PAGE = (ROOT / "docs" / "api.md").read_text()
LANGUAGES = {
    "python": ([PYTHON, "-u"], "py", "print(send_text({to!r}, {text!r})['message_id'])\n"),
    "js": (
        ["node"],
        "js",
        "sendText({to!r}, {text!r}).then((a) => console.log(a.message_id), "
        "(e) => {{ console.log(e.message); process.exit(1); }});\n",
    ),
}


@pytest.fixture(params=LANGUAGES)
def client(request, tmp_path):
    """Run the printed client, which sends a text: `client(url, secret, "Hi")`."""
    command, ending, call = LANGUAGES[request.param]
    (code,) = re.findall(rf"^```{request.param}\n(.*?)^```$", PAGE, re.M | re.S)

    def run(url, secret, text, to=NEW_YORK):
        file = tmp_path / f"{text}.{ending}"
        file.write_text(code + call.format(to=to, text=text))
        return Process([*command, file], tmp_path / "cwd", TEXTS_URL=url, API_KEY=secret)

    return run


class Losing(BaseHTTPRequestHandler):
    """Give requests to the web; of the first, lose the answer."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        web = http.client.HTTPConnection("127.0.0.1", self.server.web_port, timeout=30)
        web.request("POST", self.path, body, dict(self.headers))
        answer = web.getresponse()
        text = answer.read()
        web.close()
        self.server.seen.append(self.headers["Idempotency-Key"])
        if len(self.server.seen) == 1:
            self.close_connection = True
            return
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


def test_a_lost_answer_makes_no_second_text(client, shared_web):
    web, secret = shared_web
    server = ThreadingHTTPServer(("127.0.0.1", 0), Losing)
    server.web_port, server.seen = web.port, []
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        process = client(f"http://127.0.0.1:{server.server_port}", secret, "Hello")
        assert process.wait() == 0, process.output
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert len(server.seen) == 2
    assert len({*server.seen}) == 1
    assert [str(message.id) for message in Message.select()] == [process.output.strip()]


@pytest.mark.slow
def test_a_limit_is_waited_for_as_long_as_it_says(client, shared_web):
    web, _ = shared_web
    secret = ApiKey.issue("slow", None, clock.now(), limits=limits.parse("1/min"))
    wait_until(lambda: 50 <= clock.now().second < 56)  # so that the minute ends soon
    begun = clock.now()
    processes = [client(web.url, secret, text) for text in ("one", "two")]
    assert [process.wait() for process in processes] == [0, 0]
    created = sorted(message.created_at for message in Message.select())
    assert [instant.minute - begun.minute for instant in created] in ([0, 1], [0, -59])


def test_what_is_wrong_is_said_at_once(client, shared_web):
    web, secret = shared_web
    process = client(web.url, secret, "Hello", to="+1")
    assert process.wait() == 1
    assert "to: must be a phone number in E.164 format" in process.output
    assert Message.select().count() == 0
