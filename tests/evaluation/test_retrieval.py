import json
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
import torch

from equimetric.evaluation import Evaluation, evaluate
from equimetric.evaluation.metrics.retrieval import (
    average_precision,
    map_at,
    map_at_r,
    precision_at,
    r_precision,
    recall_at,
    reciprocal_rank,
)

WORKED = json.loads((Path(__file__).parents[1] / "worked_values/retrieval_metrics.json").read_text(encoding="utf-8"))
ANGLES = torch.deg2rad(torch.tensor([0.0, 35.0, 50.0, 75.0, 170.0, 225.0]))
CIRCLE = torch.stack([ANGLES.cos(), ANGLES.sin()], dim=1)
CIRCLE_LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def worked(case, dtype):
    arrays = {name: torch.tensor(case[name], dtype=dtype) for name in case if name.endswith("embeddings")}
    return {**arrays, **{name: case[name] for name in case if name.endswith("labels")}}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", WORKED["definitions"], ids=lambda case: case["name"])
def test_spaces_worked_by_hand(case, dtype):
    result = evaluate(**worked(case, dtype), metrics=case["expected"])
    assert dict(result) == pytest.approx(case["expected"], abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("case", WORKED["pytorch_metric_learning"], ids=lambda case: case["name"])
def test_the_same_as_pytorch_metric_learning_on_random_data(case, dtype):
    result = evaluate(**worked(case, dtype), metrics=case["expected"])
    assert dict(result) == pytest.approx(case["expected"], abs=1e-7)


def test_queries_against_a_separate_gallery():
    queries, gallery = [1, 3], [0, 2, 4, 5]
    result = evaluate(
        CIRCLE[queries], CIRCLE_LABELS[queries], CIRCLE[gallery], CIRCLE_LABELS[gallery], ks=(1, 2), neighbours=2
    )
    assert (result["recall@1"], result["recall@2"]) == (0.5, 1.0)
    assert result.neighbours.tolist() == [[1, 0], [1, 0]]


@pytest.mark.parametrize(
    ("relevant_ranks", "r_at_1", "rp", "map_r"),
    [([1], 1, 0.1, 0.1), ([1, 10], 1, 0.2, 0.12), ([1, 2], 1, 0.2, 0.2), (range(1, 11), 1, 1, 1), ([], 0, 0, 0)],
)
def test_scores_of_a_ranking_of_ten_relevant_items(relevant_ranks, r_at_1, rp, map_r):
    relevance = torch.tensor([[rank in relevant_ranks for rank in range(1, 13)]])
    relevant = torch.tensor([10])
    assert recall_at(relevance, 1).item() == r_at_1
    assert r_precision(relevance, relevant).item() == pytest.approx(rp)
    assert map_at_r(relevance, relevant).item() == pytest.approx(map_r)


def test_scores_of_the_first_k_ranks():
    relevance = torch.tensor([[True, False, True, False, True]])
    assert precision_at(relevance, 4).item() == 0.5
    assert precision_at(relevance, 10).item() == 0.3
    assert map_at(relevance, torch.tensor([3]), 4).item() == pytest.approx((1 + 2 / 3) / 3)
    assert map_at(relevance, torch.tensor([9]), 3).item() == pytest.approx((1 + 2 / 3) / 3)
    assert map_at(relevance[:, :1], torch.tensor([9]), 1).item() == 1


def test_scores_of_the_ranks_of_all_relevant_items():
    # Relevant items at ranks 1, 3, 5, at rank 4 alone, and nowhere.
    others = torch.tensor([[0, 1, 2], [3, -1, -1], [-1, -1, -1]])
    assert reciprocal_rank(others).tolist() == [1, 0.25, 0]
    assert average_precision(others).tolist() == pytest.approx([(1 + 2 / 3 + 3 / 5) / 3, 0.25, 0])


def test_ranks_beyond_r_do_not_count():
    relevance, relevant = torch.tensor([[False, False, True]]), torch.tensor([2])
    assert r_precision(relevance, relevant).item() == map_at_r(relevance, relevant).item() == 0


def test_a_perfect_space_scores_one_whatever_the_class_sizes():
    labels = torch.tensor([0] * 2 + [1] * 3 + [2] * 9)
    assert set(evaluate(torch.eye(3)[labels], labels).values()) == {1.0}


def test_recall_beyond_the_gallery_counts_all_of_it():
    assert evaluate(CIRCLE, CIRCLE_LABELS, metrics="recall@1000")["recall@1000"] == 1


def test_lone_queries_are_excluded_or_count_as_zero():
    labels = torch.tensor([0, 0, 1, 1, 2, 3])
    excluded, zero = evaluate(CIRCLE, labels), evaluate(CIRCLE, labels, lone="zero")
    assert excluded.lone == zero.lone == 2
    assert excluded["recall@1"] == pytest.approx(2 / 4)
    assert zero["recall@1"] == pytest.approx(2 / 6)
    assert excluded.per_query["map@r"].isnan().tolist() == [False] * 4 + [True] * 2
    assert zero.per_query["map@r"][4:].tolist() == [0, 0]


def test_a_gallery_that_lacks_a_class_makes_its_queries_lone():
    result = evaluate(CIRCLE, CIRCLE_LABELS, CIRCLE[:4], CIRCLE_LABELS[:4])
    assert (result.lone, result["recall@1"]) == (2, 1.0)


def test_per_query_scores_average_to_the_metrics():
    result = evaluate(torch.randn(50, 4), torch.arange(50) % 7)
    assert result.queries == 50
    for name, value in result.items():
        assert result.per_query[name].shape == (50,)
        assert result.per_query[name].mean().item() == pytest.approx(value)


def test_only_the_named_metrics_in_their_order():
    assert list(evaluate(CIRCLE, CIRCLE_LABELS, metrics=["map@r", "recall@3"])) == ["map@r", "recall@3"]
    names = ["precision@1", "recall@1", "recall@5", "r_precision", "map@r"]
    assert list(evaluate(CIRCLE, CIRCLE_LABELS, ks=(1, 5))) == names


def test_neighbours_are_kept_on_request():
    assert evaluate(CIRCLE, CIRCLE_LABELS).neighbours is None
    neighbours = evaluate(CIRCLE, CIRCLE_LABELS, metrics=["precision@1"], neighbours=3).neighbours
    assert neighbours.dtype == torch.int64
    assert neighbours.tolist() == [[1, 2, 3], [2, 0, 3], [1, 3, 0], [2, 1, 0], [5, 3, 2], [4, 0, 3]]
    assert evaluate(CIRCLE, CIRCLE_LABELS, neighbours=100).neighbours.shape == (6, 5)


def test_dot_products_depend_on_length():
    embeddings = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.1, 9.0], [3.0, 9.0]])
    labels = [0, 0, 1, 1]
    assert evaluate(embeddings, labels, neighbours=1).neighbours.flatten().tolist() == [1, 0, 3, 2]
    by_product = evaluate(embeddings, labels, neighbours=1, geometry="dot").neighbours
    assert by_product.flatten().tolist() == [3, 3, 3, 2]


