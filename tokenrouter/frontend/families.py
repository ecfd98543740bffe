"""Shorthand for Prometheus metrics with the labels of one group."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.utils import floatToGoString

from tokenrouter.ipc.member_state import Buckets

PREFIX = "tokenrouter_"


class Families:
    """Metrics by name, in the order of their first sample.

    Args:
        labels: names of the labels that every sample has.
    """

    def __init__(self, *labels: str) -> None:
        self._labels = labels
        self._families: dict[str, Metric] = {}

    def __iter__(self) -> Iterator[Metric]:
        return iter(self._families.values())

    def gauge(self, name: str, text: str, values: Sequence[str], value: float) -> None:
        """A sample of what is so now."""
        self._get(GaugeMetricFamily, name, text, ()).add_metric(values, value)

    def counter(
        self, name: str, text: str, values: Sequence[str], value: float, **more: str
    ) -> None:
        """A sample of what only grows; ``name`` goes without ``_total``. ``more`` labels."""
        family = self._get(CounterMetricFamily, name, text, more)
        family.add_metric([*values, *more.values()], value)

    def histogram(
        self, name: str, text: str, values: Sequence[str], buckets: Buckets, **more: str
    ) -> None:
        """A sample of a distribution."""
        family = self._get(HistogramMetricFamily, name, text, more)
        bounds = [*map(floatToGoString, buckets.bounds), "+Inf"]
        cumulated = list(zip(bounds, accumulate(buckets.counts), strict=True))
        family.add_metric([*values, *more.values()], cumulated, buckets.sum)

    def _get(self, kind: type[Metric], name: str, text: str, more: Iterable[str]) -> Any:
        if name not in self._families:
            labels = [*self._labels, *(label.rstrip("_") for label in more)]
            self._families[name] = kind(PREFIX + name, text, labels=labels)  # type: ignore[call-arg]
        return self._families[name]
