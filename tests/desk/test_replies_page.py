"""The page "Replies": who sees what, in which order, and what its buttons do."""

import uuid

import pytest

from databases import on_both
from desk_visitor import next_page, reply, rows
from samples import HOUR, LONDON, MINUTE, NEW_YORK, TUESDAY_NOON
from stored_messages import held, key_named
from texting.access.do_not_call import DoNotCall, OptedOut, is_listed
from texting.access.keys import ApiKey, Role
from texting.carriers import IncomingText
from texting.messages.model import Message, Status
from texting.replies import inbound, inbox
from texting.replies.inbound import ReplyRules
from texting.replies.model import Reply

PAGE = "/desk/replies"
RULES = ReplyRules("twilio", "asked", None, None)


def sent(
    text="Your appointment is on Friday.", key="shop", group="front", shared=True,
    status=Status.SENT, **columns,
):  # fmt: skip
    at = TUESDAY_NOON - 2 * HOUR
    of = {"key": key_named(key, group), "available_to_group": shared, "created_at": at}
    return held(status, finished_at=at, message=text, **of | columns)


def hear(text, number=NEW_YORK, at=TUESDAY_NOON - HOUR):
    inbound.record([IncomingText(number, text, at)], TUESDAY_NOON, RULES)
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
    message = sent(status=Status.DELIVERED, receipt_at=TUESDAY_NOON - MINUTE)
    hear("reply <b>one</b> \u202e evil \u200b")
    operator.open(PAGE)
    for words in (
        *("Replies 1 unread", "+1 212-555-0123", "reply <b>one</b> \u202e evil"),
        *("To this text , delivered 1 minute ago: Your appointment is on Friday.", "1 hour ago"),
    ):
        assert words in operator.page.text
    assert f"/desk/messages/{message.id}?back=replies" in operator.page.links


@on_both
def test_first_comes_what_may_be_a_no_then_what_is_unread_then_the_rest(operator):
    words = ("reply a", "reply b, don't stop", "reply c", "reply d: stpo")
    for n, text in enumerate(words):
        hear(text, f"+121255500{n:02}", TUESDAY_NOON - HOUR + n * MINUTE)
    Reply.mark_read([Reply.get(Reply.text == "reply c").id], "Bob", TUESDAY_NOON)
    hear("STOP", LONDON, at=TUESDAY_NOON)
    assert shown(operator) == ["reply d", "reply b", "reply a", "reply c"]
    text = operator.page.text
    assert "Replies 3 unread" in text
    assert text.index("reply a") < text.index("STOP") < text.index("reply c")
    assert "read by Bob" in text


# By person


@on_both
def test_what_a_number_wrote_stands_together_the_newest_first(operator, approver):
    sent()
    for n, text in enumerate(("reply a: stpo", "reply b", "reply c")):
        hear(text, at=TUESDAY_NOON - HOUR + n * MINUTE)
    hear("reply of another", LONDON)
    sent(to=LONDON)
    Reply.mark_read([Reply.get(Reply.text == "reply b").id], "Bob", TUESDAY_NOON)
    assert shown(operator) == ["reply c", "reply of"]
    assert operator.page.text.count("+1 212-555-0123") == 1
    assert operator.page.text.count("Your appointment is on Friday.") == 1
    text = operator.page.text
    assert text.index("reply c") < text.index("reply b") < text.index("reply a: stpo")
    assert shown(approver) == ["reply c"]


@on_both
@pytest.mark.parametrize("each", [1, 2, 60])
def test_pages_follow_one_another_each_number_on_one_alone(operator, approver, each):
    """However much it wrote: those that may be a no, the unread ones, the rest."""
    for n in range(130):
        for k in range(each if n < 3 else min(each, 2)):
            at = TUESDAY_NOON - (k * 60 + n % 13) * MINUTE
            read_at = at if k or n % 3 == 2 else None
            reply(n, at=at, may_be_no=n % 3 == 0 and not k, read_at=read_at)
    person = ApiKey(id=1, name="Olga", role=Role.OPERATOR)
    cursors = [each.cursor for each in inbox.page(person, None, 400, TUESDAY_NOON)]
    assert cursors == sorted(cursors, key=lambda each: (each.rank, -each.at.timestamp()))
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


@on_both
@pytest.mark.parametrize("replies", [5, 7])
def test_only_some_of_what_a_number_wrote_is_shown_what_waits_before_the_rest(operator, replies):
    sent()
    for n in range(replies):
        hear(f"reply {n}", at=TUESDAY_NOON - HOUR - n * MINUTE)
    unread = Reply.get(Reply.text == f"reply {replies - 1}").id
    Reply.update(read_at=TUESDAY_NOON).where(Reply.id != unread).execute()
    assert shown(operator) == ["reply 0"]
    assert f"reply {replies - 1} " in operator.page.text
    assert ("2 more from this number" in operator.page.text) is (replies == 7)
    operator.press("Mark as read")
    assert Reply.get_by_id(unread).read_by == "Olga"