def test_a_zero_vector_is_valid_for_dot_products():
    embeddings = torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [2.0, 0.0]])
    neighbours = evaluate(embeddings, [0, 1, 0, 1], neighbours=3, geometry="dot").neighbours
    assert neighbours.tolist() == [[1, 2, 3], [3, 0, 2], [0, 1, 3], [1, 0, 2]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    embeddings, labels = torch.randn(60, 16).to(dtype), torch.arange(60) % 6
    half, single = (evaluate(e, labels, neighbours=20) for e in (embeddings, embeddings.float()))
    assert half == single
    assert torch.equal(half.neighbours, single.neighbours)


def test_float64_separates_what_float32_cannot():
    angles = torch.tensor([0.0, 0.8 + 1e-9, 0.8, 2.5], dtype=torch.float64)
    embeddings = torch.stack([angles.cos(), angles.sin()], dim=1)
    labels = [0, 1, 0, 1]
    assert evaluate(embeddings, labels, neighbours=1).neighbours[0].item() == 2
    assert evaluate(embeddings.float(), labels, neighbours=1).neighbours[0].item() == 1


def test_numpy_and_torch_agree_in_every_layout():
    embeddings, labels = torch.randn(30, 5), torch.arange(30) % 4
    expected = evaluate(embeddings, labels)
    array = embeddings.numpy()
    read_only = array.copy()
    read_only.setflags(write=False)
    for given in (array, read_only, array.astype(">f4"), np.asfortranarray(array), array[::-1].copy()[::-1]):
        assert evaluate(given, labels.numpy()) == expected
    assert evaluate(embeddings.T.contiguous().T, labels) == expected


def test_queries_and_gallery_of_different_precision_are_compared_in_the_wider():
    queries, gallery = torch.randn(20, 4), torch.randn(30, 4, dtype=torch.float64)
    labels, gallery_labels = torch.arange(20) % 3, torch.arange(30) % 3
    assert evaluate(queries, labels, gallery, gallery_labels) == evaluate(
        queries.double(), labels, gallery, gallery_labels
    )


def test_gradients_autocast_and_reduced_precision_have_no_effect():
    embeddings, labels = torch.randn(200, 64), torch.arange(200) % 10
    expected = evaluate(embeddings, labels, neighbours=30)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = evaluate(embeddings.requires_grad_(), labels, neighbours=30)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert torch.equal(result.neighbours, expected.neighbours)
    assert not result.per_query["map@r"].requires_grad


def test_the_inputs_do_not_change():
    embeddings, labels = 3 * torch.randn(20, 4), torch.arange(20) % 3
    kept = embeddings.clone()
    evaluate(embeddings, labels)
    evaluate(embeddings.numpy(), labels.numpy(), geometry="dot")
    assert torch.equal(embeddings, kept)


def test_progress_changes_no_value():
    assert evaluate(CIRCLE, CIRCLE_LABELS, block_rows=2, progress=True) == evaluate(CIRCLE, CIRCLE_LABELS)


def test_the_result_is_a_readable_immutable_mapping():
    result = evaluate(CIRCLE, CIRCLE_LABELS, ks=(1, 2))
    assert isinstance(result, Evaluation)
    assert repr(result).splitlines() == [
        "Evaluation: 6 queries, 3 classes (cosine, float32 products on cpu)",
        "  precision@1   66.67%",
        "  recall@1      66.67%",
        "  recall@2     100.00%",
        "  r_precision   66.67%",
        "  map@r         66.67%",
    ]
    with pytest.raises(FrozenInstanceError):
        result.lone = 3
    with pytest.raises(TypeError):
        result["recall@1"] = 1.0
    result.per_query.clear()
    assert set(result.per_query) == set(result)


def test_the_summary_is_plain_json():
    summary = evaluate(CIRCLE, torch.tensor([0, 0, 1, 1, 2, 3]), ks=(1,)).to_dict()
    assert json.loads(json.dumps(summary)) == summary
    assert (summary["queries"], summary["classes"], summary["lone"]) == (6, 4, 2)
    assert summary["metrics"]["recall@1"] == 0.5
