"""The page "Replies": who sees what, in which order, and what its buttons do."""

import uuid
from datetime import timedelta

import pytest

from access.do_not_call import DoNotCall
from carriers import Reply as Said
from carriers.ways import Way
from desk import lists
from desk_visitor import Visitor, issue, next_page, rows
from models import Message, Status
from samples import LONDON, NEW_YORK, TUESDAY_NOON
from sending import inbound
from sending.inbound import ReplyRules
from sending.replies import Reply
from stored_messages import held, key_named

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
RULES = ReplyRules(Way("twilio"), False, None, None)


def sent(text="Your appointment is on Friday.", key="shop", group="front", shared=True, **columns):
    at = TUESDAY_NOON - 2 * HOUR
    of = {"key": key_named(key, group), "available_to_group": shared, "created_at": at}
    return held(Status.SENT, finished_at=at, message=text, **of | columns)


def hear(text, number=NEW_YORK, at=TUESDAY_NOON - HOUR):
    inbound.record([Said(number, text, at)], TUESDAY_NOON, RULES)
    return Reply.get(Reply.text == text)


def value(reply):
    """What a button of this reply sends."""
    return lists.write(reply.place)


def shown(visitor, path="/desk/replies"):
    """The texts of the replies on a page, in their order."""
    visitor.open(path)
    return [row for row in rows(visitor) if row.startswith("reply")]


def test_a_reply_is_shown_with_the_text_that_it_answers(operator):
    message = sent()
    hear("reply <b>one</b>")
    operator.open("/desk/replies")
    text = operator.page.text
    assert "Replies 1 unread" in text
    assert "+1 212-555-0123" in text
    assert "reply <b>one</b>" in text
    assert "Your appointment is on Friday." in text
    assert "60 minutes ago" in text or "1 hour ago" in text
    assert f"/desk/messages/{message.id}?back=replies" in operator.page.links


def test_first_comes_what_may_be_a_no_then_what_is_unread_then_the_rest(operator):
    for n, words in enumerate(("reply a", "reply b, don't stop", "reply c", "reply d: stpo")):
        hear(words, at=TUESDAY_NOON - HOUR + n * MINUTE)
    Reply.mark_read([Reply.get(Reply.text == "reply c").id], "Bob", TUESDAY_NOON)
    hear("STOP", LONDON, at=TUESDAY_NOON)
    assert shown(operator) == ["reply d", "reply b", "reply a", "reply c"]
    text = operator.page.text
    assert "Replies 3 unread" in text
    assert text.index("reply a") < text.index("STOP") < text.index("reply c")
    assert "read by Bob" in operator.page.text


@pytest.mark.parametrize(
    ("columns", "visible"),
    [
        ({}, True),
        ({"shared": False}, False),
        ({"key": "bank", "group": "back"}, False),
        ({"key": "loner", "group": None}, False),
    ],
)
def test_an_approver_sees_the_replies_to_texts_of_the_group(approver, operator, columns, visible):
    message = sent(**columns)
    reply = hear("reply one")
    assert shown(operator) == ["reply one"]
    assert shown(approver) == (["reply one"] if visible else [])
    approver.post("/desk/replies", [("csrf_token", approver.token), ("read", value(reply))])
    assert bool(Reply.get().read_at) == visible
    assert (Reply.get().read_by == "Ann") == visible
    assert message.id == Reply.get().message_id


def test_a_reply_to_no_text_is_for_operators(approver, operator):
    hear("reply one")
    assert shown(operator) == ["reply one"]
    assert "To no text of the last 30 days" in operator.page.text
    assert shown(approver) == []
    assert "Nobody has replied yet." in approver.page.text


def test_a_key_without_a_group_is_told_why_it_sees_none(app):
    visitor = Visitor(app)
    visitor.sign_in(issue("Al"))
    visitor.open("/desk/replies")
    assert "This key belongs to no group" in visitor.page.text


def test_mark_as_read(approver):
    sent()
    first, second = hear("reply one"), hear("reply two: stpo")
    approver.open("/desk/replies")
    approver.press("Mark as read", second)
    assert "The reply of +1 212-555-0123 was marked as read." in approver.page.text
    read = Reply.get_by_id(second.id)
    assert (read.read_by, read.read_at, read.may_be_no) == ("Ann", TUESDAY_NOON, False)
    assert shown(approver) == ["reply one", "reply two"]
    assert len(approver.page.buttons("Mark as read")) == 1
    approver.post("/desk/replies", [("csrf_token", approver.token), ("read", value(second))])
    assert "The reply of +1 212-555-0123 was read before." in approver.page.text
    assert Reply.get_by_id(first.id).read_at is None


