"""carriers/console.py: texts on standard output."""

import io
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from carrier_errors import AWKWARD, meaning, refused, send
from texting.carriers import connect


def test_the_console_shows_number_and_text(capsys):
    assert send(connect("console:")) is None
    assert capsys.readouterr().out == "+12125550123 'attack at dawn, 🚀 héllo'\n"


@pytest.mark.parametrize("text", [*AWKWARD, "a\n+12125550199 'another'", "\u202e", "\x9b2J"])
def test_no_text_forges_a_line_of_the_consoles(capsys, text):
    send(connect("console:"), text=text)
    out = capsys.readouterr().out
    assert len(out.splitlines()) == 1
    assert out.removesuffix("\n").isprintable()


def test_the_console_writes_what_its_encoding_lacks_as_escapes(monkeypatch):
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    send(connect("console:"), text="é🚀")
    assert out.buffer.getvalue() == b"+12125550123 '\\xe9\\U0001f680'\n"


def test_a_console_that_cannot_be_written_to_fails_for_now(monkeypatch):
    read, write = os.pipe()
    os.close(read)
    raw = os.fdopen(write, "wb", buffering=0)
    out = io.TextIOWrapper(raw, write_through=True)
    monkeypatch.setattr(sys, "stdout", out)
    assert meaning(refused(connect("console:"))) == "for now"
    raw.close()


def test_the_console_keeps_lines_of_many_threads_apart(capfd):
    carrier = connect("console:", 16)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda i: send(carrier, f"+1212555{i:04}", "x" * 500), range(200)))
    assert sorted(capfd.readouterr().out.splitlines()) == [
        f"+1212555{i:04} '{'x' * 500}'" for i in range(200)
    ]
