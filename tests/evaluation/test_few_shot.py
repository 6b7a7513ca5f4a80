"""N-way K-shot accuracy: against enumeration, with ties, galleries and cohorts."""

from itertools import combinations, product
from math import comb

import pytest
import torch

from equimetric.errors import EquimetricError
from equimetric.evaluation import Cohort, evaluate


def space(classes=6, images=4, spread=1.0, seed=0, dimension=3):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes).repeat_interleave(images)
    centres = torch.randn(classes, dimension, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(labels), dimension, generator=generator, dtype=torch.float64)
    return centres[labels] + spread * noise, labels


def enumerate_tasks(embeddings, labels, ways, shots):
    """The accuracy over every choice of K images of each class, every choice of N classes and every other image."""
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    members = [(labels == label).nonzero().flatten().tolist() for label in labels.unique().tolist()]
    scores = {row: [] for row in range(len(labels))}
    for supports in product(*(combinations(rows, shots) for rows in members)):
        means = torch.stack([torch.nn.functional.normalize(unit[list(rows)].sum(0), dim=0) for rows in supports])
        similarity = unit @ means.T
        for own, rows in enumerate(members):
            others = [c for c in range(len(members)) if c != own]
            for row in set(rows) - set(supports[own]):
                right = [
                    all(similarity[row, own] > similarity[row, other] for other in chosen)
                    for chosen in combinations(others, ways - 1)
                ]
                scores[row].append(sum(right) / len(right))
    return sum(sum(values) / len(values) for values in scores.values()) / len(scores)


@pytest.mark.parametrize(("ways", "shots"), [(2, 1), (3, 1), (4, 1), (3, 2)])
def test_draws_approach_the_mean_over_all_tasks(ways, shots):
    embeddings, labels = space(classes=4, images=3)
    name = f"fewshot@{ways}x{shots}"
    found = evaluate(embeddings, labels, metrics=name, few_shot_draws=800)[name]
    assert found == pytest.approx(enumerate_tasks(embeddings, labels, ways, shots), abs=0.02)


def test_equal_images_leave_nothing_to_chance():
    """Of two classes that coincide the lower one is nearer: the other's queries are right where it is not chosen."""
    labels = torch.arange(5).repeat_interleave(3)
    embeddings = torch.eye(5, dtype=torch.float64)[[0, 1, 2, 3, 1]][labels]
    result = evaluate(embeddings, labels, metrics=["fewshot@3x1", "fewshot@5x2", "macro:fewshot@3x1"])
    assert result.per_class[1]["fewshot@3x1"] == 1
    assert result.per_class[4]["fewshot@3x1"] == pytest.approx(comb(3, 2) / comb(4, 2))
    assert result.per_class[4]["fewshot@5x2"] == 0
    assert result["fewshot@3x1"] == pytest.approx((4 + 0.5) / 5) == result["macro:fewshot@3x1"]


def test_more_images_help_and_more_classes_do_not():
    embeddings, labels = space(classes=12, images=12, spread=1.2, dimension=8)
    names = ["fewshot@2x1", "fewshot@5x1", "fewshot@12x1", "fewshot@5x5"]
    result = evaluate(embeddings, labels, metrics=names)
    two, five, all_, more = (result[name] for name in names)
    assert two > five > all_
    assert more > five + 0.05


def test_the_seed_decides_and_draws_are_repeated():
    embeddings, labels = space(images=6)
    first, again, other = (
        evaluate(embeddings, labels, metrics="fewshot@3x2", few_shot_seed=seed)["fewshot@3x2"] for seed in (0, 0, 1)
    )
    assert first == again != other


def test_images_shown_are_no_queries_and_small_classes_take_no_part():
    embeddings, labels = space(classes=5, images=4)
    kept = torch.tensor([0, 1, *range(4, 20)])  # the first class has two images, too few for two shown and one asked
    result = evaluate(embeddings[kept], labels[kept], metrics="fewshot@2x2", few_shot_draws=1)
    scores = result.per_query["fewshot@2x2"]
    assert scores[:2].isnan().all()
    assert scores[2:].isnan().sum() == 4 * 2
    with pytest.raises(EquimetricError, match="compares 5 classes with at least 3 images each, and there are 4"):
        evaluate(embeddings[kept], labels[kept], metrics="fewshot@5x2")


def test_a_gallery_is_shown_and_all_queries_are_asked():
    embeddings, labels = space(images=6)
    gallery = torch.arange(len(labels)) % 2 == 0
    arrays = embeddings[~gallery], labels[~gallery], embeddings[gallery], labels[gallery]
    scores = evaluate(*arrays, metrics="fewshot@3x3").per_query["fewshot@3x3"]
    assert not scores.isnan().any()  # all three images of a class are shown: nothing is drawn
    means = torch.stack(
        [torch.nn.functional.normalize(embeddings[gallery], dim=1)[labels[gallery] == c].mean(0) for c in range(6)]
    )
    means = torch.nn.functional.normalize(means, dim=1)
    similarity = torch.nn.functional.normalize(embeddings[~gallery], dim=1) @ means.T
    nearer = (similarity > similarity.gather(1, labels[~gallery, None])).sum(1).tolist()
    assert scores.tolist() == pytest.approx([comb(5 - b, 2) / comb(5, 2) for b in nearer])
    ids = torch.arange(len(labels))
    own = evaluate(
        embeddings, labels, embeddings, labels, query_ids=ids, gallery_ids=ids, metrics="fewshot@3x3", few_shot_draws=1
    )
    assert own.per_query["fewshot@3x3"].isnan().sum() == 6 * 3  # an image that is shown is not asked for


@pytest.mark.parametrize("geometry", ["euclidean", "dot"])
def test_other_geometries_compare_means_as_they_are(geometry):
    embeddings, labels = space(images=5)
    assert 0 < evaluate(embeddings, labels, metrics="fewshot@3x1", geometry=geometry)["fewshot@3x1"] <= 1
    with pytest.raises(EquimetricError, match="a class mean cannot be compared by hamming"):
        evaluate(embeddings, labels, metrics="fewshot@3x1", geometry="hamming")


def test_a_cohort_of_no_strength_changes_nothing():
    embeddings, labels = space(images=5)
    others = torch.randn(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    plain = evaluate(embeddings, labels, metrics="fewshot@4x2")["fewshot@4x2"]
    none, half = (
        evaluate(embeddings, labels, metrics="fewshot@4x2", cohort=Cohort(others, strength=strength))["fewshot@4x2"]
        for strength in (0.0, 0.5)
    )
    assert none == pytest.approx(plain, abs=0.05)  # other draws: vectors are extended
    assert half != none


def test_a_run_can_report_it():
    from equimetric.configuration import load_config
    from equimetric.runs.configuration import EvaluationConfig

    names = load_config({"metrics": ["fewshot@5x1", "oscr"], "selected_by": "fewshot@5x1"}, EvaluationConfig).names()
    assert names == ["fewshot@5x1", "oscr"]
    with pytest.raises(EquimetricError, match="few_shot_draws is 0"):
        evaluate(*space(), metrics="fewshot@2x1", few_shot_draws=0)
    with pytest.raises(EquimetricError, match="unknown metric 'fewshot@1x5'"):
        evaluate(*space(), metrics="fewshot@1x5")
