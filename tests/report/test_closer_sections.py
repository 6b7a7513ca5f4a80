"""The sections that look closer at methods: thresholds, consistency, pair weights, faults."""

import base64
import gzip
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import vl_convert

from equimetric.evaluation import evaluate
from equimetric.evaluation.engine.inputs import prepare_sets
from equimetric.evaluation.engine.pair_distances import pair_distances
from equimetric.evaluation.threshold_profile import threshold_profile
from equimetric.report import render_figure, render_html
from equimetric.report.pictures import Thumbnails
from equimetric.report.retrieval_data import collect_rows, retrieval_faults
from equimetric.report.section import SECTIONS
from equimetric.report.sections.accuracy_consistency import (
    WIDTHS,
    draw_points,
    find_front,
    group_labels,
    pareto_front,
)
from equimetric.report.sections.explorer import compared_methods, fit_classes
from equimetric.report.sections.weights import grid_weights
from equimetric.report.threshold_data import all_classes, method_thresholds, pack_counts, with_certified
from equimetric.report.understanding_figures import pads_figure, read_bins


@pytest.fixture
def known(study, closer, class_list):
    """The study with profiles, its runs with the names of the test classes."""
    runs = tuple(replace(run, classes=class_list) for run in study.runs)
    return replace(study, runs=runs, **closer)


def unpack(text):
    planes = np.frombuffer(gzip.decompress(base64.b64decode(text)), np.uint8).reshape(4, -1)
    return np.ascontiguousarray(planes.T).view("<u4").ravel()


def test_thresholds_of_a_method_equal_the_api(known, spaces):
    values = SECTIONS["explorer"].data(known)["values"]
    found = spaces["contrastive"]
    certified = known.profiles["contrastive"].run.certified
    profile, _ = with_certified(threshold_profile(found.embeddings, found.labels), certified)
    method = values["methods"]["contrastive"]
    assert method["negative"] == profile.negative.tolist()
    assert method["opis"] == pytest.approx(
        evaluate(found.embeddings, found.labels, metrics=["opis"])["opis"], abs=1e-12
    )
    quantiles = np.frombuffer(base64.b64decode(method["quantiles"]["far"]), "<u2").reshape(101, -1) / 65535
    expected = np.quantile(profile.class_far, 0.9, axis=0)
    np.testing.assert_allclose(quantiles[90], expected, atol=1e-5)
    worst, place = method["worst"][0], int(np.argmin(profile.consistency.mean_utility))
    assert worst["name"] == found.class_names[place]
    assert worst["negative"] == profile.class_negative[place].tolist()


def test_the_certified_threshold_is_one_of_the_thresholds(known, spaces):
    run, found = known.profiles["contrastive"].run, spaces["contrastive"]
    method = method_thresholds(run.thresholds, {}, run.certified)
    assert len(method["thresholds"]) == len(run.thresholds.thresholds) + 1
    place = method["thresholds"].index(run.certified.threshold)
    distances = pair_distances(prepare_sets(found.embeddings, found.labels))
    assert method["negative"][place] == distances.count_accepted(run.certified.threshold, strictly_below=True).negative
    assert method["thresholds"] == sorted(method["thresholds"])
    assert method["opis"] == run.thresholds.consistency.opis
    assert place in all_classes(run.thresholds, {}, 8, run.certified)["kept"]
    first, last = method["calibration"]
    assert method["thresholds"][first] == run.thresholds.thresholds[run.thresholds.calibration[0]]
    assert method["thresholds"][last - 1] == run.thresholds.thresholds[run.thresholds.calibration[1] - 1]
    # A run of an older version has not counted its pairs.
    old = replace(run.certified, counts=None)
    assert method_thresholds(run.thresholds, {}, old)["thresholds"] == run.thresholds.thresholds.tolist()


