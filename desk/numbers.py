"""Numbers and countries, as people enter them in forms."""

import recipients

NO_NUMBER = (
    "Enter the whole number with + and country code, +1 212 555 0123, or a national number and its "
    "country."
)


def read_written(fields: dict) -> tuple[str, str]:
    """Return a number and the code of its country, as a form has them."""
    return fields.get("number", "").strip(), fields.get("region", "").strip().upper()


def read_number(written: str, region: str) -> str:
    """Return the E.164 form of a number, national if its region is given.

    Raise InvalidNumber, in words for the page.
    """
    if region and region not in recipients.REGIONS:
        raise recipients.InvalidNumber("A country has two letters, such as US or GB.")
    try:
        return recipients.national(written, region or None)
    except recipients.InvalidNumber:
        raise recipients.InvalidNumber(NO_NUMBER) from None
