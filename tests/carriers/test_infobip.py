"""carriers/infobip.py: its requests, texts that it knows again, its logs and its callbacks."""

import json
from datetime import UTC, datetime

import pytest

from carrier_errors import MESSAGE_ID, NUMBER, connect, error_of, meaning, refused, send
from carrier_servers import HANG_UP, Answer
from kits import PUBLIC_URL, REFERENCE, connected
from kits.infobip import URL, InfobipCallbacks, refusal, sign, status_of, verdict
from texting.carriers import IncomingText, OptOut, Receipt, Shown, key_of

NOON = datetime(2026, 3, 3, 17, tzinfo=UTC)
HOW = InfobipCallbacks()
ANOTHER = "+12125550188"


def sent(server, number=-1):
    return json.loads(server.requests[number].body)["messages"][0]


# The request


@pytest.mark.parametrize(
    ("sender", "given"),
    [("%2B15005550006", "15005550006"), ("12345", "12345"), ("My%20Shop", "My Shop")],
)
@pytest.mark.parametrize(
    ("valid_for", "seconds"), [(60, 60), (0, 1), (172_800, 172_800), (10**9, 172_800)]
)
def test_a_text_has_the_id_of_its_message_and_the_end_of_its_time(
    infobip_server, sender, given, valid_for, seconds
):
    url = infobip_server.url.replace("15005550006", sender)
    assert send(connect(url), valid_for=valid_for) == MESSAGE_ID
    message = sent(infobip_server)
    assert message["sender"] == given
    assert message["destinations"] == [{"to": NUMBER[1:], "messageId": MESSAGE_ID}]
    assert message["options"]["validityPeriod"] == {"amount": seconds, "timeUnit": "SECONDS"}
    assert message["content"].keys() == {"text"}, "nothing that changes characters"


def test_a_text_goes_to_the_accounts_own_host(asked_hosts):
    for options in ("", "?base=x1.api.infobip.com"):
        assert refused(connect(URL + options)).unreached
    assert asked_hosts == ["api.infobip.com", "x1.api.infobip.com"]


def test_each_text_names_the_address_of_its_receipts_with_the_password(infobip_server):
    url = infobip_server.url.replace("callbacks3cret", "a%2Fb%20c")
    send(connect(url, public_url=PUBLIC_URL, name="eu"))
    host = PUBLIC_URL.removeprefix("https://")
    delivery = sent(infobip_server)["webhooks"]["delivery"]
    assert delivery == {"url": f"https://infobip:a%2Fb%20c@{host}/carriers/eu/status"}
    send(connect(infobip_server.url))
    assert "webhooks" not in sent(infobip_server)


def test_without_a_password_no_receipts_are_asked_for(infobip_server):
    carrier = connect(infobip_server.url.partition("&")[0], public_url=PUBLIC_URL)
    assert "no ?secret=" in carrier.warning
    assert not carrier.tells_receipts
    send(carrier)
    assert "webhooks" not in sent(infobip_server)


def test_a_name_is_warned_of_since_nobody_can_answer_it():
    carrier = connect("infobip://s3cret@ACME?secret=x", public_url=PUBLIC_URL)
    assert "nobody can answer" in carrier.warning


# Given again


def test_a_text_that_was_taken_before_is_taken_and_can_be_looked_up(infobip_server):
    infobip_server.keeps_ids = True
    carrier = connect(infobip_server.url)
    assert carrier.look_up(MESSAGE_ID) is None
    assert [send(carrier), send(carrier, valid_for=60)] == [MESSAGE_ID] * 2
    assert len(infobip_server.texts) == 1
    assert carrier.look_up(MESSAGE_ID) == MESSAGE_ID
    assert carrier.look_up(key_of(MESSAGE_ID, 1)) is None
    assert send(carrier, copy=1) == carrier.look_up(key_of(MESSAGE_ID, 1)) == key_of(MESSAGE_ID, 1)


def logged(*codes, id=MESSAGE_ID):
    return Answer(200, {"results": [{"messageId": id, "status": status_of(n)} for n in codes]})


@pytest.mark.parametrize(
    ("logs", "means"),
    [
        (logged(26), None),
        (logged(23), None),  # the first is in the logs no more
        (logged(), None),
        (logged(12, id="another"), None),
        (logged(9), None),  # taken, and not delivered
        (logged(23, 5), None),
        (logged(12, 26), None),
        (logged(12), "the account"),
        (logged(23, 52), "for good"),
        (logged(20), "for now"),
        (refusal(403), None),  # the key may not read logs
        (refusal(429), "in doubt"),
        (HANG_UP, "in doubt"),
        (Answer(500), "in doubt"),
        (Answer(200, {"results": None}), "in doubt"),
        (Answer(200, {"results": [None, {}, {"messageId": MESSAGE_ID}]}), "in doubt"),
        (Answer(200, {"results": [None, {}, {"messageId": "another"}]}), None),
    ],
    ids=repr,
)
def test_a_known_id_is_a_yes_unless_the_logs_say_that_its_text_was_refused(
    infobip_server, monkeypatch, logs, means
):
    """Nobody documents whether the id of a refused text is known."""
    infobip_server.answer = verdict(23)
    take = infobip_server.take
    asks = lambda request: logs if request.method == "GET" else take(request)  # noqa: E731
    monkeypatch.setattr(infobip_server, "take", asks)
    carrier = connect(infobip_server.url)
    if means is None:
        assert send(carrier) == MESSAGE_ID
    else:
        assert meaning(refused(carrier)) == means


@pytest.mark.parametrize("code", [2, 5, 7, 9, 15, 23, 26])
def test_what_infobip_took_is_found_whatever_became_of_it(infobip_server, code):
    infobip_server.answer = logged(code)
    assert connect(infobip_server.url).look_up(MESSAGE_ID) == MESSAGE_ID


