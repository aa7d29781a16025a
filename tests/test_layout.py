"""The layout: which package imports which, one way only; pinned requirements."""

import ast
import re

import pytest

from running import ROOT
from sources import AT_ROOT, IN_PACKAGE, SOURCES

LEVELS = (
    {"logs", "carriers", "recipients", "database"},
    {"access", "settings"},
    {"events"},
    {"messages"},
    {"reports"},
    {"replies"},
    {"sending"},
    {"web", "desk", "cli", "monitoring"},
)
"""The packages and modules of `texting`: each imports from the levels above it, and from BESIDE."""

BESIDE = {
    "settings": {"access"},  # the form of limits
    "monitoring": {"web"},
    "desk": {"monitoring"},
    "cli": {"monitoring"},
}
PURE = {"carriers", "recipients"}
"""Import nothing of ours."""

ROOT_LEVELS = ({"schemas", "models"}, {"api"}, {"scheduler", "app"}, {"gunicorn.conf"})
"""The modules that are started, and what they consist of: each imports from those above it."""

DESK = (
    *("lists", "words", "grouping", "entries", "cards", "results", "sessions", "auth"),
    *("do_not_call", "keys", "replies", "overview", "messages", "__init__"),
)
"""The modules of the desk; each imports from those before it."""

OWNERS = {  # of packages
    "flask": {"app", "api", "web", "monitoring", "cli", "desk"},
    "werkzeug": {"api", "web", "monitoring", "desk", "gunicorn.conf"},
    "flask_wtf": {"desk"},
    "itsdangerous": {"access"},
    "segno": {"cli"},
    "gunicorn": {"gunicorn.conf", "web"},
    "gevent": {"gunicorn.conf", "web"},
    "playhouse": {"database"},
    "marshmallow": {"schemas"},
    "phonenumbers": {"recipients", "carriers"},
    "babel": {"recipients"},
    "holidays": {"recipients"},
    "regex": {"carriers", "replies"},
    "apprise": {"carriers", "monitoring"},
    "cryptography": {"carriers"},
}
PACKAGES = set().union(*LEVELS)
MODULES = set().union(*ROOT_LEVELS)


def place_of(path):
    """Return the package, or the module at the root or beside the packages, that a file is of."""
    *folders, name = path.relative_to(ROOT).parts
    if folders[:1] == ["texting"]:
        return folders[1] if folders[1:] else name.removesuffix(".py")
    return name.removesuffix(".py")


