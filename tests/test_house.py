"""The house: which module imports which, which packages each may use, and pinned requirements."""

import ast
import importlib
import inspect
import re
from datetime import timedelta
from functools import cache

import pytest

import database
from running import ROOT

OURS = {path.stem for path in ROOT.glob("*.py")} - {"gunicorn.conf"} | {
    *("carriers", "cli", "desk", "monitoring", "recipients", "sending"),
}
STORED = {
    *("database", "audit", "limits", "keys", "do_not_call"),
    *("events", "models", "receipts", "reports"),
}
ALLOWED = {
    "logs": set(),
    "settings": {"logs", "limits"},
    "recipients": set(),
    "carriers": set(),
    "database": set(),
    "limits": {"database"},
    "audit": {"database"},
    "keys": {"database", "audit", "limits"},
    "do_not_call": {"database", "audit"},
    "inserts": {"database"},
    "events": {"database", "audit", "keys", "carriers"},
    "models": {"database", "audit", "limits", "keys", "do_not_call", "events"},
    "acceptance": {"database", "inserts", "keys", "limits", "models"},
    "receipts": {"database", "do_not_call", "models", "carriers", "recipients"},
    "reports": {"database", "limits", "keys", "models"},
    "schemas": {"database", "recipients"},
    "deliveries": {"database", "events", "models", "carriers"},
    "notices": {"database", "models", "reports", "carriers", "monitoring", "settings"},
    "sending": STORED | {"carriers", "recipients", "settings"},
    "scheduler": STORED | {"sending", "deliveries", "notices", "settings", "logs", "carriers"},
    "web": {"schemas"},
    "cli": STORED | {"notices", "recipients", "monitoring", "carriers"},
    "api": STORED | {"acceptance", "carriers", "schemas", "recipients", "web", "settings"},
    "callbacks": {"web", "models", "receipts", "carriers"},
    "monitoring": STORED | {"sending", "carriers", "schemas", "web"},
    "desk": STORED | {"carriers", "sending", "recipients", "settings"},
    "app": OURS - {"sending", "scheduler"},
}


def name_of(path):
    """Return the name of a file in the house: `api`, `cli/keys`."""
    return path.relative_to(ROOT).with_suffix("").as_posix()


CLI = {*map(name_of, ROOT.glob("cli/*.py"))}
DESK = {*map(name_of, ROOT.glob("desk/*.py"))}
OWNERS = {
    "flask": {"app", "api", "callbacks", "web", "monitoring/pages", *CLI, *DESK},
    "flask_wtf": {"desk/sessions"},
    "wtforms": {"desk/sessions"},
    "gunicorn": {"gunicorn.conf"},
    "gevent": {"gunicorn.conf"},
    "werkzeug": {"app", "api", "web", "monitoring/pages", "gunicorn.conf", *DESK},
    "peewee": {
        *(*STORED, "notices", "sending/carrier_state", "sending/claims"),
        *map(name_of, ROOT.glob("migrations/*.py")),
    },
    "playhouse": {"database"},
    "marshmallow": {"schemas"},
    "phonenumbers": {"recipients/__init__", "carriers/opt_outs"},
    "babel": {"recipients/__init__"},
    "holidays": {"recipients/calendars"},
    "environs": {"settings"},
    "dotenv": {"settings"},
    "apprise": {"carriers/apprise", "notices"},
    "urllib3": {"carriers/http"},
    "regex": {"carriers/alphabets"},
    "certifi": {"carriers/tls"},
}
SOURCES = [
    *ROOT.glob("*.py"),
    *ROOT.glob("carriers/*.py"),
    *ROOT.glob("cli/*.py"),
    *ROOT.glob("desk/*.py"),
    *ROOT.glob("monitoring/*.py"),
    *ROOT.glob("recipients/*.py"),
    *ROOT.glob("sending/*.py"),
    *ROOT.glob("migrations/*.py"),
]


def tree(path):
    return ast.parse(path.read_text(), path)


@cache
def imported(path):
    """Return the top-level names of all modules that a file imports anywhere in it."""
    names = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("name", ALLOWED)
def test_a_module_imports_only_what_it_may(name):
    folder = ROOT / name
    paths = folder.glob("*.py") if folder.is_dir() else [folder.with_suffix(".py")]
    for path in paths:
        assert (OURS & imported(path)) - {name} <= ALLOWED[name]


@pytest.mark.parametrize("package", OWNERS)
def test_only_its_owners_import_a_package(package):
    assert {name_of(path) for path in SOURCES if package in imported(path)} <= OWNERS[package]


def test_every_module_has_its_place():
    assert {*ALLOWED} == OURS


def test_every_module_is_in_the_plan_for_contributors():
    plan = (ROOT / "docs" / "contributing.md").read_text()
    assert [name for name in OURS if f"`{name}.py`" not in plan and f"`{name}/`" not in plan] == []


def test_migrations_import_nothing_of_ours():
    for path in ROOT.glob("migrations/*.py"):
        assert not OURS & imported(path)


def test_exactly_one_function_reads_the_clock():
    readers = [
        (path.stem, function.name)
        for path in SOURCES
        for function in ast.walk(tree(path))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute) and node.attr in {"now", "utcnow", "today"}
        if isinstance(node.value, ast.Name) and node.value.id in {"datetime", "date"}
    ]
    assert readers == [("models", "clock")]


