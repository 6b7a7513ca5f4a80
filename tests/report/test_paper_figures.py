"""The figures that the page draws with scripts of its own, as files for papers: the fan of thresholds, and the map."""

import re
from dataclasses import replace

import numpy as np
import pytest

from equimetric.report import figures_of, render_figure, render_html
from equimetric.report.fan_figure import fan_figure
from equimetric.report.map_figure import map_figure
from equimetric.runs.profile import EmbeddingMap, RunProfile


@pytest.fixture
def closely_known(study, closer, class_list):
    return replace(study, runs=tuple(replace(run, classes=class_list) for run in study.runs), **closer)


def words(figure):
    return re.findall(r">([^<>]+)</text>", render_figure(figure, "svg").decode())


def test_papers_get_a_fan_for_each_compared_method_and_a_map(closely_known):
    figures = {figure.name: figure for figure in figures_of(closely_known)}
    assert {"utility-1", "utility-2", "map"} <= set(figures)
    assert "multi_similarity" in words(figures["utility-1"])
    assert "contrastive" in words(figures["utility-2"])
    assert 'id="figure-utility-1"' not in render_html(closely_known)


def test_the_fan_holds_the_curves_of_the_profile(closely_known):
    run = closely_known.profiles["contrastive"].run
    figure = fan_figure("contrastive", run, 1)
    text = str(figure.spec())
    mean = run.thresholds.utility.mean(axis=0)
    assert str(round(float(mean[len(mean) // 2]), 5)) in text
    assert f"certified at FAR {100 * run.certified.target_far:g} %" in words(figure)
    assert {"mean of all classes", "best 10 %", "worst 10 %", "utility of a class"} <= set(words(figure))
    first, last = run.thresholds.calibration
    low, high = run.thresholds.thresholds[[first, last - 1]]
    assert {"from": float(low), "to": float(high)} in figure.spec()["layer"][0]["data"]["values"]
    assert fan_figure("none", RunProfile(), 1) is None


def test_the_map_has_a_mark_for_every_item():
    places = EmbeddingMap(np.arange(6), np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32))
    figure = map_figure("margin", places, lambda row: row // 3, lambda label: f"class <{label}>")
    values = figure.spec()["data"]["values"]
    assert [value["class"] for value in values] == ["class <0>"] * 3 + ["class <1>"] * 3
    assert all(0 <= value[axis] <= 1 for value in values for axis in "xy")
    assert map_figure("margin", None, int, str) is None


def test_without_profiles_there_are_none(judged_study):
    assert not {"map", "utility-1"} & {figure.name for figure in figures_of(judged_study)}
