"""The house: which room imports which, one way only; pinned requirements."""

import re

import pytest

from running import ROOT

LEVELS = (
    {"logs", "carriers", "recipients", "database", "version"},
    {"access", "settings", "schemas"},
    {"events"},
    {"messages"},
    {"acceptance", "reports"},
    {"replies"},
    {"sending"},
    {"api", "web", "desk", "cli", "monitoring"},
    {"models"},
    {"scheduler", "app"},
)
"""Each imports from those above it; what it may import beside that is in BESIDE."""

BESIDE = {
    "settings": {"access"},  # the form of limits
    "api": {"web"},
    "monitoring": {"web"},
    "desk": {"monitoring"},
    "cli": {"monitoring"},
}
PURE = {"carriers": set(), "recipients": set(), "schemas": {"recipients", "database"}}
DESK = (
    *("lists", "words", "alike", "entries", "cards", "results", "sessions", "door"),
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
    "urllib3": {"carriers"},
    "cryptography": {"carriers"},
}
IMPORT = re.compile(r"^\s*(?:from (\S+) import (.+)|import (\S+))", re.MULTILINE)
ROOMS = set().union(*LEVELS)
SOURCES = [path for path in ROOT.glob("*.py") if path.name != "conftest.py"] + [
    path for room in ROOMS for path in ROOT.glob(f"{room}/**/*.py")
]


def room_of(path):
    name = path.relative_to(ROOT).parts[0]
    return name.removesuffix(".py")


def imported(path):
    """The top-level names that a file imports."""
    found = IMPORT.findall(path.read_text())
    return {(module or other).partition(".")[0] for module, _, other in found}


@pytest.mark.parametrize("room", sorted(ROOMS))
def test_imports_run_one_way(room):
    level = next(number for number, rooms in enumerate(LEVELS) if room in rooms)
    may = set().union(*LEVELS[:level], BESIDE.get(room, set()), {room})
    if room in PURE:
        may = PURE[room] | {room}
    for path in SOURCES:
        if room_of(path) == room:
            assert (imported(path) & ROOMS) - may == set(), path


def test_the_modules_of_the_desk_import_one_way():
    assert {path.stem for path in ROOT.glob("desk/*.py")} == {*DESK}
    for level, name in enumerate(DESK):
        for module, names, _ in IMPORT.findall((ROOT / "desk" / f"{name}.py").read_text()):
            room, _, imported = module.partition(".")
            if room == "desk":
                assert {*(imported or names).split(", ")} <= {*DESK[:level]}, name


def test_the_rooms_of_one_level_import_in_no_circle():
    for room, others in BESIDE.items():
        assert all(room not in BESIDE.get(other, set()) for other in others)


def test_every_module_at_the_top_has_its_place():
    assert {path.stem for path in ROOT.glob("*.py")} - {"gunicorn.conf"} <= ROOMS


@pytest.mark.parametrize("package", OWNERS)
def test_only_its_owners_import_a_package(package):
    assert {room_of(path) for path in SOURCES if package in imported(path)} <= OWNERS[package]


def test_nobody_imports_a_name_with_an_underscore():
    for path in [*SOURCES, *ROOT.glob("tests/**/*.py")]:
        for _, names, _ in IMPORT.findall(path.read_text()):
            assert not re.search(r"(^|[ ,(])_", names), path


@pytest.mark.parametrize("word", ["on_postgres", ".for_update", "json_each", "unnest(", "LATERAL"])
def test_only_the_database_asks_which_it_is(word):
    asking = {room_of(path) for path in SOURCES if word in path.read_text()}
    assert asking <= {"database"}


def test_migrations_import_nothing_of_ours():
    for path in ROOT.glob("migrations/*.py"):
        assert not ROOMS & imported(path)


def test_every_room_is_in_the_plan_for_contributors():
    plan = (ROOT / "docs" / "contributing.md").read_text()
    there = {path.relative_to(ROOT).parts[0] for path in SOURCES}
    assert [name for name in there if f"`{name}`" not in plan and f"`{name}/`" not in plan] == []


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
