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


def gauge(name: str, help: str, value: float | dict, label: str = "") -> GaugeMetricFamily:
    """Return a gauge with one value, or with one for each value of its label."""
    if not label:
        return GaugeMetricFamily(name, help, value)
    family = GaugeMetricFamily(name, help, labels=[label])
    for labelled, number in value.items():
        family.add_metric([labelled], number)
    return family


def render(gauges: list[GaugeMetricFamily]) -> bytes:
    """Return the requests, the refusals and these gauges in Prometheus' text format."""
    registry = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        MultiProcessCollector(registry)
    else:
        registry.register(REQUESTS)
        registry.register(REFUSALS)

    class Gauges:
        def collect(self):
            return gauges

    registry.register(Gauges())
    return generate_latest(registry)
