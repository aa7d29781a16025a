"""Metrics for Prometheus: requests over all workers of gunicorn, messages from the database.

The workers share PROMETHEUS_MULTIPROC_DIR, a folder that gunicorn.conf.py names: prometheus_client
looks for it once, when it is imported. Without it, a process counts for itself.
"""

import os

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUESTS = Histogram(
    "http_request_duration_seconds", "Requests answered, by status.", ["status"], registry=None
)
REFUSALS = Counter(
    "text_messages_refused",
    "Messages refused because of a limit or a premium-rate number.",
    ["key", "reason"],
    registry=None,
)
GAUGES = {  # the help, and the label if there is one
    "text_messages": ("Messages that have not ended, by status.", "status"),
    "text_messages_ended_last_hour": ("Messages that ended in the last hour, by status.", "status"),
    "text_messages_awaiting_approval": ("Awaiting approval.",),
    "text_messages_oldest_due_seconds": ("How long the oldest due message has waited.",),
    "text_messages_retrying": ("Messages that are retried.",),
    "text_messages_last_sent_timestamp_seconds": ("When a carrier last took a text.",),
    "text_messages_last_pass_timestamp_seconds": ("When a scheduler last began a pass.",),
    "text_messages_commonest_error": ("Messages with the last hour's commonest error.",),
    "text_messages_events_waiting": ("Events that wait to be delivered, by key.", "key"),
    "text_messages_events_oldest_seconds": ("How long the oldest event has waited, by key.", "key"),
    "text_messages_events_given_up": ("Events that were given up, by key.", "key"),
    "text_messages_carrier_trouble": (
        "1 if the carrier refuses the account or is down.",
        "carrier",
    ),
    "text_messages_receipts_unmatched_last_day": ("Receipts that belong to no message.",),
    "text_messages_opt_outs_ignored_last_day": (
        "STOPs and STARTs whose number was not understood.",
    ),
}


def observe(status: int, seconds: float) -> None:
    """Count one answered request."""
    REQUESTS.labels(status).observe(seconds)


def count_refusal(key: str, reason: str) -> None:
    """Count one message that was refused to a key."""
    REFUSALS.labels(key, reason).inc()


def gauge(name: str, value: float | dict) -> GaugeMetricFamily:
    """Return a gauge with one value, or with one for each value of its label."""
    help, *label = GAUGES[name]
    if not label:
        return GaugeMetricFamily(name, help, value)
    family = GaugeMetricFamily(name, help, labels=label)
    for labelled, number in value.items():
        family.add_metric([labelled], number)
    return family


def render(values: dict[str, float | dict]) -> bytes:
    """Return the requests and these gauges in Prometheus' text format."""
    registry = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        MultiProcessCollector(registry)
    else:
        registry.register(REQUESTS)
        registry.register(REFUSALS)

    class Gauges:
        def collect(self):
            return [gauge(name, value) for name, value in values.items()]

    registry.register(Gauges())
    return generate_latest(registry)