@pytest.mark.parametrize("name", ["requirements", "requirements-dev"])
def test_all_requirements_are_pinned_and_none_is_missing(name):
    lines = (ROOT / f"{name}.txt").read_text().splitlines()
    packages = [line for line in lines if line and not line.lstrip().startswith("#")]
    assert packages
    assert all(re.fullmatch(r"[a-z0-9._-]+(\[.*\])?==\S+( ;.*)?", line) for line in packages)
    pinned = {re.split(r"[=\[]", line)[0] for line in packages}
    wanted = re.findall(r"^([a-zA-Z][\w.-]*)", (ROOT / f"{name}.in").read_text(), re.MULTILINE)
    assert {package.lower() for package in wanted} <= pinned


def test_the_tests_mirror_the_house():
    rooms = OURS | {"house", "migrations", "readme", "docs", "promises"}
    for path in ROOT.glob("tests/test_*.py"):
        room = path.stem.removeprefix("test_")
        assert any(room == name or room.startswith(f"{name}_") for name in rooms), path.name


def test_every_module_has_a_docstring():
    assert [path.name for path in SOURCES if not ast.get_docstring(tree(path))] == []


QUERYLESS = [
    *(ROOT / f"{name}.py" for name in ("api", "app", "callbacks", "web")),
    *(path for room in ("cli", "desk", "monitoring") for path in ROOT.glob(f"{room}/*.py")),
]
BUILDERS = {
    *("select", "where", "orwhere", "order_by", "group_by", "returning", "raw", "execute"),
    *("execute_sql", "atomic", "insert", "insert_many", "bulk_create", "get_or_create"),
    *("get_or_none", "get_by_id", "delete_by_id", "delete_instance", "save", "tuples", "scalar"),
}


def bound(source):
    """What the names are that a source imports of our modules, wherever in it."""
    names = {}
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in OURS:
                    module = alias.name if alias.asname else alias.name.partition(".")[0]
                    names[alias.asname or module] = importlib.import_module(module)
        elif isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] in OURS:
            module = importlib.import_module(node.module)
            for alias in node.names:
                if alias.name != "*" and hasattr(module, alias.name):
                    names[alias.asname or alias.name] = getattr(module, alias.name)
    return names


def table(node, names):
    """The table that a name or `module.name` stands for, or None."""
    meant = None
    if isinstance(node, ast.Name):
        meant = names.get(node.id)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        meant = getattr(names.get(node.value.id), node.attr, None)
    return meant if isinstance(meant, type) and issubclass(meant, database.Table) else None


def own(model, name):
    """Whether a table's class itself defines a name, other than as a column or by peewee."""
    defined = vars(model).get(name)
    ours = isinstance(defined, classmethod | staticmethod | timedelta | int)
    return ours or inspect.isfunction(defined)


def queries(source):
    """The lines on which a source builds a query, or takes a table for more than its methods."""
    names = bound(source)
    allowed = set()  # nodes at which a table may be named
    for node in ast.walk(source):
        if isinstance(node, ast.Attribute) and (model := table(node.value, names)):
            allowed |= {node.value} if own(model, node.attr) else set()
        for field in ("annotation", "returns"):
            if annotation := getattr(node, field, None):
                allowed |= {*ast.walk(annotation)}
    lines = set()
    for node in ast.walk(source):
        if isinstance(node, ast.Attribute) and node.attr in BUILDERS:
            lines.add(node.lineno)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            modules = [getattr(node, "module", None), *(alias.name for alias in node.names)]
            roots = {module.partition(".")[0] for module in modules if module}
            lines |= {node.lineno} if roots & {"peewee", "playhouse", "*"} else set()
        elif node not in allowed and table(node, names):
            lines.add(node.lineno)
    return sorted(lines)


@pytest.mark.parametrize("path", QUERYLESS, ids=name_of)
def test_views_and_commands_compose_no_queries(path):
    assert queries(tree(path)) == []


@pytest.mark.parametrize(
    "line",
    [
        "import peewee",
        "def f():\n    from peewee import fn",
        "from models import *",
        "from models import Message\nMessage.select()",
        "from models import Message\nMessage.update(status=1)",
        "from models import Message as Text\nText.delete()",
        "from models import Message\nText = Message\nText.update({})",
        "from models import Message\nlist(Message)",
        "from models import Message\nMessage.id == 1",
        "from models import Message\ngetattr(Message, 'select')()",
        "from models import Message\nMessage.get(1)",
        "import models\nmodels.Message.insert({})",
        "import models as m\nm.Message.to",
        "from keys import ApiKey\nApiKey.create(name='a')",
        "from do_not_call import DoNotCall\nDoNotCall.insert_many([])",
        "import reports\nreports.seen_by(1, []).where(True)",
        "def f(message):\n    message.save()",
        "from database import db\ndb.execute_sql('DELETE FROM message')",
    ],
)
def test_the_check_finds_a_query_however_it_is_spelt(line):
    assert queries(ast.parse(line))


def test_the_check_lets_a_tables_own_methods_be():
    line = (
        "from models import Message\ndef f(m: Message) -> Message:\n    return Message.find(m.id)"
    )
    assert queries(ast.parse(line)) == []
