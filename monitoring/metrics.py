"""The numbers for Prometheus: requests over all workers of gunicorn, messages from the database.

Import it only where requests are answered: prometheus_client makes files in
PROMETHEUS_MULTIPROC_DIR, and reads that variable as soon as it is imported.
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


def gauge(name: str, help: str, values: dict, label: str = "status") -> GaugeMetricFamily:
    """Return numbers that were just read, one for each label; a single one under the key None."""
    family = GaugeMetricFamily(name, help, labels=[] if None in values else [label])
    for labelled, value in values.items():
        family.add_metric([] if labelled is None else [labelled], value)
    return family


def render(gauges: Iterable[GaugeMetricFamily]) -> bytes:
    """Return everything in Prometheus' text format."""
    registry = CollectorRegistry()
    MultiProcessCollector(registry)

    class Read:
        def collect(self):
            return gauges

    registry.register(Read())
    return generate_latest(registry)
