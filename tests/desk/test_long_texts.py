"""Lists show long texts up to the sixth line, and say how much there is."""

import pytest

from databases import on_sqlite
from desk import entries
from desk_visitor import ask

LONG = "\n".join(f"line {n}" for n in range(20))


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("", ""),
        ("Hello", ""),
        ("\n".join("123456"), ""),
        ("\n".join("1234567"), "long"),
        ("\n" * 6, "long"),
        ("x" * 6 * entries.NARROW, ""),
        ("x" * (6 * entries.NARROW + 1), "long on-phones"),
        ("x" * 6 * entries.WIDE, "long on-phones"),
        ("x" * (6 * entries.WIDE + 1), "long"),
        ("\r\n".join(["x" * (entries.NARROW - 1)] * 6), ""),
    ],
)
def test_a_text_is_folded_after_six_lines(text, folded):
    assert entries.fold(text) == folded


@on_sqlite
@pytest.mark.parametrize("page", ["/desk/", "/desk/messages"])
def test_a_long_text_says_its_parts_and_is_whole_on_its_own_page(operator, page):
    long, _ = ask(LONG * 4), ask("short")
    operator.open(page)
    assert operator.page.text.count("show all") == 1
    assert "line 19 4 parts · show all show less" in operator.page.text
    assert "show all" not in operator.open(f"/desk/messages/{long.id}").text


@on_sqlite
def test_a_long_text_that_was_cleared_or_never_counted_has_nothing_to_show(operator):
    ask(LONG, parts=None)
    operator.open("/desk/messages")
    assert "line 19 show all" in operator.page.text
    ask(None)
    assert operator.open("/desk/messages").text.count("show all") == 1
