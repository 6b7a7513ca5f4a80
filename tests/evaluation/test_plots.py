import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation import ClassThresholds, Cohort, Consistency, evaluate
from equimetric.evaluation.metrics.roc import Roc
from equimetric.evaluation.metrics.verification import DistanceHistogram, EqualErrorThreshold
from equimetric.evaluation.plots import (
    distance_figure,
    plot_distances,
    plot_roc,
    plot_utility,
    roc_figure,
    utility_figure,
)

THRESHOLDS = np.linspace(0.0, 2.0, 41)
UTILITY = np.clip(1 - (THRESHOLDS - np.linspace(0.8, 1.2, 20)[:, None]) ** 2 - np.linspace(0.5, 0, 20)[:, None], 0, 1)


def lines_of(figure):
    """Label → (x, y) of the lines with a label."""
    (axes,) = figure.axes
    labelled = [line for line in axes.get_lines() if not line.get_label().startswith("_")]
    return {line.get_label(): line.get_xydata().T for line in labelled}


def legend_of(figure):
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def test_utility_curves():
    figure = utility_figure(THRESHOLDS, UTILITY, share=0.1, calibration_range=(0.5, 1.5))
    lines = lines_of(figure)
    np.testing.assert_allclose(lines["mean of 20 classes"][1], UTILITY.mean(axis=0))
    # The classes improve from first to last.
    np.testing.assert_allclose(lines["best 2 classes"][1], UTILITY[-2:].mean(axis=0))
    np.testing.assert_allclose(lines["worst 2 classes"][1], UTILITY[:2].mean(axis=0))
    assert {"middle 80 % of the classes", "calibration range 0.5 … 1.5", "single classes"} < set(legend_of(figure))
    assert figure.axes[0].get_xlabel() == "distance threshold"
    assert figure.axes[0].get_ylabel() == "utility of a class"


def test_classes_are_ranked_within_the_calibration_range():
    low_thresholds = np.where(THRESHOLDS < 1, 0.9, 0.1)
    utility = np.stack([low_thresholds, 1 - low_thresholds])
    best = lines_of(utility_figure(THRESHOLDS, utility, calibration_range=(0.2, 0.8)))["best class"]
    np.testing.assert_allclose(best[1], utility[0])
    best = lines_of(utility_figure(THRESHOLDS, utility, calibration_range=(1.2, 1.8)))["best class"]
    np.testing.assert_allclose(best[1], utility[1])


def test_many_classes_are_not_drawn_singly():
    figure = utility_figure(THRESHOLDS, np.tile(UTILITY, (20, 1)))
    assert len(figure.axes[0].get_lines()) == 3
    # The range is the whole axis: it is not marked.
    assert not any("calibration" in label for label in legend_of(figure))
    assert figure.axes[0].get_xlabel() == "distance threshold, over the calibration range"


def test_roc_curve():
    far, tar = np.array([0, 0, 1e-3, 1e-2, 0.5, 1]), np.array([0, 0.2, 0.4, 0.7, 0.9, 1])
    figure = roc_figure(far[::-1], tar[::-1], marked={1e-5: 0.1, 1e-2: 0.7, 0.1: 0.75})
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    x, y = lines_of(figure)["this space"]
    np.testing.assert_allclose(x, [5e-4, 1e-3, 1e-2, 0.5, 1])
    np.testing.assert_allclose(y, [0.2, 0.4, 0.7, 0.9, 1])
    # 1e-5 is below the smallest rate of these pairs.
    assert [text.get_text() for text in axes.texts] == ["70.0% at 0.01", "75.0% at 0.1"]
    assert axes.get_xlabel() == "false accept rate (FAR)"
    assert axes.get_ylabel() == "true accept rate (TAR)"


