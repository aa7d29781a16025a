"""SMPP peers that others wrote, in their own processes."""

from carrier_errors import NUMBER, meaning, refused, send
from phone import show
from smpp_texts import received
from texting.carriers import IncomingText, Receipt


def test_a_foreign_peer_gets_each_text_whole(foreign_peer, connect):
    carrier = connect(foreign_peer.url)
    texts = {
        "hello": 1,
        "  héllo\n[€] ^{}\\~| `not§ ": 1,
        "  héllo\n[€] ^{}\\~| not§ ": 1,
        "Привет, 🚀": 1,
        "x" * 160: 1,
        "x" * 152 + "€" * 4 + "y" * 1400: 11,
        "й" * 66 + "🚀" * 3: 2,
        "日本語" * 200: 9,
    }
    references = [send(carrier, text=text) for text in texts]
    assert len({*references}) == len(texts)
    for text, count in texts.items():
        parts = foreign_peer.parts(count)
        assert [part["part"] for part in parts] == [[n, count] for n in range(1, count + 1)]
        assert {(part["to"], part["from"]) for part in parts} == {("12125550123", "15005550006")}
        seen = [
            part.get("text") or show(bytes.fromhex(part["octets"]), part["coding"])
            for part in parts
        ]
        assert "".join(seen) == text


def test_a_foreign_peers_receipts_and_opt_outs_are_read(foreign_peer, connect):
    carrier = connect(foreign_peer.url)
    reference = send(carrier, text="stop me")
    words = received(carrier, 2)
    (receipt,) = (word for word in words if isinstance(word, Receipt))
    assert receipt[:3] == (reference, True, None)
    assert IncomingText(NUMBER, " Stop. ") in words


def test_a_foreign_peer_refuses_a_wrong_password(foreign_peer, connect):
    carrier = connect(foreign_peer.url.replace("secret", "s3cret"))
    error = refused(carrier)
    assert meaning(error) == "the account"
    assert "password" in str(error)
