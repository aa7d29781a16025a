"""What changes while a form arrives holds for it: who is signed in, and what time it is."""

import io
from datetime import timedelta
from functools import partial
from urllib.parse import urlencode

import pytest
from werkzeug.test import encode_multipart

from access.keys import ApiKey, Role
from access.sign_ins import SignIn
from desk_visitor import ask
from models import Status
from samples import TUESDAY_NOON
from stored_messages import DAY, again


class SlowForm:
    """A form that arrives when something has happened."""

    def __init__(self, body, meanwhile):
        self.body, self.meanwhile = io.BytesIO(body), meanwhile

    def read(self, *size):
        self.meanwhile()
        return self.body.read(*size)


def post_slowly(visitor, path, meanwhile, as_multipart=False, **fields):
    """Post a form of a page; something happens before it has arrived."""
    fields = {"csrf_token": visitor.token} | fields
    body, kind = urlencode(fields).encode(), "application/x-www-form-urlencoded"
    if as_multipart:
        boundary, body = encode_multipart(fields)
        kind = f"multipart/form-data; boundary={boundary}"
    environ = {"wsgi.input": SlowForm(body, meanwhile), "CONTENT_LENGTH": str(len(body))}
    return visitor.client.post(path, content_type=kind, environ_overrides=environ)


@pytest.mark.parametrize(
    ("action", "as_multipart"), [("approve", False), ("approve", True), ("sign-out", False)]
)
@pytest.mark.parametrize("end", ["revoke", "rotate", "sign-out elsewhere", "twelve hours"])
def test_a_session_that_ends_while_a_form_arrives_changes_nothing(
    app, approver, at, end, action, as_multipart
):
    message = ask()
    approver.open()

    def meanwhile():
        if end == "revoke":
            ApiKey.named("Ann").revoke(TUESDAY_NOON)
        elif end == "rotate":
            ApiKey.named("Ann").rotate(TUESDAY_NOON + DAY, TUESDAY_NOON)
        elif end == "sign-out elsewhere":
            SignIn.delete().execute()
        else:
            at(TUESDAY_NOON + timedelta(hours=12))

    path = "/desk/" if action == "approve" else "/desk/sign-out"
    response = post_slowly(approver, path, meanwhile, as_multipart, approve=str(message.id))
    assert response.status_code == 403
    assert "nothing was changed" in response.text
    assert not again(message).approved


def test_a_role_that_changes_while_a_form_arrives_holds(operator):
    message = ask()
    operator.open()
    demote = lambda: ApiKey.update(role=Role.APPROVER).execute()  # noqa: E731
    response = post_slowly(operator, "/desk/", demote, cancel=str(message.id))
    assert response.status_code == 403
    assert again(message).status == message.status


def test_an_undo_is_too_late_if_its_form_arrives_too_late(approver, at):
    message = ask()
    approver.open()
    approver.press("Refuse", message)
    for seconds, undone in ((60, False), (59, True)):
        late = TUESDAY_NOON + timedelta(seconds=seconds)
        post_slowly(approver, "/desk/", partial(at, late), **{"undo-refuse": message.id.hex})
        assert (again(message).status != Status.CANCELLED) is undone