def test_histograms_of_distances():
    edges, positive, negative = np.array([0.0, 0.5, 1.0, 2.0]), np.array([6, 2, 0]), np.array([0, 10, 90])
    figure = distance_figure(edges, positive, negative, threshold=0.75)
    steps = {patch.get_label(): patch.get_data() for patch in figure.axes[0].patches if patch.get_label()}
    shown = steps["positive pairs (8): 12.50% rejected"]
    np.testing.assert_allclose(shown.values, [1.5, 0.5, 0])
    np.testing.assert_allclose(shown.edges, edges)
    assert (shown.values * np.diff(edges)).sum() == pytest.approx(1)
    np.testing.assert_allclose(steps["negative pairs (100): 5.00% accepted"].values, [0, 0.2, 0.9])
    np.testing.assert_allclose(lines_of(figure)["threshold 0.75"][0], 0.75)
    plain = distance_figure(edges, positive, negative)
    assert legend_of(plain) == ["positive pairs (8)", "negative pairs (100)"]
    assert "distance" in plain.axes[0].get_xlabel()


def test_figures_of_an_evaluation(tmp_path):
    result = evaluate(torch.eye(4), [0, 0, 1, 1])
    members = np.arange(len(UTILITY))
    details = (
        Consistency(THRESHOLDS, UTILITY, tuple(members), members, (0.5, 1.5)),
        Roc(threshold=np.zeros(3), far=np.array([0, 0.5, 1]), tar=np.array([0.2, 0.9, 1])),
        DistanceHistogram(edges=np.array([0.0, 1, 2]), positive=np.array([3, 1]), negative=np.array([1, 9])),
    )
    detailed = replace(result, scores={"tar@far=0.5": 0.9}, details={"tar@far=0.5": details})
    figures = {
        "utility": plot_utility(detailed, share=0.5),
        "roc": plot_roc(detailed),
        "distances": plot_distances(detailed, threshold=1.0),
    }
    assert "best 10 classes" in lines_of(figures["utility"])
    assert [text.get_text() for text in figures["roc"].axes[0].texts] == ["90.0% at 0.5"]
    equal_error = {"tar@far=0.5": details, "eer": (EqualErrorThreshold(0.5),)}
    at_equal_error = plot_distances(replace(detailed, details=equal_error))
    assert "threshold 0.5" in legend_of(at_equal_error)
    assert at_equal_error.axes[0].get_title() == "threshold of equal error rates (EER)"
    assert not figures["distances"].axes[0].get_title()
    for name, figure in figures.items():
        figure.savefig(tmp_path / f"{name}.png")
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    for plot, metric in ((plot_utility, "opis"), (plot_roc, "auc"), (plot_distances, "auc")):
        with pytest.raises(EquimetricError, match=f"evaluate with '{metric}' among the metrics"):
            plot(result)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: utility_figure(THRESHOLDS, UTILITY[:, 1:]), "give \\(classes, thresholds\\)"),
        (lambda: utility_figure(THRESHOLDS, UTILITY[:0]), "give \\(classes, thresholds\\)"),
        (lambda: utility_figure(THRESHOLDS, UTILITY, share=10), "share is 10"),
        (lambda: utility_figure(THRESHOLDS, UTILITY, calibration_range=(3, 4)), "no threshold lies within"),
        (lambda: roc_figure(np.zeros(3), np.zeros(2)), "two lists of the same length"),
        (lambda: roc_figure(np.zeros(3), np.ones(3)), "no ROC curve to draw"),
        (lambda: distance_figure(np.zeros(3), np.zeros(3), np.zeros(2)), "3 edges make 2 bins"),
    ],
)
def test_invalid_figures(draw, message):
    with pytest.raises(EquimetricError, match=message):
        draw()


def test_figures_of_a_real_evaluation():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(8).repeat_interleave(5)
    embeddings = torch.randn(8, 4, generator=generator)[labels] + 0.5 * torch.randn(40, 4, generator=generator)
    result = evaluate(embeddings, labels, metrics=["opis", "auc", "eer", "tar@far=0.1"])
    assert "mean of 8 classes" in legend_of(result.plot_utility())
    (mark,) = result.plot_roc().axes[0].texts
    assert mark.get_text() == f"{result['tar@far=0.1']:.1%} at 0.1"
    labels_shown = legend_of(result.plot_distances())
    assert labels_shown[0].startswith("positive pairs (80)")
    assert labels_shown[1].startswith("negative pairs (700)")