def test_all_classes_are_exact_and_fit(known, spaces):
    profile = threshold_profile(spaces["contrastive"].embeddings, spaces["contrastive"].labels)
    packed = all_classes(profile, {}, 4)
    counts = unpack(packed["negative"]).reshape(24, -1).cumsum(axis=1)
    np.testing.assert_array_equal(counts, profile.class_negative[:, ::4])
    np.testing.assert_array_equal(unpack(pack_counts(profile.class_positives)), profile.class_positives)
    whole = len(json.dumps({"a": all_classes(profile, {}, 1)}))
    assert fit_classes({"a": profile}, {}, whole)["a"]["kept"] == list(range(len(profile.thresholds)))
    assert len(json.dumps(fit_classes({"a": profile}, {}, whole - 1))) < whole
    assert fit_classes({"a": profile}, {}, 10) == {}


def test_a_method_takes_a_fifth_of_a_megabyte_with_many_classes():
    draw = np.random.default_rng(0)
    profile = threshold_profile(draw.normal(size=(900, 8)), np.repeat(np.arange(300), 3))
    assert len(json.dumps(method_thresholds(profile, {}))) < 220_000


def test_methods_with_and_without_tcm_are_compared(known):
    recipes = {"a": ("multi_similarity", {}), "b": ("contrastive", {}), "c": ("multi_similarity+tcm", {})}
    assert compared_methods(replace(known, recipes=recipes), ["b", "c", "a"]) == ["a", "c"]
    assert compared_methods(replace(known, recipes={}), ["b", "c", "a"]) == ["b", "c"]


def test_scores_are_accepted_from_the_threshold_on(known):
    run = known.profiles["contrastive"].run
    scored = replace(run, thresholds=replace(run.thresholds, scored=True), plain=run.thresholds)
    profiles = {"contrastive": replace(known.profiles["contrastive"], run=scored)}
    sections = [SECTIONS["explorer"].data(one) for one in (known, replace(known, profiles=profiles))]
    assert [one["accepted"] for one in sections] == [
        "distance is at most", "distance is at most or their score is at least",
    ]  # fmt: skip
    methods = sections[1]["values"]["methods"]
    assert {name: method["cohort"] for name, method in methods.items()} == {
        "contrastive": True, "contrastive (without its cohort)": False,
    }  # fmt: skip


def test_old_stores_have_none_of_these_sections(study):
    for name in ("explorer", "faults", "weights", "understand", "accuracy_consistency"):
        assert SECTIONS[name].data(study) is None


def test_front_has_the_methods_that_none_beats():
    assert pareto_front([(90, 5), (80, 4), (85, 6), (70, 9), (90, 5)]) == [1, 0, 4]


def test_baselines_beside_the_methods_are_not_of_their_front():
    points = [
        ("raw", "baseline", 95, 30),
        ("start", "baseline", 80, 25),
        ("a", "method", 90, 20),
        ("b", "method", 85, 25),
    ]
    made = [{"method": name, "kind": kind, "accuracy": one, "opis": two} for name, kind, one, two in points]
    drawn, beside = find_front(made)
    assert [(point["method"], point["front"]) for point in drawn] == [("a", True), ("b", False)]
    assert [(point["method"], point["unbeaten"]) for point in beside] == [("raw", True), ("start", False)]
    drawn, beside = find_front(made[:3])
    assert not beside
    assert [point["front"] for point in drawn] == [True, False, True]


@pytest.mark.parametrize(
    ("opis", "kind"), [((1.0, 2.0), "linear"), ((1.0, 30.0), "log"), ((19.0, 57.0), "linear"), ((0.0, 30.0), "linear")]
)
def test_one_very_unequal_method_leaves_the_others_apart(opis, kind):
    points = [
        {"method": str(k), "kind": "method", "front": k == 0, "accuracy": 90 + k}
        | dict.fromkeys(("accuracy_low", "accuracy_high"), 90 + k)
        | dict.fromkeys(("opis", "opis_low", "opis_high"), value)
        for k, value in enumerate(opis)
    ]
    spec = draw_points(points).to_dict()
    labels = re.findall(r">([^<>]+)</text>", vl_convert.vegalite_to_svg(spec | {"width": 600}))
    assert not [label for label in labels if "e+" in label], "numbers of an axis have no exponent"
    layers = spec["layer"]
    scale = layers[1]["encoding"]["y"]["scale"]
    assert scale["type"] == kind
    assert scale["domain"][0] < opis[0] < opis[1] < scale["domain"][1]
    assert all(layer["encoding"]["y"].get("scale", scale) == scale for layer in layers)


