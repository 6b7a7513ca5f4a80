"""Published values beside ours: the same method, data set and metric, and nothing else."""

import pytest

from equimetric.errors import EquimetricError
from equimetric.objectives.equivalence import same_method
from equimetric.published import join_results


def row(method, metric="map@r", dataset="cub", **more):
    return {"method": method, "dataset": dataset, "metric": metric, **more}


def test_published_values_come_in_our_unit_with_their_conditions():
    ours = row("contrastive", "precision@1", "CUB200", value=0.61)
    both = join_results([ours], paper="reality-check")
    assert [(found["published"], found["published_half_width"]) for found in both] == [
        (0.6813, 0.0031),
        (0.5973, 0.004),
    ]
    assert [(found["value"], found["dim"], found["variant"]) for found in both] == [
        (0.61, 512, "concatenated"),
        (0.61, 128, "separated"),
    ]
    assert both[0]["published_method"] == "Contrastive"
    (consistent,) = join_results([row("smooth_ap+tcm", "opis@10%", "sop")], backbone="resnet50")
    assert consistent["published"] == pytest.approx(0.52e-3, rel=1e-12)
    (plain,) = join_results([row("smooth_ap", "opis@10%", "sop")], backbone="resnet50")
    assert plain["published"] == pytest.approx(1.69e-3, rel=1e-12)
    assert plain["published_method"] == "SAP"


def test_tuned_options_may_differ_but_parts_may_not():
    tuned = row("contrastive", options={"neg_margin": 0.4, "pos_margin": 0.1})
    other = row("contrastive", options={"geometry": "cosine"})
    squared = row("contrastive", options={"power": 2})
    found = join_results([tuned, other, squared], variant="separated")
    assert [one["published"] for one in found] == [0.2118, None, None]


def test_options_that_the_published_row_needs_must_be_exactly_these():
    exact, without = {"margin": 1.0, "normalize": False}, {"normalize": False}
    found = join_results(
        [
            row("triplet_facenet", "recall@1", "cars", options=exact),
            row("triplet_facenet", "recall@1", "cars", options=without),
        ],
        dim=64,
    )
    assert [one["published_method"] for one in found] == ["Triplet Semihard", None]


@pytest.mark.parametrize(
    ("method", "options", "published"),
    [
        ("margin_class", {"selection": "all_triplets"}, "Margin/class"),
        ("margin_loss", {"selection": "all_triplets", "beta_class": 100}, "Margin/class"),
        ("margin_loss", {"selection": "all_triplets"}, "Margin"),
        ("margin", {}, None),
        ("multi_similarity", {"epsilon": 0.3}, "MS+Miner"),
        ("multi_similarity", {}, "MS"),
        ("arcface", {"mode": "plain", "classes": 100, "dim": 128, "margin_rad": 0.4}, "ArcFace"),
        ("arcface", {}, None),
        ("subcenter_arcface", {"mode": "plain"}, None),
        ("softtriple", {"divisor": "unordered", "tau": 0.4, "per_class": 5}, "SoftTriple"),
        ("triplet", {"selection": "semihard"}, None),
        ("triplet", {"mining": "all"}, "Triplet"),
        ("circle", {}, None),
    ],
)
def test_which_of_our_methods_are_rows_of_the_reality_check(method, options, published):
    found = join_results([row(method, options=options)], paper="reality-check", variant="separated")
    assert [one["published_method"] for one in found] == [published]


def test_doubtful_values_are_never_joined_silently():
    ours = row("normalized_softmax", "R@1", "cars")
    hidden, shown = (join_results([ours], paper="unbiased", dim=2048, doubtful=doubtful) for doubtful in (False, True))
    assert [(one["published"], one["doubt"]) for one in hidden] == [(None, "the authors' own plot shows 81.70")]
    assert [(one["published"], one["doubt"]) for one in shown] == [(0.7698, "the authors' own plot shows 81.70")]


def test_rows_without_a_counterpart_stay():
    ours = [row("contrastive", "auc"), row("contrastive", dataset="glyphs"), row("contrastive", "recall@1", "sop")]
    found = join_results(ours, paper="reality-check", variant="separated")
    assert [one["published"] for one in found] == [None, None, 0.6934]
    assert [one["dataset"] for one in found] == ["cub", "glyphs", "sop"]
    assert join_results([]) == []


def test_a_row_without_a_method_is_an_error():
    with pytest.raises(EquimetricError, match="a row to join needs 'metric'"):
        join_results([{"method": "contrastive", "dataset": "cub"}])


@pytest.mark.parametrize(
    ("method", "options", "other", "fixed", "same"),
    [
        ("triplet_semihard", {}, "triplet", {"selection": "semihard"}, True),
        ("triplet", {"selection": "semihard"}, "triplet_semihard", {}, True),
        ("tcm+contrastive", {}, "contrastive+tcm", {}, True),
        ("contrastive+0.5*tcm", {}, "contrastive+tcm", {}, False),
        ("contrastive+tcm", {"tcm.m_pos": 0.8}, "contrastive+tcm", {}, True),
        ("contrastive+tcm", {"tcm.m_pos": 0.8}, "contrastive+tcm", {"tcm.m_pos": 0.9}, False),
        ("contrastive", {}, "contrastive+tcm", {}, False),
        ("contrastive", {"reduction": "nonzero"}, "contrastive", {}, True),
        ("contrastive", {"reduction": "mean"}, "contrastive", {}, False),
        ("contrastive", {"normalize": False}, "contrastive", {}, False),
    ],
)
def test_when_two_names_mean_one_method(method, options, other, fixed, same):
    assert same_method(method, options, other, fixed) is same
