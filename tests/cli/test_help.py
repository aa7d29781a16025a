"""What `--help` says: a stranger finds the command, and reads all of what it does."""

import re

import click
import pytest

from texting import cli

COMMANDS = cli.Commands("flask")


def everything():
    """All groups and commands, by the words that run them."""
    for name in cli.COMMANDS:
        found = COMMANDS.get_command(None, name)
        yield name, found
        for sub, command in getattr(found, "commands", {}).items():
            yield f"{name} {sub}", command


ALL = dict(everything())


def sections(text):
    """The lines of each section of a help, by its title."""
    parts = re.split(r"^(\S.*):\n", text, flags=re.M)
    return {title: body.splitlines() for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def described(lines):
    """The descriptions in a section, put together again, by the names of the commands."""
    found = {}
    for line in filter(None, lines):
        name, words = re.fullmatch(r"  (\S*) +(.*)", line).groups()
        name = name or [*found][-1]
        found[name] = f"{found.get(name, '')} {words}".strip()
    return found


@pytest.mark.parametrize("words", ALL)
def test_the_help_of_each_command_begins_with_a_sentence(words):
    first = ALL[words].help.split("\n\n")[0].replace("\n", " ")
    assert re.fullmatch(r"[A-Z][a-z]+ .*\.", first), first
    assert len(first.split()) > 2


@pytest.mark.parametrize("words", ALL)
@pytest.mark.parametrize("width", [40, 80])
def test_nothing_is_cut_from_a_help(app, words, width):
    runner = app.test_cli_runner(env={"COLUMNS": str(width)})
    result = runner.invoke(args=[*words.split(), "--help"])
    assert result.exit_code == 0
    _, said = result.output.split("\n\n", 1)  # usages have dots of their own
    assert "…" not in said
    assert "..." not in said


@pytest.mark.parametrize("group", [name for name in ALL if isinstance(ALL[name], click.Group)])
def test_a_group_lists_the_whole_sentence_of_each_command(app, group):
    output = app.test_cli_runner(env={"COLUMNS": "60"}).invoke(args=[group, "--help"]).output
    wanted = {
        name.removeprefix(f"{group} "): command.get_short_help_str(1_000)
        for name, command in ALL.items()
        if name.startswith(f"{group} ")
    }
    assert described(sections(output)["Commands"]) == wanted


@pytest.mark.parametrize("group", [name for name in ALL if isinstance(ALL[name], click.Group)])
def test_a_group_without_a_command_prints_its_help_line_by_line(app, group):
    runner = app.test_cli_runner()
    alone = runner.invoke(args=[group])
    assert alone.exit_code == 2
    assert alone.stderr == runner.invoke(args=[group, "--help"]).output


def test_each_command_is_in_one_section():
    names = [name for section in cli.SECTIONS.values() for name in section]
    assert len(names) == len({*names})
    assert {*cli.COMMANDS} <= {*names}


@pytest.mark.parametrize("words", [["--help"], []])
def test_flask_itself_begins_with_this_service_and_groups_its_commands(start, words, database_url):
    helped = start("flask", *words, DATABASE_URL=database_url, COLUMNS="70")
    assert helped.wait() == 0
    text = helped.output
    assert text.startswith("Operate the Text Message Sending Service: ")
    assert text.count("Usage: flask [OPTIONS] COMMAND [ARGS]...") == 1
    assert "..." not in text.replace("COMMAND [ARGS]...", "")
    found = sections(text)
    for title, names in cli.SECTIONS.items():
        listed = described(found[title])
        assert [*listed] == [name for name in names if name in cli.COMMANDS]
        for name, words in listed.items():
            assert words == ALL[name].get_short_help_str(1_000)
    assert [*described(found["Flask's own, for development"])] == ["run", "shell", "routes"]
    assert "--app" in text


def test_a_command_that_there_is_none_of_is_still_an_error(start, database_url):
    wrong = start("flask", "keyz", DATABASE_URL=database_url)
    assert wrong.wait() == 2
    assert "No such command 'keyz'" in wrong.output
    assert "Operate the" not in wrong.output


def test_a_shell_still_completes_the_names(start, database_url):
    words = {"_FLASK_COMPLETE": "bash_complete", "COMP_WORDS": "flask ke", "COMP_CWORD": "1"}
    asked = start("flask", DATABASE_URL=database_url, **words)
    asked.wait()
    assert asked.output == "plain,keys\n"