def test_every_method_of_the_front_is_named():
    draw = np.random.default_rng(0)
    crowd = [(f"one of many methods {k}", 93 + x, 2 + y) for k, (x, y) in enumerate(draw.uniform(0, 1, (25, 2)))]
    points = [
        {"method": name, "kind": "method", "front": name.startswith("front")}
        | dict.fromkeys(("accuracy", "accuracy_low", "accuracy_high"), accuracy)
        | dict.fromkeys(("opis", "opis_low", "opis_high"), opis)
        for name, accuracy, opis in [*crowd, ("front, accurate", 94.01, 2.0), ("front, even", 93.9, 1.98)]
    ]
    for widths in WIDTHS:
        named = {point["method"] for group in group_labels(points, widths).values() for point in group}
        assert {"front, accurate", "front, even"} <= named


def test_a_phone_shows_numbers_and_what_they_mean(known):
    """Names have no room there, and a finger cannot point at a circle."""
    found = SECTIONS["accuracy_consistency"].data(known)
    layers = [layer for layer in found["figure"].spec()["layer"] if layer["mark"]["type"] == "text"]
    shown = {layer["encoding"]["text"]["field"]: layer["mark"]["opacity"]["expr"] for layer in layers}
    assert shown["number"] == "width >= 200 && width < 560 ? 1 : 0"
    assert "width < 560" not in shown["method"]
    numbers = {
        value["number"] for layer in layers for value in layer["data"]["values"] if "number" in value
    }  # fmt: skip
    assert numbers == {str(number) for number in range(1, len(found["names"]) + 1)}
    page = render_html(known)
    assert all(f'<li class="name">{name.replace("_", "_<wbr>")}</li>' in page for name in found["names"])


def test_papers_and_pages_have_names_of_one_width_alone(known):
    figure = SECTIONS["accuracy_consistency"].data(known)["figure"]
    for width in (figure.paper_width, 260, 600, 900):
        assert sum(widths.narrowest <= width < widths.widest for widths in WIDTHS) == 1


def test_consistency_takes_opis_from_stored_thresholds(known, spaces):
    found = SECTIONS["accuracy_consistency"].data(known)
    assert "multi_similarity" in found["front"]
    points = found["figure"].spec()["layer"][0]["data"]["values"]
    opis = evaluate(spaces["contrastive"].embeddings, spaces["contrastive"].labels, metrics=["opis"])["opis"]
    assert {point["method"]: point["opis"] for point in points}["contrastive"] == pytest.approx(1e3 * opis)


def test_weights_of_methods_and_why_others_have_none(known):
    found, _ = grid_weights("contrastive_cosine", '{"lam": 0.5}')
    negative = dict(zip(found["cosine"], found["negative"], strict=True))
    assert {round(cosine, 3): weight for cosine, weight in negative.items()}[0.6] == pytest.approx(1.0)
    assert "reads the embeddings" in grid_weights("hdc", "{}")[1]


def test_weights_of_random_draws_are_the_same_in_every_page(known):
    made = replace(known, recipes={"a": ("pads", {})})
    pages = []
    for _ in range(2):
        grid_weights.cache_clear()
        pages.append(render_html(made))
    assert pages[0] == pages[1]


def test_methods_with_the_same_weights_share_a_panel(known):
    recipes = {"a": ("contrastive", {}), "b": ("multi_similarity", {}), "c": ("contrastive", {})}
    curves = SECTIONS["weights"].data(replace(known, recipes=recipes))["curves"]
    assert [panel["names"] for panel in curves] == [["a", "c"], ["b"]]
    assert "a, c" in curves[0]["figure"].description


def test_papers_name_the_methods_of_weights(known):
    """Files have no heading; a page has one, and does not say it again in the figure."""
    long = [f"a_method_with_a_long_name_{number}" for number in range(6)]
    line = {"kind": "pair_weights", "step": 20}
    line |= {kind: {"pairs": [3], "weight": [0.5]} for kind in ("positive", "negative")}
    recipes = {**dict.fromkeys(long, ("contrastive", {})), "multi_similarity": ("multi_similarity", {})}
    runs = tuple(replace(run, history=(line,)) for run in known.runs)
    found = SECTIONS["weights"].data(replace(known, recipes=recipes, runs=runs))
    shared, alone = (panel["figure"] for panel in found["curves"])
    (batch,) = (panel["figure"] for panel in found["batches"])
    drawn = render_figure(shared, "svg").decode()
    assert all(name in drawn for name in long)
    for figure in (alone, batch):
        assert ">multi_similarity<" in render_figure(figure, "svg").decode()
        assert "title" not in figure.page_spec()


