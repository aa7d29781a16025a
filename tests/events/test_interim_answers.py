"""Interim answers: ten may come before the final one; a stream of them ends the try."""

import socket
import threading
import time

import pytest

from carriers import CarrierError
from events.delivery import Receiver

FINAL = b"HTTP/1.1 204 No Content\r\n\r\n"


@pytest.fixture
def serve():
    """Serve answers on a socket: `serve(before, how_many)`; None streams for ever."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def answer(interim, how_many):
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            try:
                sent = 0
                while not ended.is_set() and (how_many is None or sent < how_many):
                    connection.sendall(interim)
                    sent += 1
                    time.sleep(0.001)
                connection.sendall(FINAL)
                ended.wait(0.5)
            except OSError:
                pass

    def start(status, how_many):
        interim = f"HTTP/1.1 {status} Wait\r\nLink: </a>\r\n\r\n".encode()
        threading.Thread(target=answer, args=(interim, how_many), daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"

    yield start
    ended.set()
    listener.close()


@pytest.mark.parametrize("status", [100, 102, 103, 199])
def test_ten_interim_answers_may_come_before_the_final_one(serve, status):
    receiver = Receiver(serve(status, 10), 1, 5)
    assert receiver.post_signed("1", "{}", ()).status == 204


@pytest.mark.timed
@pytest.mark.parametrize("status", [100, 102, 103, 199])
@pytest.mark.parametrize("how_many", [11, None])
def test_an_eleventh_ends_the_try(serve, status, how_many):
    receiver, began = Receiver(serve(status, how_many), 1, 5), time.monotonic()
    with pytest.raises(CarrierError) as error:
        receiver.post_signed("1", "{}", ())
    assert time.monotonic() - began < 2
    assert error.value.silent
    assert error.value.in_doubt
