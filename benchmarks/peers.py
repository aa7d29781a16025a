"""Carriers and receivers of events for benchmarks: `python benchmarks/peers.py twilio`.

Carriers take 50 ms for each text. The receivers are quick, fail, hang or drip.
"""

import asyncio
import contextlib
import itertools
import re
import struct
import sys

DELAY = 0.05  # seconds


def http(respond):
    """Return what answers every request with what `respond()` has: bytes, and seconds between."""

    async def answer(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
                await reader.readexactly(int(length[1]) if length else 0)
                for step in respond():
                    if isinstance(step, bytes):
                        writer.write(step)
                    else:
                        await asyncio.sleep(step)

    return answer


def twilio():
    """Say yes as Twilio does, with a SID of its own."""
    head = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 45\r\n\r\n"
    return DELAY, head + b'{"sid": "SM%032x"}' % next(numbers)


async def answer_smpp(reader, writer):
    """Say yes to every PDU; to a text after the delay."""
    later = asyncio.get_running_loop().call_later
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            length, command, _, number = struct.unpack(">4I", await reader.readexactly(16))
            await reader.readexactly(length - 16)
            reference = b"%d\0" % next(numbers)
            head = struct.pack(">4I", 16 + len(reference), command | 0x80000000, 0, number)
            later(DELAY if command == 4 else 0, writer.write, head + reference)


async def serve(answer):
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


numbers = itertools.count(1)
if __name__ == "__main__":
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\n"
    peers = {
        "twilio": http(twilio),
        "smpp": answer_smpp,
        "quick": http(lambda: [b"HTTP/1.1 204 No Content\r\n\r\n"]),
        "failing": http(lambda: [b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"]),
        "hanging": http(lambda: [60]),
        "dripping": http(lambda: [head, *60 * [1, b"."]]),
    }
    asyncio.run(serve(peers[sys.argv[1]]))
