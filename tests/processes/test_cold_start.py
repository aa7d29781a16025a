"""A scheduler that has just started: its carriers' threads begin at once, and import nothing."""

import pytest

from carrier_servers import playing, self_signed
from kits import KITS, OVER_HTTP
from kits.webhook import WebhookServer
from running import ALWAYS, PYTHON, ROOT, Process
from stored_messages import statuses, store
from texting.database import clock
from texting.messages.model import Status

TIMES = 5

WATCHING = f"""
import runpy, sys, threading

def watch(event, args):
    if event == "import" and threading.current_thread() is not threading.main_thread():
        print("imported in a thread:", args[0], flush=True)

sys.path.insert(0, {str(ROOT)!r})
sys.argv = ["scheduler.py"]
sys.addaudithook(watch)
runpy.run_path({str(ROOT / "scheduler.py")!r}, run_name="__main__")
"""


@pytest.fixture(params=OVER_HTTP)
def server(request):
    yield from playing(KITS[request.param].server)


@pytest.fixture
def over_tls(tmp_path, monkeypatch):
    """The URL of a carrier over TLS, which is told at once where to call back."""
    context, certificate = self_signed(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    for server in playing(KITS["smsgate"].server):
        server.socket = context.wrap_socket(server.socket, server_side=True)
        place = f"localhost:{server.server_port}"
        yield server.url.replace("smsgate+http:", "smsgate:").replace(server.address, place)


@pytest.fixture
def two():
    """Two carriers over HTTP, each for another country."""
    for first in playing(WebhookServer):
        for second in playing(WebhookServer):
            yield f"{first.url}#name=one&countries=US {second.url}#name=two&countries=CA"


@pytest.mark.slow
def test_two_carriers_that_connect_at_once_take_their_first_texts(schedule, two):
    for _ in range(TIMES):
        for country in ("US", "CA"):
            store(clock.now(), lane=country)
        scheduler = schedule(CARRIER_URL=two)
        assert scheduler.wait() == 0, scheduler.output
        assert "unexpected" not in scheduler.output
    assert statuses() == {Status.SENT: 2 * TIMES}


@pytest.mark.slow
def test_no_module_is_imported_while_the_threads_of_a_carrier_run(watch_imports, server):
    watch_imports(server.url)


@pytest.mark.slow
def test_no_module_is_imported_for_an_encrypted_connection_either(watch_imports, over_tls):
    watch_imports(over_tls, PUBLIC_URL="https://texts.example.com")


@pytest.fixture
def watch_imports(database_url, tmp_path):
    """Send a text through a carrier in a pass, of whose threads none imports a module."""

    def run(url, **environ):
        store(clock.now())
        words = [PYTHON, "-c", WATCHING]
        own = {"DATABASE_URL": database_url, "CARRIER_URL": url} | ALWAYS | environ
        scheduler = Process(words, tmp_path / "cwd", **own)
        assert scheduler.wait() == 0, scheduler.output
        assert "imported in a thread" not in scheduler.output
        assert statuses() == {Status.SENT: 1}, scheduler.output

    return run
