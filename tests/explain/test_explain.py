import json
import math
import warnings
from pathlib import Path

import matplotlib
import pytest
import torch
from rounding import assert_same_digits

import equimetric as em
from equimetric.components import LOSSES
from equimetric.errors import EquimetricError
from equimetric.explain import draw_weights, weight_curves
from equimetric.explain.closed_forms import CLOSED_FORMS
from equimetric.objectives import Context, build_objective
from equimetric.objectives.recipes import recipes

WORKED = json.loads((Path(__file__).parents[1] / "worked_values" / "weights.json").read_text())
LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3])
CONTEXT = Context(classes=4, dim=5, images=len(LABELS))


def batch(seed=0):
    return torch.randn(len(LABELS), 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("case", WORKED, ids=lambda case: case["method"])
def test_worked_weights(case):
    embeddings = torch.tensor(case["embeddings"], dtype=torch.float64)
    objective = em.objective(case["method"], **case["options"])
    weights = em.pair_weights(objective, embeddings, torch.tensor(case["labels"]))
    torch.testing.assert_close(weights, torch.tensor(case["expected"], dtype=torch.float64), rtol=0, atol=1e-6)


# They depend on more than the cosines: raw or centred vectors, lengths, a learned similarity, a hierarchy, tangents.
NOT_OF_COSINES = {
    *("npairs", "angular_npairs_combo", "snr_contrastive", "pddm", "hier", "vicreg", "lp", "zero_mean"),
    *("variance", "covariance", "hyp"),
}
PAIR_LOSSES = [
    name
    for name in sorted(recipes())
    if (LOSSES[recipes()[name].loss].family in ("ranking", "ap-surrogate", "regulariser") or name == "contextual")
    and LOSSES[recipes()[name].loss].definition.__module__ != "equimetric.losses.weighted"
    and recipes()[name].references is None
    and recipes()[name].stands_alone
    and name not in NOT_OF_COSINES
]


def gradient_of(function, embeddings):
    embeddings = embeddings.clone().requires_grad_()
    torch.manual_seed(3)
    (gradient,) = torch.autograd.grad(function(embeddings), embeddings)
    return gradient


@pytest.mark.parametrize("symmetric", [False, True], ids=["per anchor", "symmetric"])
@pytest.mark.parametrize("method", PAIR_LOSSES)
def test_a_loss_is_its_pair_weights(method, symmetric):
    """Theorem 3.1: the weighted sum of similarities, weights held constant, has the gradient of the loss."""
    objective = build_objective(method, {}, CONTEXT).double()
    embeddings = batch()
    options = {"index": torch.arange(len(LABELS))}
    torch.manual_seed(3)
    weights = em.pair_weights(objective, embeddings, LABELS, symmetric=symmetric, **options)
    # Symmetric weights count a pair once, per-anchor weights are scaled by the number of anchors.
    scale = len(LABELS) if symmetric else 1
    equivalent = em.objective("weighted", weights=lambda pairs: scale * weights)
    assert_same_digits(
        gradient_of(lambda x: equivalent(x, LABELS), embeddings),
        gradient_of(lambda x: objective(x, LABELS, **options), embeddings),
        digits=8,
    )


@pytest.mark.parametrize("method", ["npairs", "snr_contrastive", "hyp"])
def test_a_loss_of_other_similarities_is_its_pair_weights(method):
    """The same where the similarity is no function of the cosine: the weights are those of the similarity itself."""
    objective = em.objective(method, **({"l2_reg": 0.0} if method == "npairs" else {}))
    weights = em.pair_weights(objective, batch(), LABELS)

    def weighted_sum(embeddings):
        pairs = objective.pairs(embeddings, LABELS)
        return ((pairs.negative.double() - pairs.positive.double()) * weights * pairs.similarity).sum() / len(LABELS)

    assert_same_digits(
        gradient_of(weighted_sum, batch()), gradient_of(lambda x: objective(x, LABELS), batch()), digits=8
    )


def test_episodes_of_unequal_size_have_the_weights_of_their_mean():
    """Five queries in one episode and two in the other."""
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 0, 1, 1, 0, 2, 3, 4])
    embeddings = torch.randn(14, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    objective = em.objective("prototypical", ns=1, episodes=2)
    weights = em.pair_weights(objective, embeddings, labels)
    assert weights.shape == (7, 7)

    def weighted_sum(embeddings):
        sets = [pairs for _, pairs in objective.pair_terms(embeddings, labels).weighted_pairs]
        similarity = torch.cat([pairs.similarity for pairs in sets])
        sign = torch.cat([pairs.negative.double() - pairs.positive.double() for pairs in sets])
        return (sign * weights * similarity).sum() / len(weights)

    torch.testing.assert_close(
        gradient_of(weighted_sum, embeddings), gradient_of(lambda x: objective(x, labels), embeddings)
    )


@pytest.mark.parametrize("method", ["magnet", "spectral", "hdc", "bier", "hier", "group", "hist", "variance"])
def test_a_loss_of_embeddings_has_no_weights_of_pairs(method):
    with pytest.raises(EquimetricError, match="reads the embeddings themselves"):
        em.pair_weights(build_objective(method, {}, CONTEXT).double(), batch(), LABELS)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("npairs", {"l2_reg": 0.1}),
        ("snr_contrastive", {"reg": 0.1}),
        ("angular_npairs_combo", {}),
        ("pddm", {"dim": 5}),
        ("adaface", {"classes": 4, "dim": 5}),
        ("magface", {"classes": 4, "dim": 5}),
    ],
)
def test_weights_warn_of_a_loss_that_also_reads_embeddings(method, options):
    with pytest.warns(UserWarning, match=f"'{method}' reads the embeddings beside the similarities"):
        em.pair_weights(em.objective(method, **options).double(), batch(), LABELS)


