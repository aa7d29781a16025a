"""The page "Replies": who sees what, in which order, and what its buttons do."""

import pytest

from access.do_not_call import DoNotCall, LastReply
from access.keys import ApiKey, Role
from carriers import Reply as Said
from carriers.ways import Way
from desk import lists
from desk_visitor import following, next_page, on_both, reply, rows, signed_in
from models import Message, Status
from samples import HOUR, LONDON, MINUTE, NEW_YORK, TUESDAY_NOON
from sending import inbound
from sending.inbound import ReplyRules
from sending.replies import Reply, order
from stored_messages import held, key_named

PAGE = "/desk/replies"
RULES = ReplyRules(Way("twilio"), "asked", None, None)


def sent(text="Your appointment is on Friday.", key="shop", group="front", shared=True, **columns):
    at = TUESDAY_NOON - 2 * HOUR
    of = {"key": key_named(key, group), "available_to_group": shared, "created_at": at}
    return held(Status.SENT, finished_at=at, message=text, **of | columns)


def hear(text, number=NEW_YORK, at=TUESDAY_NOON - HOUR):
    inbound.record([Said(number, text, at)], TUESDAY_NOON, RULES)
    return Reply.get(Reply.text == text)


def shown(visitor, path=PAGE):
    """The texts of the replies on a page, in their order."""
    visitor.open(path)
    return [row for row in rows(visitor) if row.startswith("reply")]


@pytest.fixture
def heard(database_url):
    """Two replies that may be a no, two that wait, and two that were read, as the page has them."""
    told = {}
    for n, words in enumerate(("f", "e", "d", "c", "b: stpo", "a: stpo")):
        to, at = f"+121255500{n:02}", TUESDAY_NOON - HOUR + n * MINUTE
        sent(to=to)
        told[words[0]] = hear(f"reply {words}", to, at)
    Reply.mark_read([told["e"].id, told["f"].id], "Bob", TUESDAY_NOON)
    return [told[words] for words in "abcdef"]


# What is shown


def test_a_reply_is_shown_with_the_text_that_it_answers(operator):
    message = sent()
    hear("reply <b>one</b> \u202e evil \u200b")
    operator.open(PAGE)
    for words in (
        *("Replies 1 unread", "+1 212-555-0123", "reply <b>one</b> U+202E evil U+200B"),
        *("Your appointment is on Friday.", "1 hour ago"),
    ):
        assert words in operator.page.text
    assert f"/desk/messages/{message.id}?back=replies" in operator.page.links


@on_both
def test_first_comes_what_may_be_a_no_then_what_is_unread_then_the_rest(operator):
    for n, words in enumerate(("reply a", "reply b, don't stop", "reply c", "reply d: stpo")):
        hear(words, at=TUESDAY_NOON - HOUR + n * MINUTE)
    Reply.mark_read([Reply.get(Reply.text == "reply c").id], "Bob", TUESDAY_NOON)
    hear("STOP", LONDON, at=TUESDAY_NOON)
    assert shown(operator) == ["reply d", "reply b", "reply a", "reply c"]
    text = operator.page.text
    assert "Replies 3 unread" in text
    assert text.index("reply a") < text.index("STOP") < text.index("reply c")
    assert "read by Bob" in text


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
    one = hear("reply one")
    assert one.message_id == message.id
    assert shown(operator) == ["reply one"]
    assert shown(approver) == (["reply one"] if visible else [])
    approver.send(PAGE, read=lists.write(one.cursor))
    assert Reply.get().read_by == ("Ann" if visible else None)


def test_a_reply_to_no_text_is_for_operators(approver, operator):
    hear("reply one")
    assert shown(operator) == ["reply one"]
    assert "Not a reply to a text of the last 30 days" in operator.page.text
    assert shown(approver) == []
    assert "Nobody has replied yet." in approver.page.text


def test_a_key_without_a_group_is_told_why_it_sees_none(app):
    assert "This key belongs to no group" in signed_in(app, "Al").read(PAGE)


def test_a_reply_to_a_text_that_was_purged_is_still_shown(operator, approver):
    sent()
    hear("reply one")
    Message.delete().execute()
    assert shown(operator) == shown(approver) == ["reply one"]


def test_what_waits_for_its_other_parts_is_not_shown_yet(operator):
    inbound.record([Said(NEW_YORK, "reply one", part=("7", 2, 1))], TUESDAY_NOON - MINUTE, RULES)
    assert shown(operator) == []
    Reply.update(due_at=TUESDAY_NOON).execute()
    assert shown(operator) == ["reply one"]


@on_both
def test_pages_follow_one_another_without_gaps(operator, approver):
    for n in range(130):
        at = TUESDAY_NOON - (n % 13) * MINUTE
        reply(n, at=at, may_be_no=n % 3 == 0, read_at=at if n % 3 == 2 else None)
    person = ApiKey(id=1, name="Olga", role=Role.OPERATOR)
    cursors = [each.cursor for each in Reply.page(person, None, 200, TUESDAY_NOON)]
    assert cursors == sorted(cursors, key=order)
    for visitor in (operator, approver):
        seen, path = [], PAGE
        while path:
            page = shown(visitor, path)
            assert 0 < len(page) <= 50
            seen += page
            path = next_page(visitor)
        kinds = [int(each.split()[1]) % 3 for each in seen]
        assert len({*seen}) == len(seen) == 130
        assert kinds == sorted(kinds)


