"""A secret that can be guessed stops the start of every process, with one line for each."""

import pytest

from running import ROOT, free_port

SHORT = {"SECRET_KEY": "x" * 31, "METRICS_TOKEN": "y" * 15}
COMMANDS = {
    "web": ("gunicorn", "-c", ROOT / "gunicorn.conf.py", "app:create_app()"),
    "scheduler": ("scheduler.py",),
    "commands": ("flask", "keys", "list"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_short_secrets_stop_the_start_with_a_line_each(start, name):
    process = start(*COMMANDS[name], PORT=str(free_port()), **SHORT)
    assert process.wait() != 0
    assert process.output.splitlines() == [
        "SECRET_KEY: must have at least 32 characters, chosen at random",
        "METRICS_TOKEN: must have at least 16 characters, chosen at random",
    ]


def test_what_the_docs_print_makes_good_ones(start):
    """docs/deploying.md makes them by these lines."""
    told = (ROOT / "docs" / "deploying.md").read_text()
    for line in (
        'echo "SECRET_KEY=$(openssl rand -hex 32)"',
        'echo "METRICS_TOKEN=$(openssl rand -hex 32)"',
    ):
        assert line in told
    good = {"SECRET_KEY": "0123456789abcdef" * 4, "METRICS_TOKEN": "0123456789abcdef"}
    assert start("flask", "version", **good).wait() == 0