def test_weights_warn_of_a_memory_and_a_penalty():
    remembering = em.objective("contrastive_cosine", references="memory", dim=5, size=32, start_iteration=0).double()
    remembering(batch(), LABELS)
    with pytest.warns(UserWarning, match="leave out the loss of further pairs, e.g. with a memory"):
        em.pair_weights(remembering, batch(), LABELS)
    with pytest.warns(UserWarning, match="leave out the penalty of its references"):
        em.pair_weights(em.objective("softtriple", classes=4, dim=5), batch(), LABELS)


def test_weights_of_a_measure_that_is_not_symmetric_are_not_either():
    with pytest.raises(EquimetricError, match="the snr geometry is not symmetric"):
        em.pair_weights(em.objective("snr_contrastive"), batch(), LABELS, symmetric=True)


def test_computing_weights_is_no_training_step():
    annealed = em.objective("sphereface", classes=4, dim=5)
    sampled = em.objective("arcface", classes=4, dim=5, sample_rate=0.5)
    for objective in (annealed, sampled):
        objective(batch(), LABELS)
        before = {name: value.clone() for name, value in objective.state_dict().items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.no_grad():
                assert em.pair_weights(objective, batch(), LABELS).shape == (len(LABELS), 4)
        assert all(torch.equal(value, before[name]) for name, value in objective.state_dict().items())
        assert objective.training
        assert objective.loss.training


def test_only_objectives_with_one_value_have_weights():
    with pytest.raises(EquimetricError, match="has no weights with reduction='none'"):
        em.pair_weights(em.objective("triplet", reduction="none"), batch(), LABELS)
    with pytest.raises(EquimetricError, match=r"such as em.objective\('raw'\)"):
        em.pair_weights("raw", batch(), LABELS)


CLOSED = {
    "contrastive_cosine": [{}, {"lam": 0.2}],
    "triplet": [{"margin": 0.3}, {"margin": 0.05}],
    "lifted_generalized": [{}, {"margin": -0.5}],
    "binomial": [{}, {"alpha": 3.0, "beta": 20.0, "gamma": 0.3}],
    "multi_similarity": [{}, {"alpha": 5.0, "beta": 10.0, "base": 0.2}],
    "raw": [{}],
    "equal_weights": [{}],
    "ntxent": [{}, {"temperature": 0.5}],
}
PARTS = {
    "triplet": {"geometry": "cosine", "reduction": "mean"},
    "lifted_generalized": {"geometry": "cosine"},
}


@pytest.mark.parametrize("selection", ["all", "multi_similarity"])
@pytest.mark.parametrize("loss", sorted(CLOSED_FORMS))
def test_closed_forms_equal_the_derivative(loss, selection):
    for options in CLOSED[loss]:
        objective = em.objective(loss, selection=selection, **PARTS.get(loss, {}), **options).double()
        pairs = objective.select(objective.pairs(batch(), LABELS))
        assert_same_digits(
            CLOSED_FORMS[loss](pairs, **options),
            em.pair_weights(objective, batch(), LABELS),
            digits=8,
        )


def curve(method, **options):
    same_side, other_side = options.pop("same_side", ()), options.pop("other_side", (0.5,))
    points = options.pop("points", 2001)
    curves = weight_curves(em.objective(method, **options), same_side=same_side, other_side=other_side, points=points)

    def at(side, cosine):
        return float(getattr(curves, side)[(curves.similarity - cosine).abs().argmin()])

    return at


def test_figure_one_contrastive():
    at = curve("contrastive_cosine", lam=0.5)
    assert at("positive", -0.9) == at("positive", 0.9) == 1
    assert at("negative", 0.49) == 0
    assert at("negative", 0.51) == 1


def test_figure_one_triplet():
    at = curve("triplet", margin=0.1, geometry="cosine", reduction="mean")
    assert (at("positive", 0.59), at("positive", 0.61)) == (1, 0)
    assert (at("negative", 0.39), at("negative", 0.41)) == (0, 1)


def test_figure_one_lifted():
    at = curve("lifted_generalized", geometry="cosine", margin=5.0, same_side=(0.2, 0.5, 0.8))
    fixed = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
    for cosine in (-0.5, 0.0, 0.7):
        expected = torch.exp(torch.tensor(-cosine)) / (torch.exp(torch.tensor(-cosine)) + torch.exp(-fixed).sum())
        assert at("positive", cosine) == pytest.approx(float(expected), abs=1e-3)


def test_figure_one_binomial():
    at = curve("binomial")
    assert at("positive", 0.5) == pytest.approx(1)
    assert at("negative", 0.5) == pytest.approx(25)


def test_a_sum_of_objectives_adds_its_weights():
    both = em.objective("contrastive_cosine + 0.5*tcm").double()
    parts = [em.objective(name).double() for name in ("contrastive_cosine", "tcm")]
    weights = [em.pair_weights(part, batch(), LABELS) for part in parts]
    torch.testing.assert_close(em.pair_weights(both, batch(), LABELS), weights[0] + 0.5 * weights[1])


def test_terms_with_different_references_are_an_error():
    mixed = em.objective("contrastive_cosine").double() + em.objective("arcface", classes=4, dim=5).double()
    with pytest.raises(EquimetricError, match="explain them one by one"):
        em.pair_weights(mixed, batch(), LABELS)


def my_loss(pairs):
    return (1 - pairs.similarity)[pairs.positive].sum() + pairs.similarity[pairs.negative].square().sum()


def test_a_loss_of_ones_own():
    curves = weight_curves(em.objective(my_loss), other_side=())
    torch.testing.assert_close(curves.positive, torch.ones_like(curves.positive))
    torch.testing.assert_close(curves.negative, 2 * curves.similarity)


def test_the_figure_is_written(tmp_path):
    names = ["contrastive", "multi_similarity", "binomial", "arcface"]
    curves = [weight_curves(build_objective(name, {}, CONTEXT), points=21) for name in names]
    file = draw_weights(curves, tmp_path / "deep" / "weights.png")
    assert file.read_bytes().startswith(b"\x89PNG")


def test_figures_say_what_is_measured_and_where_nothing_counts(tmp_path, monkeypatch):
    """A contrastive loss of distances is no contrastive loss of cosines."""
    objectives = [
        em.objective("contrastive"),
        em.objective("contrastive_cosine + 0.5*tcm"),
        em.objective("contrastive + tcm"),
        em.objective("triplet", margin=-5.0),
    ]
    curves = [weight_curves(objective, points=21) for objective in objectives]
    assert [curve.geometry for curve in curves] == ["euclidean", "cosine", "euclidean and cosine", "euclidean"]
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    drawn = draw_weights(curves, tmp_path / "weights.svg").read_text()
    assert "geometry: euclidean and cosine" in drawn
    assert drawn.count("all weights are 0") == 1


@pytest.mark.parametrize("form", ["svg", "png", "pdf"])
def test_figures_of_the_same_curves_are_the_same_bytes(tmp_path, monkeypatch, form):
    curves = [weight_curves(em.objective("pads"), points=5)]
    first = draw_weights(curves, tmp_path / f"first.{form}").read_bytes()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    assert draw_weights(curves, tmp_path / f"again.{form}").read_bytes() == first


def test_the_noise_ratio_takes_the_cosine_of_centred_vectors():
    curves = weight_curves(em.objective("snr_contrastive"))
    pushed = curves.similarity[curves.negative > 0]
    # d = 2 − 2 cos is below the margin of 1 from a cosine of ½ on.
    assert pushed.min() == pytest.approx(0.5, abs=0.02)
    assert (curves.positive[curves.similarity < 0.99] > 0).all()


def test_curves_of_hyperbolic_distances_are_of_unit_tangent_vectors():
    at = curve("contrastive", geometry="hyperbolic", neg_margin=3.0, reduction="sum")
    # d = 2/√c asinh(sinh(2√c) √((1 − cos)/2)), c = 0.1, is the margin of 3 at this cosine.
    cosine = 1 - 2 * (math.sinh(3 * math.sqrt(0.1) / 2) / math.sinh(2 * math.sqrt(0.1))) ** 2
    assert (at("negative", cosine - 0.01), at("negative", cosine + 0.01)) == (0, 1)


def test_curves_are_of_embeddings_with_many_dimensions():
    """At one dimension random directions have squared cosines of 1, and GOR would not mind any."""
    at = curve("gor", other_side=())
    for cosine in (-0.5, 0.2, 0.9):
        assert at("negative", cosine) == pytest.approx(4 * cosine, abs=1e-2)


@pytest.mark.parametrize("selection", ["pads", "distance_weighted", "random_semihard"])
def test_curves_of_random_draws_are_the_same_every_time(selection):
    """A mean over draws, which neither reads nor moves torch's global generator."""
    torch.manual_seed(7)
    before = torch.get_rng_state()
    objective = em.objective("margin_loss", selection=selection)
    first = weight_curves(objective, same_side=(0.2, 0.5, 0.8), points=41)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(8)
    again = weight_curves(objective, same_side=(0.2, 0.5, 0.8), points=41)
    assert torch.equal(first.positive, again.positive)
    assert torch.equal(first.negative, again.negative)
    # Beyond the margin around β nothing changes but the cosine: no draw lets a weight stand out from its neighbours.
    assert (first.positive[first.similarity < 0].diff() > 0).all()


def test_curves_of_distance_weighted_margin_are_those_of_its_only_negative():
    """The anchor has one negative, which every draw takes: the derivative of the pull and of half the terms."""
    at = curve("margin", points=41)
    for cosine in (-0.6, 0.1, 0.4):
        # d = √(2 − 2 cos), so dd/dcos = −1/d; one positive and one negative lie within the margin.
        assert at("positive", cosine) == pytest.approx(1 / math.sqrt(2 - 2 * cosine) / 2, rel=1e-2)


def test_pads_pulls_and_now_and_then_pushes_its_own_class():
    """A far positive is pulled; one at a distance that negatives are drawn at is pushed more often than pulled."""
    at = curve("pads", same_side=(0.2, 0.5, 0.8), points=41)
    assert at("positive", 0.0) > 0 > at("positive", 0.9)
    assert at("negative", 0.5) == 0 < at("negative", 0.9)


def test_a_loss_of_neighbourhoods_has_weights_but_no_curve():
    with pytest.raises(EquimetricError, match="has no curve of one moving pair: it reads a batch as a whole"):
        weight_curves(em.objective("contextual"))


@pytest.mark.parametrize("method", ["sphereface", "large_margin_softmax"])
def test_margins_that_multiply_the_angle_pull_harder_than_a_plain_softmax(method):
    options = {"classes": 2, "dim": 2}
    plain = weight_curves(em.objective("softmax", **options))
    curves = weight_curves(em.objective(method, lambda_base=0.0, lambda_min=0.0, **options))
    assert curves.positive.isfinite().all()
    assert (curves.negative >= plain.negative - 1e-9).all()
    assert curves.positive.mean() > plain.positive.mean()


def test_given_weights_are_those_of_the_whole_batch_however_large(monkeypatch):
    weights = torch.rand(len(LABELS), len(LABELS), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    objective = em.objective("weighted", weights=lambda _: weights)
    value = objective(batch().requires_grad_(), LABELS)
    monkeypatch.setattr("equimetric.ops.chunks.MIN_CHUNKED_PAIRS", 1)
    monkeypatch.setattr("equimetric.ops.chunks.CHUNK_ENTRIES", 3 * len(LABELS))
    torch.testing.assert_close(objective(batch().requires_grad_(), LABELS), value)
