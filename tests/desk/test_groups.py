"""Approvers see and change the texts of their group, and nothing of operators."""

import pytest

from access.do_not_call import DoNotCall
from access.keys import ApiKey
from desk_visitor import Visitor, ask, issue
from models import Status
from samples import NEW_YORK, TUESDAY_NOON
from stored_messages import again


@pytest.mark.parametrize(
    "hidden",
    [
        {"key": "other", "group": "back"},
        {"key": "alone", "group": None},
        {"available_to_group": False},
    ],
)
def test_an_approver_sees_and_changes_nothing_of_others(approver, hidden):
    message = ask("theirs", **hidden)
    ask("ours")
    approver.open()
    assert "ours" in approver.page.text
    assert "theirs" not in approver.page.text
    assert approver.open(f"/desk/messages/{message.id}").status_code == 404
    approver.open()
    token = ("csrf_token", approver.token)
    approver.post("/desk/", [token, ("approve", str(message.id))])
    assert "no such message here" in approver.page.text
    approver.post("/desk/", [token, ("refuse", "selected"), ("id", str(message.id))])
    approver.post(f"/desk/messages/{message.id}", [token, ("approve", str(message.id))])
    kept = again(message)
    assert (kept.status, kept.approved, kept.approved_by) == (Status.QUEUED, False, None)


def test_an_approver_without_a_group_reads_why_nothing_is_shown(app):
    ask(key="alone", group=None)
    visitor = Visitor(app)
    visitor.sign_in(issue("Ann"))
    assert "belongs to no group" in visitor.page.text


def test_a_revoked_keys_texts_still_wait(approver):
    ask("still here")
    ApiKey.named("shop").revoke(TUESDAY_NOON)
    approver.open()
    assert "still here" in approver.page.text


@pytest.mark.parametrize("path", ["/desk/messages", "/desk/do-not-call"])
def test_operators_pages_are_closed_to_approvers(approver, path):
    assert approver.open(path).status_code == 403
    assert approver.response.mimetype == "text/html"
    assert not any(path in link for link in approver.page.links)


@pytest.mark.parametrize("button", ["cancel", "retry"])
def test_operators_buttons_are_closed_to_approvers(approver, button):
    status = {"cancel": Status.SCHEDULED, "retry": Status.FAILED}[button]
    message = ask(approved=True, status=status)
    approver.open()
    token = ("csrf_token", approver.token)
    assert approver.post("/desk/", [token, (button, str(message.id))]).status_code == 403
    sent = [token, ("number", NEW_YORK), ("add", "")]
    assert approver.post("/desk/do-not-call", sent).status_code == 403
    assert again(message).status == status
    assert not DoNotCall.lists(NEW_YORK)