def imported(path):
    """Return the full names of what a file imports, wherever in it the import stands."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: write imports out"
            names |= {f"{node.module}.{each.name}" for each in node.names}
    return names


def first_words(names):
    return {name.partition(".")[0] for name in names}


def of_texting(path):
    """Return the packages and modules of `texting` that a file imports."""
    return {name.split(".")[1] for name in imported(path) if name.startswith("texting.")}


def against_the_levels(place, names, levels, beside=frozenset()):
    """Return which of these names a place may not import."""
    level = next(number for number, places in enumerate(levels) if place in places)
    return names - set().union(*levels[:level], beside, {place})


@pytest.mark.parametrize("path", IN_PACKAGE, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_within_the_package_run_one_way(path):
    place = place_of(path)
    if place == "__init__":
        assert imported(path) == set()
        return
    assert against_the_levels(place, of_texting(path), LEVELS, BESIDE.get(place, set())) == set()
    assert place not in PURE or of_texting(path) <= {place}


def test_the_package_imports_nothing_of_the_root():
    root = MODULES | {"migrations", "tests", "benchmarks", "bin"}
    assert [path for path in IN_PACKAGE if first_words(imported(path)) & root] == []


@pytest.mark.parametrize("path", AT_ROOT, ids=lambda path: path.name)
def test_modules_at_the_root_import_one_way(path):
    names = first_words(imported(path)) & MODULES
    assert against_the_levels(path.stem, names, ROOT_LEVELS) == set()


def test_an_import_that_goes_back_is_found(tmp_path):
    planted = tmp_path / "planted.py"
    for text in ("from texting.sending import claims", "import texting.sending.claims as c"):
        planted.write_text(f"def late():\n    {text}\n")
        assert against_the_levels("messages", of_texting(planted), LEVELS) == {"sending"}
    planted.write_text("def late():\n    from schemas import load\n")
    assert first_words(imported(planted)) & MODULES == {"schemas"}


def test_the_modules_of_the_desk_import_one_way():
    assert {path.stem for path in ROOT.glob("texting/desk/*.py")} == {*DESK}
    for level, name in enumerate(DESK):
        for each in imported(ROOT / "texting/desk" / f"{name}.py"):
            if each.startswith("texting.desk."):
                assert each.split(".")[2] in DESK[:level], name


def test_packages_of_one_level_import_in_no_circle():
    for place, others in BESIDE.items():
        assert all(place not in BESIDE.get(other, set()) for other in others)


def test_every_module_has_its_place():
    assert {path.stem for path in AT_ROOT} == MODULES
    assert {place_of(path) for path in IN_PACKAGE} - {"__init__"} == PACKAGES


@pytest.mark.parametrize("package", OWNERS)
def test_only_its_owners_import_a_package(package):
    importing = {place_of(path) for path in SOURCES if package in first_words(imported(path))}
    assert importing <= OWNERS[package]


def test_nobody_imports_a_name_with_an_underscore():
    for path in [*SOURCES, *ROOT.glob("tests/**/*.py")]:
        last = {name.rpartition(".")[2] for name in imported(path)}
        assert [name for name in last if re.match("_(?!_)", name)] == [], path


@pytest.mark.parametrize("word", ["on_postgres", ".for_update", "json_each", "unnest(", "LATERAL"])
def test_only_the_database_asks_which_it_is(word):
    asking = {place_of(path) for path in SOURCES if word in path.read_text()}
    assert asking <= {"database"}


def test_migrations_import_nothing_of_ours():
    for path in ROOT.glob("migrations/*.py"):
        assert first_words(imported(path)) & {"texting", *MODULES} == set()


def test_every_package_is_in_the_plan_for_contributors():
    plan = (ROOT / "docs" / "contributing.md").read_text()
    places = PACKAGES | MODULES - {"gunicorn.conf"}
    shown = re.compile(r"`(?:texting/)?([\w.]+?)(?:/|\.py)`")
    assert places - {*shown.findall(plan)} == set()


@pytest.mark.parametrize("name", ["requirements", "requirements-dev"])
def test_all_requirements_are_pinned_with_hashes_and_none_is_missing(name):
    text = (ROOT / f"{name}.txt").read_text().replace("\\\n", "")
    packages = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    assert packages
    pin = r"[a-z0-9._-]+(\[.*\])?==\S+( ;.*?)?(\s+--hash=sha256:[0-9a-f]{64})+"
    assert [line for line in packages if not re.fullmatch(pin, line)] == []
    pinned = {re.split(r"[=\[]", line)[0] for line in packages}
    wanted = re.findall(r"^([a-zA-Z][\w.-]*)", (ROOT / f"{name}.in").read_text(), re.MULTILINE)
    assert {package.lower() for package in wanted} <= pinned


def test_all_images_of_others_are_pinned_by_digest():
    text = (ROOT / "Dockerfile").read_text() + (ROOT / "compose.yaml").read_text()
    images = set(re.findall(r"(?:FROM|image:) (\S+)", text)) - {"text-messages"}  # is built here
    assert {image.partition(":")[0] for image in images} == {"python", "postgres"}
    pin = r"[a-z]+:\d+\.\d+[\w.-]*@sha256:[0-9a-f]{64}"
    assert [image for image in images if not re.fullmatch(pin, image)] == []