@on_both
def test_mark_as_read_is_for_all_that_was_shown_of_a_number_and_so_is_its_opposite(
    approver, operator
):
    sent()
    first, second = hear("reply a"), hear("reply b: stpo", at=TUESDAY_NOON - MINUTE)
    old = hear("reply of long ago", at=TUESDAY_NOON - 2 * HOUR)
    Reply.mark_read([old.id], "Bob", TUESDAY_NOON - HOUR)
    sent(to=LONDON)
    another = hear("reply of another", LONDON)
    shown(approver)
    late = hear("reply c", at=TUESDAY_NOON)
    approver.press("Mark as read", second)
    assert rows(approver)[0] == "+1 212-555-0123 was marked as read."
    for each, by in ((first, "Ann"), (second, "Ann"), (old, "Bob"), (another, None), (late, None)):
        kept = Reply.get_by_id(each.id)
        assert kept.read_by == by
        assert not kept.may_be_no
    approver.send(PAGE, read=second.id)
    assert rows(approver)[0] == "+1 212-555-0123 was already read."
    late.delete_instance()
    operator.press("Mark as unread", second, on=PAGE)
    assert rows(operator)[0] == "+1 212-555-0123 is unread again."
    for each in (first, second):
        unread = Reply.get_by_id(each.id)
        assert (unread.read_at, unread.read_by, unread.may_be_no) == (None, None, each == second)
    assert Reply.get_by_id(old.id).read_by == "Bob"
    operator.send(PAGE, unread=second.id)
    assert rows(operator)[0] == "+1 212-555-0123 was already unread."


@on_both
def test_what_is_unread_again_is_no_possible_opt_out_of_who_has_opted_out(operator, heard):
    operator.press("Mark as read", heard[1], on=PAGE)
    OptedOut.add([heard[1].number], TUESDAY_NOON, "operator", "Bob")
    operator.press("Mark as unread", heard[1], on=PAGE)
    unread = Reply.get_by_id(heard[1].id)
    assert (unread.read_by, unread.may_be_no) == (None, False)


@on_both
@pytest.mark.parametrize(
    ("text", "rules", "waits"),
    [
        ("STOP", {}, False),
        ("START", {}, False),
        ("HELP", {"help_reply": "Ask us."}, False),
        ("HELP", {}, True),
        ("Yes", {"help_reply": "Ask us."}, True),
        ("stpo", {"stop_reply": "Bye."}, True),
    ],
)
def test_what_was_obeyed_or_answered_needs_nobody(approver, text, rules, waits):
    sent()
    for _ in range(2 if text == "STOP" else 1):  # the second changes nothing, and needs nobody
        inbound.record([IncomingText(NEW_YORK, text)], TUESDAY_NOON, RULES._replace(**rules))
    assert f"Replies {int(waits)} unread" in approver.read(PAGE)
    assert bool(approver.page.buttons("Mark as read")) is waits
    assert "read by" not in approver.page.text
    assert inbox.waiting(TUESDAY_NOON).replies == waits
    assert len([*inbox.listing(TUESDAY_NOON, unread=True)]) == waits


def test_a_help_that_had_its_answer_lately_or_none_needs_somebody(operator):
    for n, rules in enumerate((RULES._replace(help_reply="Ask us."), RULES)):
        inbound.record([IncomingText(LONDON, "HELP")], TUESDAY_NOON, rules)  # to no text
        assert f"Replies {n + 1} unread" in operator.read(PAGE)
    sent()
    for unread in (2, 3):
        rules = RULES._replace(help_reply="Ask us.")
        inbound.record([IncomingText(NEW_YORK, "HELP")], TUESDAY_NOON, rules)
        assert f"Replies {unread} unread" in operator.read(PAGE)


@on_both
@pytest.mark.parametrize(
    ("replies", "words"), [(5, ""), (6, "1 more"), (1_004, "999 more"), (1_007, "1,000+ more")]
)
def test_what_else_a_number_wrote_is_counted_up_to_a_thousand(operator, approver, replies, words):
    shop, bank = key_named("shop", "front"), key_named("bank", "back")
    usual = {"carrier": "x", "number": NEW_YORK, "text": "reply", "received_at": TUESDAY_NOON}
    rows = [
        usual | {"id": uuid.uuid4(), "at": TUESDAY_NOON, "key": key.id, "available_to_group": True}
        for key in [shop] * replies + [bank] * 7
    ]
    for start in range(0, len(rows), 500):
        Reply.insert_many(rows[start : start + 500]).execute()
    text = approver.read(PAGE)
    assert (f" {words} from this number" in text) if words else ("more from" not in text)
    total = replies + 2
    assert f"{total if total < 1_000 else '1,000+'} more from this number" in operator.read(PAGE)


