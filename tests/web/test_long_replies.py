"""One long text, in as many parts as there are, keeps nobody waiting."""

import time

import pytest

from app import create_app
from databases import on_sqlite
from samples import NEW_YORK
from sending.replies import Reply
from signed_callbacks import SECRET, VONAGE, of_vonage

MOST = 255  # parts
LONGEST = 0.5  # seconds of the processor for one of them


@pytest.mark.slow
@on_sqlite
@pytest.mark.parametrize(
    "text",
    ["x\n" + " " * 39_000 + "x", "x" + "\u0301\u0323" * 8_500],
    ids=["blanks", "marks"],
)
def test_a_long_text_takes_no_long_computation(settings, text):
    changed = settings._replace(carrier_url=VONAGE, public_url="https://sms.example.com")
    client = create_app(changed).test_client()
    size = -(-len(text) // MOST)
    parts = [text[start : start + size] for start in range(0, len(text), size)]
    took = []
    for number, part in enumerate(parts, 1):
        concat = {"concat": "true", "concat-ref": "7", "concat-total": str(len(parts))}
        fields = {"msisdn": NEW_YORK.removeprefix("+"), "to": "ACME", "text": part} | concat
        fields |= {"concat-part": str(number), "messageId": f"{number:016X}"}
        signed = of_vonage(fields, SECRET, "json")
        start = time.thread_time()
        assert client.open("/carriers/vonage/inbound", **signed).status_code == 204
        took.append(time.thread_time() - start)
        assert took[-1] < LONGEST, f"part {number}"
    (reply,) = Reply.select()
    assert (reply.text, reply.due_at) == (text, None)
    assert sum(took) < MOST * LONGEST / 10