@pytest.mark.parametrize(
    "after", ["x", "1-2", "0-1-zz", f"-1-0-{'0' * 32}", f"0-{10**30}-{'0' * 32}"]
)
def test_a_page_that_there_is_none_of_is_404(operator, after):
    assert operator.open(f"{PAGE}?after={after}").status_code == 404


# Buttons


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize(
    ("button", "words"),
    [
        ("Mark as read", "The reply of {} was marked as read."),
        ("Add to Do Not Call", "{} is on the Do Not Call list now. Undo for 60 seconds"),
    ],
)
def test_the_result_stands_where_the_reply_was(operator, heard, button, words, n):
    before = shown(operator)
    operator.press(button, heard[n])
    there = rows(operator)
    assert there[n] == words.format(f"+1 212-555-000{5 - n}")
    left = [each for each in before if each != before[n]]
    left.insert(3, before[n])  # on top of those that were read
    assert there[:n] + there[n + 1 :] == left
    assert following(operator) == str(heard[n + 1 if n < 3 else n].id)


@on_both
def test_mark_as_read(approver, heard):
    shown(approver)
    approver.press("Mark as read", heard[1])
    read = Reply.get_by_id(heard[1].id)
    assert (read.read_by, read.read_at, read.may_be_no) == ("Ann", TUESDAY_NOON, False)
    assert len(approver.page.buttons("Mark as read")) == 3
    approver.send(PAGE, read=lists.write(heard[1].cursor))
    assert rows(approver)[1] == "The reply of +1 212-555-0004 was read before."
    assert Reply.get_by_id(heard[0].id).read_at is None


def test_add_to_do_not_call_reads_it_and_all_else_that_was_to_be_decided(operator):
    first, second = hear("reply one: stpo"), hear("reply two")
    third = hear("reply three: quitt")
    operator.open(PAGE)
    operator.press("Add to Do Not Call", first)
    assert DoNotCall.entry(NEW_YORK).source == "operator"
    assert Reply.get_by_id(first.id).read_by == Reply.get_by_id(third.id).read_by == "Olga"
    assert Reply.get_by_id(second.id).read_at is None
    assert operator.page.buttons("Add to Do Not Call") == []
    assert "on the Do Not Call list" in operator.page.text


def test_an_approver_changes_nothing_of_the_list(operator, approver, heard):
    shown(approver)
    assert approver.page.buttons("Add to Do Not Call") == []
    assert approver.send(PAGE, list=lists.write(heard[0].cursor)).status_code == 403
    assert not DoNotCall.select().count()
    operator.open(PAGE)
    operator.press("Add to Do Not Call", heard[1])
    approver.open(PAGE)
    assert approver.send(PAGE, **{"undo-list": lists.write(heard[1].cursor)}).status_code == 403
    assert DoNotCall.lists(heard[1].number)


def test_a_number_is_taken_off_the_list_again(operator, heard):
    operator.open(PAGE)
    operator.press("Add to Do Not Call", heard[1])
    operator.press("Undo")
    assert not DoNotCall.lists(heard[1].number)
    words = "+1 212-555-0004 is no longer on the Do Not Call list. The reply stays read."
    assert rows(operator)[1] == words
    assert Reply.get_by_id(heard[1].id).read_by == "Olga"
    assert following(operator) == str(heard[2].id)
    operator.press("Add to Do Not Call", heard[1])
    assert DoNotCall.lists(heard[1].number)


def stop(number):
    LastReply.note(number, TUESDAY_NOON, TUESDAY_NOON)


def remove(number):
    DoNotCall.remove([number], TUESDAY_NOON, "operator", "Olga")


@pytest.mark.parametrize("meanwhile", [stop, remove, None])
def test_what_happened_meanwhile_is_not_undone(operator, heard, at, meanwhile):
    operator.open(PAGE)
    operator.press("Add to Do Not Call", heard[1])
    meanwhile(heard[1].number) if meanwhile else at(TUESDAY_NOON + MINUTE)
    operator.open(PAGE)
    assert bool(operator.page.buttons("Undo")) is (meanwhile is stop)
    operator.send(PAGE, **{"undo-list": lists.write(heard[1].cursor)})
    assert DoNotCall.lists(heard[1].number) is (meanwhile is not remove)
    told = "+1 212-555-0004 was not changed. Undo works for one minute"
    assert rows(operator)[1].startswith(told)


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
    operator.open(PAGE)
    assert operator.send(PAGE, **form).status_code == status
    assert Reply.get().read_at is None
    assert operator.post(PAGE, [*form.items()]).status_code == 400  # without the token


# On the page of the text


def test_a_texts_own_page_has_its_replies_and_stays_after_a_button(approver, heard):
    path = f"/desk/messages/{heard[0].message_id}?back=replies"
    assert shown(approver, path) == ["reply a"]
    approver.press("Mark as read", heard[0])
    assert approver.at == path
    assert f"{PAGE}#to-{heard[0].message_id}" in approver.page.links
    assert "The reply of +1 212-555-0005 was marked as read." in approver.page.text
    assert Reply.get_by_id(heard[0].id).read_by == "Ann"


def test_the_text_that_answers_a_reply_says_so(operator):
    sent()
    inbound.record([Said(NEW_YORK, "HELP")], TUESDAY_NOON, RULES._replace(help_reply="Ask us."))
    answer = Message.get(Message.answers == "HELP")
    failed = {"status": Status.FAILED, "finished_at": TUESDAY_NOON}
    Message.update(failed).where(Message.id == answer.id).execute()
    assert "automatic reply to HELP" in operator.read(f"/desk/messages/{answer.id}")
    assert operator.page.buttons("Retry") == []
