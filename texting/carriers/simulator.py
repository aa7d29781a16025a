"""The carrier `simulator:`, which sends nothing."""

from texting.carriers import Carrier, CarrierError, Fault, Outgoing


class Simulator(Carrier):
    """Send nothing; the number decides the outcome.

    +1 212 555 0101   permanent failure
    +1 212 555 0102   temporary failure
    +1 212 555 0103   "too fast", try again after a second
    +1 212 555 0104   the recipient has opted out
    any other         taken

    These four are valid, and reserved for fiction.
    """

    title = "the simulator"

    def send(self, outgoing: Outgoing) -> None:
        match outgoing.to:
            case "+12125550101":
                raise CarrierError("the simulator refuses this number for good", Fault.PERMANENT)
            case "+12125550102":
                raise CarrierError("the simulator fails for now")
            case "+12125550103":
                raise CarrierError("the simulator is too busy", Fault.TOO_FAST, retry_after=1)
            case "+12125550104":
                raise CarrierError("the recipient has opted out", Fault.OPTED_OUT)
