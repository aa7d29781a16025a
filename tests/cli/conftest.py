"""What the tests of commands share."""

import re
import shlex
import textwrap

import pytest


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