def test_noise_band_and_names():
    variance = np.linspace(1e-4, 4e-4, 5)
    figure = utility_figure(
        THRESHOLDS,
        UTILITY,
        names=[f"class ${number}" for number in range(20)],
        noise=(np.linspace(0.0, 2.0, 5), variance),
    )
    legend = legend_of(figure)
    assert "middle 80 % by sampling alone" in legend
    dotted = [line.get_ydata() for line in figure.axes[0].get_lines() if line.get_linestyle() == ":"]
    mean = UTILITY.mean(axis=0)
    spread = 1.2816 * np.sqrt(np.interp(THRESHOLDS, np.linspace(0.0, 2.0, 5), variance))
    np.testing.assert_allclose(dotted[0], np.clip(mean - spread, 0, 1))
    np.testing.assert_allclose(dotted[1], np.clip(mean + spread, 0, 1))
    shown = [text.get_text() for text in figure.axes[0].texts]
    assert shown == [r"worst: class \$0, class \$1", r"best: class \$19, class \$18"]


def test_figures_of_one_rate():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(8).repeat_interleave(12)
    embeddings = torch.randn(8, 4, generator=generator)[labels] + 0.5 * torch.randn(96, 4, generator=generator)
    result = evaluate(embeddings, labels, metrics=["opis_far", "opis_frr@10%"])
    for rate, name in (("far", "opis_far"), ("frr", "opis_frr@10%")):
        figure = result.plot_utility(rate=rate)
        assert figure.axes[0].get_ylabel() == f"1 − {rate.upper()} of a class"
        curves = result.detail(Consistency, name).utility
        np.testing.assert_allclose(lines_of(figure)["mean of 8 classes"][1], curves.mean(axis=0))
        # All pairs are kept here, so the noise is known.
        assert "middle 80 % by sampling alone" in legend_of(figure)
    with pytest.raises(EquimetricError, match="evaluate with 'opis' among the metrics"):
        result.plot_utility()
    with pytest.raises(EquimetricError, match="unknown rate"):
        result.plot_utility(rate="tpr")


def test_pyplot_is_not_imported():
    code = (
        "import sys, numpy as np; from equimetric.evaluation import plots; assert 'matplotlib' not in sys.modules;"
        "plots.roc_figure(np.array([0.1, 1]), np.array([0.5, 1])); assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_figures_with_a_cohort_show_scores():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(12).repeat_interleave(6)
    embeddings = torch.randn(12, 8, generator=generator)[labels] + 0.5 * torch.randn(72, 8, generator=generator)
    cohort = Cohort(torch.randn(60, 8, generator=generator), strength=0.5, nearest=20)
    metrics = ["opis", "opis_far", "auc", "eer", "threshold_gap@far=0.1"]
    result = evaluate(embeddings, labels, metrics=metrics, cohort=cohort)

    queries, items = cohort.extend(embeddings)
    score = (queries @ items.T).numpy()
    same = (labels[:, None] == labels).numpy()
    pair = np.triu(np.ones_like(same), 1)
    figure = result.plot_distances()
    assert figure.axes[0].get_xlabel() == "score of a pair"
    threshold = figure.axes[0].lines[0].get_xdata()[0]
    rejected = (score[pair & same] <= threshold).mean()
    shown = legend_of(figure)
    assert float(shown[0].split(": ")[1].split("%")[0]) / 100 == pytest.approx(rejected, abs=0.03)
    accepted = (score[pair & ~same] > threshold).mean()
    assert float(shown[1].split(": ")[1].split("%")[0]) / 100 == pytest.approx(accepted, abs=0.03)

    figure = result.plot_utility(rate="far", names={label: f"product {label}" for label in range(12)})
    axes = figure.axes[0]
    assert axes.get_xlabel().startswith("score threshold")
    mean = next(line for line in axes.lines if line.get_label().startswith("mean"))
    x, y = mean.get_data()
    assert x[0] < x[-1]
    assert y[0] < y[-1]  # the larger the score that a pair needs, the fewer are accepted
    far = [(score[row][~same[row]] > x[0]).mean() for row in range(72)]
    assert 1 - y[0] == pytest.approx(np.mean(far), abs=1e-6)
    assert all("product " in text.get_text() for text in axes.texts)

    needed = result.detail(ClassThresholds).rename_classes({label: f"product {label}" for label in range(12)})
    text = repr(needed)
    assert f"of scores: {-needed.common:.4f} for all pairs" in text
    assert f"product {result.detail(ClassThresholds).classes[0]}" in text
    assert needed.to_dict()["thresholds"] == "negated scores"
