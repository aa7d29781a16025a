"""What people and monitoring ask about messages: the health of the queue, listings, usage.

Nothing here changes a message.
"""

from reports.listings import (
    Cursor,
    Filter,
    awaiting,
    by_time,
    count,
    count_awaiting,
    listing,
    newest_first,
    order,
    page,
    search,
    seen_by,
    times_texted,
)
from reports.queue import (
    FailureSpike,
    approvals,
    approvals_by_key,
    awaiting_approval,
    awaiting_carrier,
    by_status,
    commonest_error,
    count_ended,
    dead_receivers,
    due_once_approved,
    ended_since,
    errors_by_key,
    failure_spike,
    going_out,
    in_lane,
    last_sent_at,
    next_parts,
    oldest_due,
    oldest_event,
    retrying,
    unusual,
    waiting,
)
from reports.usage import LimitUse, Usage, count_usage, limits_used_up, use_of_limits
