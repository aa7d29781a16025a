"""A proxy in front of a local server that can fall silent, be slow or reset its connections."""

import contextlib
import socket
import struct
import threading
import time


class Proxy:
    """Forward connections to `127.0.0.1:port` to the Unix socket `upstream`, both ways.

    By default nothing is changed. `delay` slows each piece. A connection over which `hang_up_at` is
    sent is closed.
    """

    def __init__(self, upstream):
        self._upstream = str(upstream)
        self._pairs, self.delay, self.hang_up_at = [], 0, None
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self):
        """Discard everything sent over the present connections; serve new ones."""
        for pair in self._pairs:
            pair.silent = True

    def reset(self):
        """Reset the present connections."""
        for pair in self._pairs:
            pair.close(reset=True)

    def close(self):
        self._listener.close()
        self.reset()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._upstream)
            except OSError:
                client.close()
                server.close()
                continue
            self._pairs = [pair for pair in self._pairs if not pair.closed]
            self._pairs.append(_Pair(self, client, server))


class _Pair:
    def __init__(self, proxy, client, server):
        self.silent = self.closed = False
        self._sockets = (client, server)
        for source, target in ((client, server), (server, client)):
            pump = threading.Thread(target=self._pump, args=(proxy, source, target), daemon=True)
            pump.start()

    def _pump(self, proxy, source, target):
        with contextlib.suppress(OSError):
            while piece := source.recv(65_536):
                if proxy.delay:
                    time.sleep(proxy.delay)
                if proxy.hang_up_at and proxy.hang_up_at in piece:
                    break
                if not self.silent:
                    target.sendall(piece)
        if not self.silent:
            self.close()

    def close(self, reset=False):
        self.closed = True
        for end in self._sockets:
            with contextlib.suppress(OSError):
                if reset and end.family == socket.AF_INET:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    end.shutdown(socket.SHUT_RD)  # a pump that reads would keep the socket open
                else:
                    end.shutdown(socket.SHUT_RDWR)
            end.close()
