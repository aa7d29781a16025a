"""What the tests of commands share."""

import re
import shlex
import textwrap

import pytest

from app import create_app
from samples import TUESDAY_NOON


@pytest.fixture
def noon(at):
    at(TUESDAY_NOON)


@pytest.fixture
def session(flask):
    """Run a session as the pages print one: `$ flask …`, its output, and its status unless 0: [1].

    Secrets are printed without what is secret: tms_, whsec_.
    """

    def run(printed):
        commands = re.findall(r"^\$ flask (.*)\n((?:(?!\$).*\n)*)", textwrap.dedent(printed), re.M)
        assert commands
        for command, expected in commands:
            result = flask(*shlex.split(command))
            output = re.sub(r"(tms_|whsec_)\S+", r"\1", result.output)
            status = f"[{int(result.exit_code)}]\n" if result.exit_code else ""
            assert output + status == expected, command

    return run


@pytest.fixture
def flask_with(settings):
    """Run a `flask` command with other settings: `flask_with(port=80)("check")`."""

    def change(**changes):
        runner = create_app(settings._replace(**changes)).test_cli_runner()
        return lambda *words: runner.invoke(args=[*words])

    return change