def test_add_to_do_not_call_reads_it_and_all_else_that_was_to_be_decided(operator):
    first, second = hear("reply one: stpo"), hear("reply two")
    third = hear("reply three: quitt")
    operator.open("/desk/replies")
    operator.press("Add to Do Not Call", first)
    assert "+1 212-555-0123 is on the Do Not Call list now." in operator.page.text
    assert DoNotCall.entry(NEW_YORK).source == "operator"
    assert Reply.get_by_id(first.id).read_by == Reply.get_by_id(third.id).read_by == "Olga"
    assert Reply.get_by_id(second.id).read_at is None
    assert operator.page.buttons("Add to Do Not Call") == []
    assert "on the Do Not Call list" in operator.page.text


def test_an_approver_puts_nobody_on_the_list(approver):
    sent()
    reply = hear("reply one: stpo")
    approver.open("/desk/replies")
    assert approver.page.buttons("Add to Do Not Call") == []
    sent_form = [("csrf_token", approver.token), ("list", value(reply))]
    assert approver.post("/desk/replies", sent_form).status_code == 403
    assert not DoNotCall.select().count()


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({}, 400),
        ({"read": "nonsense"}, 400),
        ({"read": "selected"}, 400),
        ({"read": "x-1-0"}, 400),
        ({"read": f"0-{10**30}-{'0' * 32}"}, 400),
        ({"read": f"0-0-{'0' * 32}"}, 200),
        ({"list": f"0-0-{'0' * 32}"}, 200),
        ({"undo-list": f"0-0-{'0' * 32}"}, 200),
    ],
)
def test_what_no_button_sends_changes_nothing(operator, form, status):
    hear("reply one")
    operator.open("/desk/replies")
    fields = [("csrf_token", operator.token), *form.items()]
    assert operator.post("/desk/replies", fields).status_code == status
    assert Reply.get().read_at is None
    assert operator.post("/desk/replies", [*form.items()]).status_code == 400  # without the token


@pytest.mark.parametrize(
    "after", ["x", "1-2", "0-1-zz", f"-1-0-{'0' * 32}", f"0-{10**30}-{'0' * 32}"]
)
def test_a_page_that_there_is_none_of_is_404(operator, after):
    operator.open(f"/desk/replies?after={after}")
    assert operator.response.status_code == 404


def test_pages_follow_one_another_without_gaps(operator, approver):
    message = sent()
    for n in range(130):
        at = TUESDAY_NOON - (n % 13) * MINUTE
        Reply.create(
            id=uuid.uuid4(), carrier="x", number=LONDON, text=f"reply {n}", at=at, received_at=at,
            key=message.key_id, available_to_group=True, message_id=message.id,
            may_be_no=n % 3 == 0, read_at=at if n % 3 == 2 else None,
        )  # fmt: skip
    for visitor in (operator, approver):
        seen, path = [], "/desk/replies"
        while path:
            page = shown(visitor, path)
            assert 0 < len(page) <= 50
            seen += page
            path = next_page(visitor)
        kinds = [int(each.split()[1]) % 3 for each in seen]
        assert len({*seen}) == len(seen) == 130
        assert kinds == sorted(kinds)


def test_a_texts_own_page_has_its_replies_and_stays_after_a_button(approver):
    message = sent()
    reply = hear("reply one")
    hear("reply two", LONDON)
    path = f"/desk/messages/{message.id}"
    assert shown(approver, path) == ["reply one"]
    approver.press("Mark as read", reply)
    assert approver.at == path
    assert "The reply of +1 212-555-0123 was marked as read." in approver.page.text
    assert Reply.get_by_id(reply.id).read_by == "Ann"


def test_a_reply_to_a_text_that_was_purged_is_still_shown(operator, approver):
    message = sent()
    hear("reply one")
    Message.delete().where(Message.id == message.id).execute()
    assert shown(operator) == shown(approver) == ["reply one"]


def test_a_reply_cannot_hide_what_it_says(operator):
    hear("reply one \u202e evil \u200b")
    operator.open("/desk/replies")
    assert "U+202E" in operator.page.text
    assert "U+200B" in operator.page.text


def test_what_waits_for_its_other_parts_is_not_shown_yet(operator):
    inbound.record([Said(NEW_YORK, "reply one", part=("7", 2, 1))], TUESDAY_NOON - MINUTE, RULES)
    assert shown(operator) == []
    Reply.update(due_at=TUESDAY_NOON).execute()
    assert shown(operator) == ["reply one"]


def test_the_text_that_answers_a_reply_says_so(operator):
    sent()
    inbound.record([Said(NEW_YORK, "HELP")], TUESDAY_NOON, RULES._replace(help_reply="Ask us."))
    answer = Message.get(Message.answers == "HELP")
    Message.update(status=Status.FAILED, finished_at=TUESDAY_NOON).where(
        Message.id == answer.id
    ).execute()
    operator.open(f"/desk/messages/{answer.id}")
    assert "queued by itself, to answer a HELP" in operator.page.text
    assert operator.page.buttons("Retry") == []
