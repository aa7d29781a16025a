"""No regular expression takes long over what a stranger may send: its time grows with the length.

The patterns are found in the sources, so a new one is tested without being named here.
"""

import ast
import importlib
import itertools
import re
import time

import pytest
import regex

from running import ROOT
from schemas import FutureInstant
from sources import SOURCES

LENGTH = 10_000  # characters
LONGEST = 0.1  # seconds of the processor; a pattern of quadratic time takes several times that
MODULES = {"re": re, "regex": regex}
METHODS = ("fullmatch", "match", "search", "sub", "split", "findall", "finditer")
CHARACTERS = " \n\t\u00a0aZ0é_-\u2014.,:/+=\"'([%#\u0301\u200b🛑🇺\ufe0f\0"
PIECES = (*CHARACTERS, "\r\n", "a ", "0 ")
SCRIPTS = "recipients/numbering/make_"  # which developers run over files of their own
LOCAL = {  # what patterns are made of that is known within a function only
    "self": FutureInstant,
    "given": "hex",
    "window": "/([1-9][0-9]{0,3})(min|h|d)",
    "private": r"(?<!\w)s3cret(?!\w)|\+?\d(?:[\s().-]{0,2}\d){6,}",
}


def found():
    """Return the patterns of the sources, each with its flags and how it is applied."""
    paths = sorted(path for path in SOURCES if SCRIPTS not in str(path))
    sources = {path: path.read_text() for path in paths}
    everything = "\n".join(sources.values())
    for path, source in sources.items():
        for target, call in calls(ast.parse(source)):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            names = vars(importlib.import_module(name.removesuffix(".__init__")))
            pattern, flags = pattern_of(call, names)
            applied = {call.func.attr} & {*METHODS}
            if not applied:
                use = rf"\b{target}(?:\[\w+\])?\.({'|'.join(METHODS)})\b"
                applied = {*re.findall(use, everything)}
            compiled = MODULES[call.func.value.id].compile(pattern, flags)
            yield pytest.param(
                compiled, applied or {"fullmatch", "finditer"}, id=f"{name}:{call.lineno}"
            )


def calls(tree):
    """Return the calls of `re` and `regex` that have a pattern, with the name that keeps it."""
    names = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names |= dict.fromkeys(ast.walk(node.value), node.targets[0].id)
    for node in ast.walk(tree):
        function = getattr(node, "func", None)
        of = getattr(getattr(function, "value", None), "id", None)
        if of in MODULES and function.attr in ("compile", *METHODS):
            yield names.get(node, "_"), node


def pattern_of(call, names):
    """Return the pattern and the flags of a call, as its module sees them."""
    pattern = evaluated(call.args[0], names)
    others = [*call.args[1:], *(keyword.value for keyword in call.keywords)]
    flags = 0
    for other in others:
        if re.match(r"(re|regex)\.[A-Z]", ast.unparse(other)):
            flags |= evaluated(other, names)
    return pattern, flags


def evaluated(expression, names):
    return eval(compile(ast.Expression(expression), "pattern", "eval"), {**LOCAL, **names})


def hostile(pattern):
    """Return long runs of all kinds, behind and before what the pattern asks for."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else repr(pattern.pattern)
    words = {*re.findall(r"[A-Za-z]{2,}[ :=]?|[A-Za-z] ", source)}
    words = sorted(words, key=lambda word: (len(word), word))[-8:]
    for piece in (*PIECES, *words, *(f"{word} " for word in words)):
        run = piece * (LENGTH // len(piece))
        for before, after in itertools.product(("", "x\n", *words), ("", "x", "!")):
            text = before + run + after
            yield text.encode() if isinstance(pattern.pattern, bytes) else text


def seconds(apply):
    start = time.thread_time()
    apply()
    return time.thread_time() - start


def applications(pattern, how, text):
    """Return the calls that apply a pattern to a text in these ways."""
    arguments = {"sub": (text[:0], text)}
    for each in sorted(how):
        method = getattr(pattern, each)
        given = arguments.get(each, (text,))
        yield (
            lambda method=method, given=given, each=each: (
                [*method(*given)] if each == "finditer" else method(*given)
            )
        )


PATTERNS = [*found()]


def test_the_patterns_are_found():
    assert len(PATTERNS) > 60


@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "how"), PATTERNS)
def test_a_pattern_takes_no_longer_than_the_text_is_long(pattern, how):
    for text in hostile(pattern):
        for apply in applications(pattern, how, text):
            if seconds(apply) > LONGEST:
                assert seconds(apply) < LONGEST, f"{pattern.pattern!r} on {text[:30]!r}…"