# Search


def looked_for(visitor, words, page=PAGE):
    """The rows of a list that a person looks for."""
    visitor.press("Show", find=words, on=page)
    return rows(visitor)


@on_both
def test_replies_are_found_by_a_part_of_the_number_or_by_words(operator, approver):
    sent()
    sent(to=LONDON, shared=False)
    hear("reply one: Ärger am 50% Tag", at=TUESDAY_NOON - MINUTE)
    hear("reply two: 5000 Tage", at=TUESDAY_NOON)
    hear("reply three", LONDON)
    for words, of_all, of_group in (
        ("0123", ["reply two"], ["reply two"]),
        ("(212) 555", ["reply two"], ["reply two"]),
        ("+44 20 8366 1177", ["reply three"], []),
        ("020 8366", ["reply three"], []),
        ("TAG ärger", ["reply one"], ["reply one"]),
        ("50% ", ["reply one"], ["reply one"]),
        ("5___", [], []),
        ("reply", ["reply two", "reply three"], ["reply two"]),
        ("three", ["reply three"], []),
    ):
        assert looked_for(operator, words) == of_all, words
        assert looked_for(approver, words) == of_group, words
    assert "reply one" in operator.read(PAGE)  # the search is over


@on_both
def test_a_search_looks_through_so_many_replies_and_then_further(operator, monkeypatch):
    for n in range(30):
        reply(n)
    monkeypatch.setattr("texting.reports.search.LOOKED_THROUGH", 10)
    found = looked_for(operator, "reply 25")
    pages = [found]
    while path := next_page(operator):
        assert "None found so far." in operator.page.text or pages[-1]
        operator.open(path)
        pages.append(rows(operator))
    assert pages == [[], [], ["reply 25"], []]
    assert "No replies." in operator.page.text


@on_both
def test_an_approvers_search_passes_over_what_others_got_and_tells_nothing_of_it(
    approver, monkeypatch
):
    """Where it looks further is a place in the approver's own replies, of which it finds each."""
    of_others = {"available_to_group": False}
    theirs = [reply(n) for n in range(100, 1600, 50)]
    for n in range(95, 1600, 5):
        reply(n, text="of others", **{} if n % 2 else of_others, key=key_named("bank", "back").id)
    monkeypatch.setattr("texting.reports.search.LOOKED_THROUGH", 10)
    seen, ends = looked_for(approver, "reply 1550"), []
    while path := next_page(approver):
        ends.append(path)
        approver.open(path)
        seen += rows(approver)
    assert seen == ["reply 1550"]
    assert [end for end in ends if not any(each.id.hex in end for each in theirs)] == []
    assert len(ends) == len(theirs) // 10


@on_both
@pytest.mark.parametrize("page", [PAGE, "/desk/messages"])
@pytest.mark.parametrize(
    "words",
    ["\0", "a\0b", "x " * 5_000, "1" * 10_000, "'; --", "\\", "%", "\ud800", "🎉" * 60, "０"],
)
def test_no_search_is_an_error_of_ours(operator, page, words):
    hear("reply one")
    sent()
    operator.open(page)
    words = words.encode("utf-8", "replace").decode()
    assert operator.press("Show", find=words).status_code == 200
    assert len(operator.client.get_cookie("desk", path="/desk/").value) < 1_000


@pytest.mark.parametrize(
    ("columns", "visible"),
    [
        ({}, True),
        ({"shared": False}, False),
        ({"key": "bank", "group": "back"}, False),
        ({"key": "loner", "group": None}, False),
        (None, False),
    ],
)
def test_an_approver_sees_the_replies_to_texts_of_the_group(approver, operator, columns, visible):
    """Also once a text was purged; those to no text are for operators."""
    message = columns is not None and sent(**columns)
    one = hear("reply one")
    assert one.message_id == (message.id if message else None)
    for _ in range(2):
        assert shown(operator) == ["reply one"]
        assert ("Not a reply to a text of the last 30 days" in operator.page.text) is not message
        assert shown(approver) == (["reply one"] if visible else [])
        Message.delete().execute()
    assert ("Nobody has replied yet." in approver.page.text) is not visible
    approver.send(PAGE, read=one.id)
    assert Reply.get().read_by == ("Ann" if visible else None)


