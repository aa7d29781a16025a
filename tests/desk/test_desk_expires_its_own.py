"""A form of the desk expires what is too old among its own texts, and leaves the rest to a pass."""

from datetime import timedelta

from desk_visitor import Visitor, ask, issue
from models import Message, Status
from samples import TUESDAY_NOON
from stored_messages import again, statuses, store_many

HOUR = timedelta(hours=1)


def test_only_the_texts_of_the_form_expire_in_its_request(app, at):
    old, young = ask(first_send_at=TUESDAY_NOON), ask(send_at=TUESDAY_NOON + 72 * HOUR)
    store_many(100, status=Status.QUEUED, first_send_at=TUESDAY_NOON)
    at(TUESDAY_NOON + 73 * HOUR)
    approver = Visitor(app)
    approver.sign_in(issue("Ann", "front"))
    approver.press("Approve selected", selected=[old, young])
    assert again(old).status == Status.EXPIRED
    assert not again(old).approved
    assert again(young).approved_by == "Ann"
    assert statuses()[Status.EXPIRED] == 1
    assert Message.expire(TUESDAY_NOON + 73 * HOUR) == 100  # as a pass does


def test_a_form_without_texts_expires_nothing(app, at):
    ask(first_send_at=TUESDAY_NOON)
    at(TUESDAY_NOON + 73 * HOUR)
    approver = Visitor(app)
    approver.sign_in(issue("Ann", "front"))
    approver.press("Approve selected", selected=[])
    assert "No text was selected" in approver.page.text
    assert statuses() == {Status.QUEUED: 1}
