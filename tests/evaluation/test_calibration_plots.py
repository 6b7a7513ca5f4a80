"""Figures of a calibration: named classes, worst first, with bounds and target rate; distances with the threshold."""

import pytest
import torch
from matplotlib.colors import to_hex

from equimetric.calibration import calibrate
from equimetric.evaluation.plots import WORST


@pytest.fixture(scope="module")
def calibration():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(40).repeat_interleave(12)
    embeddings = torch.eye(40)[labels] + 0.15 + 0.12 * torch.randn(480, 40, generator=generator)
    embeddings[labels == 7] -= torch.eye(40)[7]
    names = [f"class {label:02} of $x$ \x1b[31m {'long ' * 20}" for label in labels.tolist()]
    return calibrate(embeddings, names, 1e-2, resamples=20)


def test_classes_are_drawn_worst_first_and_violations_in_colour(calibration):
    figure = calibration.plot_classes(most=10)
    far, frr = figure.axes
    labels = far.get_yticklabels()
    names = [label.get_text() for label in labels]
    assert len(names) == 10
    assert [name[:8] for name in names] == [str(name)[:8] for name in calibration.worst(10)]
    assert all("\x1b" not in name and len(name) <= 33 for name in names)
    assert [to_hex(label.get_color()) == WORST for label in labels] == [True] + 9 * [False]
    assert [line.get_xdata()[0] for line in far.lines] == [1e-2]
    assert [line.get_xdata()[0] for line in frr.lines] == [calibration.held_out.frr]
    rates = list(calibration.worst(10).values())
    drawn = far.collections[2].get_offsets()
    assert drawn[:, 0].tolist() == pytest.approx([max(some.far, far.get_xlim()[0]) for some in rates])
    bounds = far.collections[1].get_offsets()[:, 0]
    assert bounds[0] == pytest.approx(rates[0].far_bound)
    beyond = [row for row, some in enumerate(rates) if some.far_bound < far.get_xlim()[0]]
    assert far.collections[3].get_offsets()[:, 1].tolist() == beyond
    assert f"{len(calibration.exceedances)} above the target rate, 1 with 95% confidence" in figure.get_suptitle()
    assert far.get_ylim()[0] > far.get_ylim()[1]
    figure.canvas.draw()


def test_distances_are_drawn_with_the_threshold_and_its_interval(calibration):
    figure = calibration.plot_distances()
    axes = figure.axes[0]
    assert [line.get_xdata()[0] for line in axes.lines] == [calibration.threshold]
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts[0].endswith(f"{calibration.fitted.frr:.2%} rejected")
    assert texts[1].endswith(f"{calibration.fitted.far:.2%} accepted")
    spans = [patch for patch in axes.patches if patch.get_label() == "its 95% interval"]
    assert spans[0].get_x() == pytest.approx(calibration.interval[0])
    assert spans[0].get_x() + spans[0].get_width() == pytest.approx(calibration.interval[1])
    assert len(axes.child_axes) == 1
    figure.canvas.draw()


@pytest.mark.parametrize("options", [{"frr": 0.1}, {"cost": (10, 1, 0.3), "geometry": "euclidean"}])
def test_other_targets_are_drawn(options):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(20).repeat_interleave(6)
    embeddings = torch.randn(20, 8, generator=generator)[labels] + 0.5 * torch.randn(120, 8, generator=generator)
    result = calibrate(embeddings, labels, resamples=10, **options)
    for figure in (result.plot_classes(), result.plot_distances()):
        figure.canvas.draw()
    assert not result.plot_distances().axes[0].child_axes or "frr" in options