def test_what_waits_for_its_other_parts_is_not_shown_yet(operator):
    inbound.record(
        [IncomingText(NEW_YORK, "reply one", part=("7", 2, 1))], TUESDAY_NOON - MINUTE, RULES
    )
    assert shown(operator) == []
    Reply.update(due_at=TUESDAY_NOON).execute()
    assert shown(operator) == ["reply one"]


# Buttons


def test_add_to_do_not_call_reads_it_and_all_else_that_was_to_be_decided(operator):
    first, second = hear("reply one: stpo"), hear("reply two")
    third = hear("reply three: quitt")
    operator.open(PAGE)
    unseen = hear("reply four")
    operator.press("Add to Do Not Call", first)
    assert OptedOut.entry(NEW_YORK).source == "operator"
    read = [Reply.get_by_id(each.id).read_by for each in (first, second, third, unseen)]
    assert read == ["Olga", "Olga", "Olga", None]
    assert operator.page.buttons("Add to Do Not Call") == []
    assert "opted out" in operator.page.text


LISTED = "is on the Do Not Call list now, as an opt-out, and gets no texts."


def test_who_has_but_an_entry_can_still_opt_out(operator):
    reply = hear("no more of this")
    DoNotCall.add([NEW_YORK], TUESDAY_NOON, "import")
    operator.press("Add to Do Not Call", reply, on=PAGE)
    assert rows(operator)[0] == f"+1 212-555-0123 {LISTED}"
    operator.press("Remove from Do Not Call", reply)
    assert OptedOut.lists(NEW_YORK)
    assert not DoNotCall.lists(NEW_YORK)
    operator.press("End the opt-out")
    assert not is_listed(NEW_YORK)


def test_an_operator_alone_lists_a_number_and_takes_it_off_again(operator, approver, heard):
    shown(approver)
    assert approver.page.buttons("Add to Do Not Call") == []
    assert approver.send(PAGE, list=heard[1].id).status_code == 403
    assert not OptedOut.select().exists()
    operator.press("Add to Do Not Call", heard[1], on=PAGE)
    assert rows(operator)[0] == f"+1 212-555-0004 {LISTED}"
    assert OptedOut.lists(heard[1].number)
    shown(approver)
    assert approver.page.buttons("Remove from Do Not Call") == []
    assert approver.send(PAGE, unlist=heard[1].id).status_code == 403
    assert OptedOut.lists(heard[1].number)
    operator.send(PAGE, unlist=heard[1].id)
    assert "+1 212-555-0004 wants no texts. End that?" in operator.page.text
    assert OptedOut.lists(heard[1].number)
    operator.press("End the opt-out")
    assert "+1 212-555-0004 is no longer on the Do Not Call list." in operator.page.text
    operator.send(PAGE, unlist=heard[1].id)
    assert rows(operator)[0] == "+1 212-555-0004 was not on the Do Not Call list."
    assert not OptedOut.select().exists()
    assert Reply.get_by_id(heard[1].id).read_by == "Olga"


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({}, 400),
        ({"read": "nonsense"}, 400),
        ({"read": "selected"}, 400),
        ({"read": "x-1-0"}, 400),
        ({"read": "0" * 32}, 200),
        ({"unread": "0" * 32}, 200),
        ({"list": "0" * 32}, 200),
        ({"unlist": "0" * 32}, 200),
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
    assert "+1 212-555-0005 was marked as read." in approver.page.text
    assert Reply.get_by_id(heard[0].id).read_by == "Ann"
    approver.press("Mark as unread", heard[0])
    assert Reply.get_by_id(heard[0].id).read_by is None


def test_the_text_that_answers_a_reply_says_so(operator):
    sent()
    inbound.record(
        [IncomingText(NEW_YORK, "HELP")], TUESDAY_NOON, RULES._replace(help_reply="Ask us.")
    )
    answer = Message.get(Message.auto_reply_to == "HELP")
    failed = {"status": Status.FAILED, "finished_at": TUESDAY_NOON}
    Message.update(failed).where(Message.id == answer.id).execute()
    assert "automatic reply to HELP" in operator.read(f"/desk/messages/{answer.id}")
    assert operator.page.buttons("Retry") == []


def test_an_approver_reads_that_an_operator_is_told_of_what_may_be_an_opt_out(approver, operator):
    sent()
    hear("Please don't text me any more")
    words = "An operator is told, and decides whether texts to this number stop."
    assert words in approver.read(PAGE)
    assert words not in operator.read(PAGE)
    assert "maybe opting out" in operator.page.text
    Reply.mark_read([Reply.get().id], "Olga", TUESDAY_NOON)
    assert words not in approver.read(PAGE)