@pytest.mark.parametrize("code", [6, 12, 52, 100])
def test_what_infobip_refused_is_not_found(infobip_server, code):
    infobip_server.answer = logged(code)
    assert connect(infobip_server.url).look_up(MESSAGE_ID) is None


@pytest.mark.parametrize("answer", [Answer(500), refusal(500), HANG_UP, Answer(200, [])], ids=repr)
def test_without_an_answer_a_text_is_neither_found_nor_missing(infobip_server, answer):
    infobip_server.answer = answer
    assert meaning(error_of(connect(infobip_server.url).look_up, MESSAGE_ID)) == "for now"


# The answer


@pytest.mark.parametrize(
    ("answer", "means"),
    [
        (refusal(400, "messages[0].destinations[0].to"), "for good"),
        (refusal(400, "messages[0].content.text"), "for good"),
        (refusal(400, "messages[0].sender"), "for now"),
        (refusal(400), "for now"),
        (refusal(401), "the account"),
        (refusal(403), "the account"),
        (refusal(429), "too fast"),
        (refusal(500), "in doubt"),
        (refusal(503), "for now"),
        (Answer(401, {"requestError": {"serviceException": {"messageId": "X"}}}), "the account"),
        (Answer(200, {"messages": []}), "in doubt"),
        (Answer(200, {"messages": [None]}), "in doubt"),
        (Answer(200, {"messages": [{"status": {"id": True}}]}), "in doubt"),
        (Answer(200, {"messages": [{"status": {"id": 26}, "messageId": "x"}]}), "in doubt"),
        (Answer(200, {"messages": [{"status": status_of(26), "messageId": "x"}]}), "in doubt"),
        (Answer(200, {"messages": [{"status": {"id": 26, "groupName": "REJECTED"}}]}), "for now"),
        (Answer(200, {"messages": [{"status": {"id": 26, "groupName": 1}}]}), "for now"),
        (verdict(26)._replace(status=500), "for now"),
        (verdict(9), None),
        (verdict(7), None),
    ],
    ids=repr,
)
def test_an_answer_means(infobip_server, answer, means):
    infobip_server.answer = answer
    carrier = connect(infobip_server.url)
    if means is None:
        assert send(carrier) == MESSAGE_ID
    else:
        assert meaning(refused(carrier)) == means


@pytest.mark.parametrize("code", [6, 19])
def test_what_its_routes_do_not_reach_may_go_through_another_carrier(infobip_server, code):
    infobip_server.answer = verdict(code)
    error = refused(connect(infobip_server.url))
    assert (error.no_route, meaning(error)) == (True, "for good")


def test_the_pause_that_it_asks_for_is_kept(infobip_server):
    infobip_server.answer = refusal(429)._replace(headers={"Retry-After": "17"})
    assert refused(connect(infobip_server.url)).retry_after == 17


def test_the_balance_is_told_only_if_the_key_may_see_it(infobip_server):
    carrier = connect(infobip_server.url)
    assert carrier.balance() == "47.79 EUR"
    infobip_server.balance = refusal(403)
    assert carrier.balance() is None


# Callbacks


def test_a_report_shows_the_text_by_its_id_of_whichever_copy():
    carrier = connected("infobip")
    for copy in (0, 1, 12):
        id = key_of(MESSAGE_ID, copy)
        (told,) = carrier.callback(HOW.report("7", message_id=id))
        assert (told.reference, told.message_id) == (id, MESSAGE_ID)


@pytest.mark.parametrize("kind", ["status", "inbound"])
def test_each_result_of_a_callback_counts_at_either_address(kind):
    results = [
        {"messageId": MESSAGE_ID, "to": NUMBER[1:], "status": status_of(7)},
        None,
        {"messageId": REFERENCE, "to": NUMBER[1:], "status": status_of(5)},
        {"messageId": "8", "from": ANOTHER[1:], "to": "15005550006", "text": "STOP"}
        | {"receivedAt": "2026-03-03T17:00:00.000+0000"},
        {"messageId": "9", "to": NUMBER[1:], "status": status_of(9), "error": {"id": 603}}
        | {"doneAt": "2026-03-03T18:00:00.000+0100"},
    ]
    assert connected("infobip").callback(sign({"results": results}, kind)) == [
        Shown(MESSAGE_ID, MESSAGE_ID),
        Receipt(REFERENCE, True),
        IncomingText(ANOTHER, "STOP", NOON, False, ("infobip 8",)),
        Receipt("9", False, "Infobip: the recipient has opted out (error 603)"),
        OptOut(NUMBER, True, "carrier", NOON, True, ("infobip 9",)),
    ]


def test_a_report_on_a_text_given_again_does_not_say_that_it_did_not_arrive():
    assert connected("infobip").callback(HOW.report("23")) == []


@pytest.mark.parametrize(
    "result",
    [
        *({}, {"status": None}, {"status": status_of(5), "messageId": 7}, {"text": 7, "from": 1}),
        {"status": status_of(5), "messageId": "\0"},
        {"status": {"id": 5, "groupName": ["DELIVERED"]}, "messageId": REFERENCE},
        {"text": "STOP", "from": "ACME"},
        {"text": "STOP", "from": None},
    ],
)
def test_a_genuine_callback_of_another_shape_says_nothing(result):
    assert connected("infobip").callback(sign({"results": [result]})) == []


@pytest.mark.parametrize("told", [None, [], {}, {"results": None}, {"results": {"a": 1}}, 7])
def test_a_genuine_callback_without_results_says_nothing(told):
    assert connected("infobip").callback(sign(told)) == []
