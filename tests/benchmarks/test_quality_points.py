"""Points survive their files, and mixtures are expectations."""

from __future__ import annotations

import json

import numpy
import pytest
from quality_points import from_json, mixture, to_json

from tests.benchmarks.quality import PROBLEMS, TOKENS, point


def test_a_point_survives_its_file() -> None:
    original = point("entropy", 0.75, 0.05, target=0.05)
    restored = from_json(json.loads(json.dumps(to_json(original))))
    assert (restored.accuracy, restored.share, restored.target) == (0.75, 0.05, 0.05)
    assert restored.throughput == PROBLEMS * TOKENS / 2.0
    assert restored.passes_per_token("large") == 80 / (PROBLEMS * TOKENS)


def test_a_mixture_has_each_part_with_its_weight() -> None:
    weights = numpy.zeros(PROBLEMS)
    weights[0] = 1.0
    small, large = point("small", 0.0, 0.0), point("large", 1.0, 1.0)
    one = mixture("mixed", [(1 - weights, small), (weights, large)])
    assert one.exact.sum() == 1.0 and one.share == pytest.approx(1 / PROBLEMS)
    even = mixture("mixed", [(0.25, small), (0.75, large)])
    assert even.accuracy == pytest.approx(0.75) and even.share == pytest.approx(0.75)
