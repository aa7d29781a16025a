"""An SMPP peer for tests, by the package smpp.twisted3; it behaves like smpp_npm.js."""

import json
import sys

from smpp.pdu.operations import DeliverSM
from smpp.pdu.pdu_types import (
    AddrNpi,
    AddrTon,
    CommandStatus,
    EsmClass,
    EsmClassMode,
    EsmClassType,
    MessageState,
    RegisteredDeliveryReceipt,
)
from smpp.twisted.config import SMPPServerConfig
from smpp.twisted.protocol import DataHandlerResponse
from smpp.twisted.server import SMPPServerFactory
from twisted.cred.error import UnauthorizedLogin
from twisted.internet import defer, reactor, stdio
from twisted.internet.protocol import Protocol

RECEIPT = (
    b"id:%s sub:001 dlvrd:001 submit date:2611211200 done date:2611211201 stat:%s err:%s text:x"
)

CODINGS = {"SMSC_DEFAULT_ALPHABET": 0, "LATIN_1": 3, "UCS2": 8}


def say(what):
    print(json.dumps(what), flush=True)


class Portal:
    def login(self, credentials, mind, interface):
        if (credentials.username, credentials.password) == ("user", "secret"):
            return defer.succeed((interface, None, lambda: None))
        return defer.fail(UnauthorizedLogin())


class Taker:
    count = 0

    def __call__(self, system_id, protocol, pdu):
        self.count += 1
        message_id = b"twisted-%d" % self.count
        text = pdu.params["short_message"]
        concatenated = "UDHI_INDICATOR_SET" in str(pdu.params["esm_class"])
        say(
            {
                "to": pdu.params["destination_addr"].decode(),
                "from": pdu.params["source_addr"].decode(),
                "coding": CODINGS[pdu.params["data_coding"].schemeData.name],
                "part": [text[5], text[4]] if concatenated else [1, 1],
                "octets": text[6 if concatenated else 0 :].hex(),
            }
        )
        wanted = pdu.params["registered_delivery"].receipt
        if wanted == RegisteredDeliveryReceipt.SMSC_DELIVERY_RECEIPT_REQUESTED:
            self.deliver(
                protocol,
                pdu,
                "receipt",
                esm_class=EsmClass(EsmClassMode.DEFAULT, EsmClassType.SMSC_DELIVERY_RECEIPT),
                short_message=RECEIPT % (message_id, b"DELIVRD", b"000"),
                receipted_message_id=message_id,
                message_state=MessageState.DELIVERED,
            )
        if text == b"stop me":
            self.deliver(protocol, pdu, "text", short_message=b" Stop. ")
        return DataHandlerResponse(CommandStatus.ESME_ROK, message_id=message_id)

    def deliver(self, protocol, pdu, what, **fields):
        request = DeliverSM(
            source_addr_ton=AddrTon.INTERNATIONAL,
            source_addr_npi=AddrNpi.ISDN,
            source_addr=pdu.params["destination_addr"],
            destination_addr=pdu.params["source_addr"],
            **fields,
        )
        reactor.callLater(
            0.05,
            lambda: protocol.sendDataRequest(request).addCallback(
                lambda _: say({"acknowledged": what})
            ),
        )


class Leash(Protocol):
    """Stop when standard input ends."""

    def connectionLost(self, reason=None):
        reactor.callWhenRunning(reactor.stop)


config = SMPPServerConfig(msgHandler=Taker(), systems={"user": {"max_bindings": 2}})
port = reactor.listenTCP(0, SMPPServerFactory(config, Portal()), interface="127.0.0.1")
say(port.getHost().port)
stdio.StandardIO(Leash())
sys.exit(reactor.run())
