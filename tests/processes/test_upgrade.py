"""`make test-upgrade`: an older version's tests, on tables that new migrations have changed."""

import os
import shutil
import subprocess
import sys

import pytest

from running import ROOT

AUTHOR = ("-c", "user.name=a", "-c", "user.email=a@b")
LIGHT = {"PYTEST_XDIST_AUTO_NUM_WORKERS": "1", "PYTEST_ADDOPTS": "-p no:schemathesis"}


@pytest.fixture
def project(tmp_path):
    """A project of two commits: the second adds a migration and breaks the tests."""
    project = tmp_path / "project"
    for folder in ("bin", "migrations", "tests"):
        (project / folder).mkdir(parents=True)
    (project / ".venv").symlink_to(sys.prefix)
    (project / ".gitignore").write_text(".venv\n")
    shutil.copy(ROOT / "bin" / "test-upgrade", project / "bin")
    for name in ("api", "scheduler"):
        (project / "tests" / f"test_{name}.py").write_text(
            "from pathlib import Path\n\n"
            "def test_the_tables_are_the_new_ones():\n"
            "    assert Path('migrations/0001_first.py').read_text() == 'old'\n"
            "    assert Path('migrations/0002_second.py').read_text() == 'new'\n"
        )
    (project / "migrations" / "0001_first.py").write_text("old")
    (project / "requirements-dev.txt").touch()
    commit(project)
    (project / "migrations" / "0001_first.py").write_text("changed")
    (project / "migrations" / "0002_second.py").write_text("new")
    commit(project)
    return project


def commit(project):
    git(project, "init", "--quiet")
    git(project, "add", ".")
    git(project, *AUTHOR, "commit", "--quiet", "--message", "a version")


def git(project, *words):
    subprocess.run(["git", *words], cwd=project, check=True)


@pytest.fixture
def run(tmp_path):
    """Run bin/test-upgrade in a project; nothing may be left behind."""

    def test_upgrade(project, *words):
        temporary = tmp_path / "temporary"
        temporary.mkdir(exist_ok=True)
        ran = subprocess.run(
            [project / "bin" / "test-upgrade", *words],
            env=os.environ | LIGHT | {"TMPDIR": str(temporary)},
            capture_output=True,
            text=True,
        )
        assert [*temporary.iterdir()] == []
        return ran

    return test_upgrade


@pytest.mark.parametrize("tag", [None, "1.0"])
def test_the_version_before_is_tested_with_the_new_migrations(project, run, tag):
    """Its last tag is preferred."""
    if tag:
        git(project, "tag", tag, "HEAD^")
    ran = run(project)
    assert ran.returncode == 0, ran.stdout
    assert f"the tests of {tag or ''}" in ran.stdout
    assert ", on tables with 0002_second" in ran.stdout
    assert "2 passed" in ran.stdout


def test_the_version_before_is_tested_with_its_own_packages(project, run):
    """The package is nowhere: to install what a version needs takes a minute."""
    git(project, "checkout", "--quiet", "-b", "older", "HEAD^")
    package = f"no-such-package==1 --hash=sha256:{64 * '0'}"
    (project / "requirements-dev.txt").write_text(f"--no-index\n{package}\n")
    commit(project)
    git(project, "checkout", "--quiet", "-")
    ran = run(project, "older")
    assert ran.returncode == 1
    assert ran.stdout.splitlines()[-1] == "installing its packages ..."
    assert "No matching distribution found for no-such-package==1" in ran.stderr


def test_a_migration_that_is_not_committed_is_tested_too(project, run):
    (project / "migrations" / "0003_third.py").write_text("")
    ran = run(project)
    assert ran.returncode == 1
    assert "on tables with 0003_third" in ran.stdout
    assert "2 failed" in ran.stdout  # as the second commit's tests do


def test_a_clone_without_the_history_says_why_it_cannot(project, run, tmp_path):
    clone = tmp_path / "clone"
    git(project, "clone", "--quiet", "--depth", "1", f"file://{project}", clone)
    ran = run(clone)
    assert ran.returncode == 1
    assert ran.stdout == ""
    (line,) = ran.stderr.splitlines()
    assert "the history before migrations/0002_second.py is missing" in line


@pytest.mark.parametrize(
    ("commit", "says"),
    [("HEAD", "HEAD has all migrations already"), ("1234567", "this clone has no commit 1234567")],
)
def test_a_commit_that_cannot_be_tested_is_named(project, run, commit, says):
    ran = run(project, commit)
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", f"{says}\n")