def test_weights_are_those_of_the_tuned_options(known):
    recipes = {"a": ("contrastive", {"neg_margin": 1.0}), "b": ("contrastive", {"neg_margin": 1.0})}
    made = replace(known, recipes=recipes, tuned={"b": {"neg_margin": 0.51234}})
    first, second = SECTIONS["weights"].data(made)["curves"]
    assert "Tuned" not in first["figure"].caption
    assert second["figure"].caption.endswith("Tuned: neg_margin = 0.5123.")


def test_weights_of_batches_are_drawn_where_they_were_logged(known):
    line = {"kind": "pair_weights", "step": 20}
    line |= {kind: {"pairs": [0, 3, 1, 0], "weight": [0.0, 0.5, 1.0, 0.0]} for kind in ("positive", "negative")}
    runs = tuple(replace(run, history=(line,)) for run in known.runs)
    (first, _) = SECTIONS["weights"].data(replace(known, runs=runs))["batches"]
    values = first["figure"].spec()["data"]["values"]
    assert len(values) == 4
    assert values[0] == {"row": "positive 20", "low": -0.5, "high": 0.0, "share": 0.5, "weight": 0.5, "pairs": 3}


def test_methods_without_weights_of_a_batch_are_named(known):
    line = {"kind": "pair_weights", "step": 20}
    line |= {kind: {"pairs": [3], "weight": [0.5]} for kind in ("positive", "negative")}
    first, second = known.recipes
    runs = tuple(replace(run, history=(line,)) if run.method == first else run for run in known.runs)
    found = SECTIONS["weights"].data(replace(known, runs=runs))
    assert [panel["name"] for panel in found["batches"]] == [first]
    assert found["not_logged"] == [second]


def test_pads_draws_its_distribution():
    figures = {"held-out score": 0.5, "negatives up to 0.500": 0.75, "negatives above 0.500": 0.25}
    assert [probability for _, probability in read_bins(figures)] == [0.75, 0.25]
    figure = pads_figure("PADS", [{"kind": "train", "step": 30, "learner": figures}])
    assert [cell["probability"] for cell in figure.spec()["data"]["values"]] == [75.0, 25.0]
    assert pads_figure("PADS", [{"kind": "train", "step": 30}]) is None


def test_faults_are_the_worst_first(closer):
    profile, images = closer["profiles"]["contrastive"], closer["images"]
    faults = retrieval_faults(profile, images)
    scores = profile.per_query["map@r"]
    assert faults["queries"][0]["score"] == pytest.approx(scores.min(), abs=1e-4)
    means = [scores[profile.per_query["labels"] == label].mean() for label in range(24)]
    assert faults["classes"][0]["mean"] == pytest.approx(min(means), abs=1e-4)
    assert [one["mean"] for one in faults["classes"]] == sorted(one["mean"] for one in faults["classes"])
    neighbours = profile.per_query["neighbours"]
    assert faults["hubs"][0]["times"] == np.bincount(neighbours.ravel()).max()
    first, second = faults["confused"][0]["images"]
    assert images.labels[first] != images.labels[second]
    distances = [pair["distance"] for pair in faults["duplicates"]]
    assert distances == sorted(distances)
    assert all(images.labels[a] != images.labels[b] for a, b in (pair["images"] for pair in faults["duplicates"]))


def test_pictures_stop_where_there_is_no_room(closer):
    faults = retrieval_faults(closer["profiles"]["contrastive"], closer["images"])
    pictures = Thumbnails(closer["images"], 2000)
    assert not pictures.add(*collect_rows(faults))
    assert pictures.data_urls == {}
    assert pictures.add(0)
    assert pictures.data_urls[0].startswith("data:image/png")


def test_hostile_class_names_end_no_element(known):
    page = render_html(known)
    assert "<script>alert" not in page
