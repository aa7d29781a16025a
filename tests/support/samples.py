"""Numbers and instants that many tests use."""

from datetime import UTC, datetime

NEW_YORK = "+12125550123"
LONDON = "+442083661177"
TUESDAY_NOON = datetime(2026, 3, 3, 17, 0, tzinfo=UTC)  # noon in New York
SUNDAY_NIGHT = datetime(2026, 3, 2, 4, 30, tzinfo=UTC)  # 11:30 PM in New York
