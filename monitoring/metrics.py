"""Metrics for Prometheus: requests over all workers of gunicorn, messages from the database.

Import this module only where requests are answered: prometheus_client reads
PROMETHEUS_MULTIPROC_DIR at import time and creates files there.
"""

import os
import tempfile
from collections.abc import Iterable

if folder := os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
    os.makedirs(folder, exist_ok=True)
else:
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp(prefix="metrics-")

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
REQUESTS = Histogram(
    "http_request_duration_seconds", "Requests answered, by status.", ["status"], registry=None
)


def observe(status: int, seconds: float) -> None:
    """Count one answered request."""
    REQUESTS.labels(status).observe(seconds)


def gauge(name: str, help: str, value: float | dict, label: str = "status") -> GaugeMetricFamily:
    """Return a gauge with one value, or with one value for each value of a label."""
    if not isinstance(value, dict):
        return GaugeMetricFamily(name, help, value)
    family = GaugeMetricFamily(name, help, labels=[label])
    for labelled, number in value.items():
        family.add_metric([labelled], number)
    return family


def render(gauges: Iterable[GaugeMetricFamily]) -> bytes:
    """Return the requests and these gauges in Prometheus' text format."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry)

    class Gauges:
        def collect(self):
            return gauges

    registry.register(Gauges())
    return generate_latest(registry)
