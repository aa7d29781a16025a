"""Interim answers: ten may come before the final one; a stream of them ends the try."""

import socket
import threading
import time

import pytest

from carriers import CarrierError
from database import clock
from events.delivery import Deliveries, Receiver
from events.outbox import Event, EventAddress
from models import Message
from stored_messages import key_named, store

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


@pytest.mark.timed
@pytest.mark.parametrize("status", [100, 103])
def test_an_event_whose_receiver_streams_is_tried_again_later(database_url, serve, status):
    key, began = key_named("app"), time.monotonic()
    EventAddress.set(key, serve(status, None), clock.now())
    store(key=key).cancel("shell", clock.now())
    single = Deliveries(300, Message.note_notified, once=True)
    single.start()
    single.finish()
    assert time.monotonic() - began < 5
    event = Event.get()
    assert (event.tries, event.last_answer) == (1, "the receiver gave no answer")
    assert event.next_try_at is not None
