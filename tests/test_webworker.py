"""What the worker keeps of an answer; tests/processes try it with real servers."""

import socket

from gunicorn.config import Config

from webworker import Connection


def test_a_file_is_sent_as_it_is_taken_and_nothing_follows_one_that_is_cut(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 20_000)
    ours, client = socket.socketpair()
    ours.setblocking(False)
    with ours, client:
        connection = Connection(Config(), ours, ("", 0), ("", 0))
        with path.open("rb") as file:
            connection.sock.sendfile(file, 0, path.stat().st_size)
        connection.send()
        assert connection.unsent, "the client takes no more"
        received = client.recv(1_000_000)
        assert path.read_bytes().startswith(received)
        assert not connection.overread
        path.unlink()
        connection.send()
        assert connection.overread
        assert not connection.unsent
