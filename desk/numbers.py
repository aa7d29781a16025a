"""Numbers, as people enter them in forms."""

from flask import session

import recipients

NO_NUMBER = (
    "Enter the whole number with + and country code, +1 212 555 0123, or a national number and its "
    "country."
)


def read_number(form: dict) -> str:
    """Return the E.164 form of the number in a form.

    A national one is of the country that was given last in this session. Raise InvalidNumber, in
    words for the page.
    """
    if region := form.get("region", "").strip().upper():
        if region not in recipients.REGIONS:
            raise recipients.InvalidNumber("A country has two letters, such as US or GB.")
        session["region"] = region
    try:
        return recipients.national(form.get("number", "").strip(), session.get("region"))
    except recipients.InvalidNumber:
        raise recipients.InvalidNumber(NO_NUMBER) from None
