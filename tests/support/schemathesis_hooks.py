"""What schemathesis cannot know of a valid request from openapi.json."""

import re
import uuid
from datetime import datetime, timedelta, timezone

import phonenumbers
import schemathesis
from hypothesis import strategies as st

KINDS = (
    phonenumbers.PhoneNumberType.FIXED_LINE,
    phonenumbers.PhoneNumberType.MOBILE,
    phonenumbers.PhoneNumberType.TOLL_FREE,
)
NUMBERS = [
    phonenumbers.format_number(number, phonenumbers.PhoneNumberFormat.E164)
    for kind in KINDS
    for number in (
        *(
            phonenumbers.example_number_for_type(region, kind)
            for region in sorted(phonenumbers.SUPPORTED_REGIONS)
        ),
        *(
            phonenumbers.example_number_for_non_geo_entity(code)
            for code in sorted(phonenumbers.COUNTRY_CODES_FOR_NON_GEO_REGIONS)
        ),
    )
    if number
]
ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
FUTURE = st.datetimes(datetime(2100, 1, 1), datetime(9999, 12, 30), timezones=ZONES)  # noqa: DTZ001

schemathesis.openapi.format("phone", st.sampled_from(NUMBERS))
schemathesis.openapi.format("iso-date-time", FUTURE.map(datetime.isoformat))


@schemathesis.hook
def before_call(context, case, kwargs):
    """Use no idempotency key twice: with another body it is refused."""
    key = (case.headers or {}).get("Idempotency-Key", "")
    if re.fullmatch("[!-~]{1,255}", key):
        case.headers["Idempotency-Key"] = (key + uuid.uuid4().hex)[-255:]
