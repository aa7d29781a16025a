"""A scheduler that has just started: its carriers' threads begin at once, and import nothing."""

import pytest

from carrier_servers import playing
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
def test_no_module_is_imported_while_the_threads_of_a_carrier_run(database_url, tmp_path, server):
    store(clock.now())
    words = [PYTHON, "-c", WATCHING]
    environ = {"DATABASE_URL": database_url, "CARRIER_URL": server.url} | ALWAYS
    scheduler = Process(words, tmp_path / "cwd", **environ)
    assert scheduler.wait() == 0, scheduler.output
    assert "imported in a thread" not in scheduler.output
    assert statuses() == {Status.SENT: 1}, scheduler.output
