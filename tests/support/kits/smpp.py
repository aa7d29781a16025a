"""SMPP; its peer is in `smpp_peer.py`."""

from kits import Kit
from smpp_peer import SmppPeer

URL = "smpp://user:s3cret@127.0.0.1/15005550006"

KIT = Kit(
    url=URL,
    bad_urls={
        "smpp:": r"""
            \\AC1:s3cret@+15005550006 // //127.0.0.1/15005550006 //:s3cret@127.0.0.1/15005550006
        """,
        "smpp://user": "@127.0.0.1/15005550006 :@127.0.0.1/15005550006",
        "smpp://user:s3cret@": """
            /15005550006 127.0.0.1 127.0.0.1/ 127.0.0.1/{to} 127.0.0.1/12/3
            127.0.0.1/ACME-Corporation 127.0.0.1/Jürgen 127.0.0.1:0/15005550006
            127.0.0.1:99999/15005550006 127.0.0.1:port/15005550006 [::1/15005550006
        """,
        "smpp://user:s3cr": "%00et@127.0.0.1/15005550006 %C3%A9t@127.0.0.1/15005550006",
        f"smpp://user:{'s3cret' * 11}@": "127.0.0.1/15005550006",
        f"{URL}?": """
            s3cret=1 binds=0 binds=101 binds=two bind=receiver source_ton=256 dest_npi=-1
            alphabet=utf8 system_type=%00 msg_id_type=hex msg_id_type=hex,dec,hex
            msg_id_type=hex,oct region=XX region=us
        """,
    },
    server=SmppPeer,
    answer=int,
    for_now=(0x04, 0x08, 0x45, 0xFF, 0x400, 0xFFFFFFFF),
)
