"""`flask audit` about what was undone; tests/access/test_audit.py has the rest."""

from datetime import timedelta

import pytest

from access.audit import Audit
from samples import TUESDAY_NOON
from stored_messages import decide_on, store


@pytest.mark.parametrize(
    ("done", "undo", "named"),
    [
        (lambda m, at: decide_on(m).decide(True, "ann", at), "undo_approval", "message approved"),
        (lambda m, at: decide_on(m).decide(False, "ann", at), "undo_cancel", "message refused"),
        (lambda m, at: decide_on(m).cancel("ann", at), "undo_cancel", "message cancelled"),
    ],
)
def test_the_audit_says_what_was_undone(database_url, run, done, undo, named):
    message = store(manual_mode=True, approved=False)
    assert done(message, TUESDAY_NOON)
    assert getattr(decide_on(message), undo)("ann", TUESDAY_NOON + timedelta(seconds=5))
    newest = Audit.select().order_by(Audit.id.desc()).get()
    assert (newest.what, newest.details) == ("message undone", named)
    assert named in run("audit").splitlines()[1]


def test_of_two_decisions_the_one_that_was_undone_is_named(database_url):
    message = store(manual_mode=True, approved=False)
    now = TUESDAY_NOON
    assert decide_on(message).decide(False, "ann", now)
    assert decide_on(message).undo_cancel("ann", now + timedelta(seconds=1))
    assert decide_on(message).cancel("ann", now + timedelta(seconds=2))
    assert decide_on(message).undo_cancel("ann", now + timedelta(seconds=3))
    undone = [row.details for row in Audit.select().where(Audit.what == "message undone")]
    assert undone == ["message refused", "message cancelled"]
