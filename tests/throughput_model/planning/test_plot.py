"""The picture of a plan: what is drawn, and where it can go."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.axes import Axes

from tests.throughput_model.plans import MODELS, outlook, pair
from tokenrouter.errors import ConfigError
from tokenrouter.throughput_model.parameters import Model, System
from tokenrouter.throughput_model.planning import plot
from tokenrouter.throughput_model.planning.outlook import Outlook
from tokenrouter.throughput_model.systems import cascade

PLAN = outlook(((1, 3), 208.0, 0.0), ((2, 3), 198.0, 0.0), ((1, 1), 187.0, 0.0))


def curves(system: System, *outlooks: Outlook) -> tuple[Axes, dict[str, list[tuple[float, float]]]]:
    """The axes; the points of each curve in the legend."""
    [axes] = plot.draw(system, outlooks).axes
    handles, labels = axes.get_legend_handles_labels()
    lines = [getattr(handle, "lines", [handle])[0] for handle in handles]
    points = [list(map(tuple, line.get_xydata())) for line in lines]
    return axes, dict(zip(labels, points, strict=True))


def test_of_two_models_the_second_threshold_varies() -> None:
    high = outlook(((2, 5), 300.0, 0.0), ((2, 4), 290.0, 0.0), ((1, 1), 200.0, 0.0), concurrency=9)
    axes, found = curves(pair(), PLAN, high)
    assert found == {
        "4 at once": [(1, 187.0), (3, 208.0)],
        "9 at once, 2 for small": [(4, 290.0), (5, 300.0)],
    }
    assert axes.get_xlabel() == "threshold of large"
    stars = [line for line in axes.lines if line.get_marker() == "*"]
    assert [tuple(star.get_xydata()[0]) for star in stars] == [(3, 208.0), (5, 300.0)]


def test_nothing_is_cut_off_or_hidden() -> None:
    [axes] = (figure := plot.draw(pair(), [PLAN])).axes
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert not legend.overlaps(axes.get_window_extent())
    [star] = [line for line in axes.lines if line.get_marker() == "*"]
    assert axes.get_window_extent().containsy(star.get_window_extent().y1)


def test_over_concurrency_the_best_is_on_top_and_tells_its_vectors() -> None:
    plans = [outlook(((1, 1, n), 100.0 * n, 0.0), concurrency=n, bound=400.0) for n in (1, 2)]
    third = Model("third", MODELS[0].latency)
    axes, _ = curves(cascade((*MODELS, third), [0.5, 0.5]), *plans)
    assert axes.lines[-1].get_label() == "best thresholds"
    assert [text.get_text() for text in axes.texts] == ["1,1,1", "1,1,2"]
    assert all(float(tick).is_integer() for tick in axes.get_xticks())


@pytest.mark.parametrize("models", [MODELS, (*MODELS, Model("third", MODELS[0].latency))])
def test_otherwise_concurrency_does(models: tuple[Model, ...]) -> None:
    ones = (1,) * len(models)
    plans = [outlook((ones, 100.0 * n, 0.0), concurrency=n, bound=400.0) for n in (1, 2)]
    axes, found = curves(cascade(models, [0.5] * (len(models) - 1)), *plans)
    assert found == {
        "best thresholds": [(1, 100.0), (2, 200.0)],
        "thresholds of 1": [(1, 150.0), (2, 150.0)],
        "lockstep": [(1, 120.0), (2, 120.0)],
        "bound": [(1, 400.0), (2, 400.0)],
    }
    assert axes.get_xlabel() == "requests at once"


@pytest.mark.parametrize(
    ("name", "magic"), [("p.png", b"\x89PNG"), ("p.svg", b"<?xml"), ("p.PDF", b"%PDF")]
)
def test_the_ending_says_which_kind(name: str, magic: bytes, tmp_path: Path) -> None:
    plot.check(tmp_path / name)
    plot.save(tmp_path / name, pair(), [PLAN])
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_where_it_cannot_go(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--plot: .*p.docx: must end in one of .*png"):
        plot.check(tmp_path / "p.docx")
    with pytest.raises(ConfigError, match=r"--plot: .*none: no such folder; make it, or name"):
        plot.check(tmp_path / "none" / "p.png")
    (tmp_path / "p.png").mkdir()
    with pytest.raises(ConfigError, match=r"--plot: .*p.png: cannot be written: Is a directory"):
        plot.save(tmp_path / "p.png", pair(), [PLAN])
