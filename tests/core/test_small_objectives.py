"""Objectives that users of other libraries expect, from their definitions: sigmoid, DCL, GIST, AdaFace, MagFace, …"""

import math

import pytest
import torch
from torch.nn.functional import cross_entropy, logsigmoid, normalize

import equimetric as em
from equimetric.components import SELECTIONS
from equimetric.errors import EquimetricError
from equimetric.losses.large_margin import multiply_angle

LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 3])
NUMBER = len(LABELS)


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def cosines(embeddings, others=None):
    return normalize(embeddings) @ normalize(embeddings if others is None else others).T


def masks(labels=LABELS):
    same = labels[:, None] == labels
    return same & ~torch.eye(len(labels), dtype=torch.bool), ~same


def assert_equal_with_gradient(objective, expected, embeddings, *arguments):
    embeddings = embeddings.clone().requires_grad_()
    parameters = [embeddings, *objective.parameters()]
    found, wanted = objective(embeddings, *arguments), expected(embeddings)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(torch.autograd.grad(found, parameters), torch.autograd.grad(wanted, parameters))


# Sigmoid.


def test_sigmoid_decides_every_pair_by_itself():
    objective = em.objective("sigmoid", initial_scale=4.0, initial_bias=-1.5).double()
    positive, negative = masks()

    def expected(embeddings):
        logits = objective.loss.log_scale.exp() * cosines(embeddings) + objective.loss.bias
        return -(logsigmoid(logits)[positive].sum() + logsigmoid(-logits)[negative].sum()) / NUMBER

    assert_equal_with_gradient(objective, expected, random(NUMBER, 5), LABELS)
    assert objective.loss.log_scale.item() == pytest.approx(math.log(4))


def test_sigmoid_of_two_encoders_is_siglip():
    images, texts, ids = random(6, 5), random(6, 5, seed=1), torch.arange(6)
    signs = 2 * torch.eye(6, dtype=torch.float64) - 1
    expected = -logsigmoid(signs * (10 * cosines(images, texts) - 10)).sum() / 6
    torch.testing.assert_close(em.objective("sigmoid").double()(images, ids, texts, ids), expected)


# Decoupled contrastive.


def test_decoupled_contrastive_leaves_the_positive_out_of_the_denominator():
    positive, negative = masks()

    def expected(embeddings):
        logits = cosines(embeddings) / 0.3
        terms = [logits[a][negative[a]].logsumexp(0) - logits[a, p] for a, p in positive.nonzero().tolist()]
        return torch.stack(terms).mean()

    assert_equal_with_gradient(em.objective("dcl", temperature=0.3), expected, random(NUMBER, 5), LABELS)


def test_a_close_positive_does_not_calm_its_negatives():
    """NT-Xent weakens the push on negatives as the positive comes close, DCL does not."""
    labels, pushes = torch.tensor([0, 0, 1]), {}
    for method in ("ntxent", "dcl"):
        objective = em.objective(method, temperature=0.1).double()
        for angle in (0.1, 1.0):
            embeddings = torch.tensor(
                [[1.0, 0.0], [math.cos(angle), math.sin(angle)], [0.0, -1.0]], dtype=torch.float64
            )
            weights = em.pair_weights(objective, embeddings, labels)
            pushes[method, angle] = weights[0, 2].item()
    assert pushes["ntxent", 0.1] < 1e-3 < pushes["ntxent", 1.0]
    assert pushes["dcl", 0.1] == pytest.approx(pushes["dcl", 1.0])


# GIST.


def kept_negatives(objective, embeddings, labels=LABELS, **options):
    pairs = objective.pairs(embeddings, labels, **options)
    chosen = objective.select(pairs)
    assert torch.equal(chosen.positive, pairs.positive)
    return chosen.negative


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({}, lambda closest: closest),
        ({"margin": 0.1}, lambda closest: closest - 0.1),
        ({"margin": 0.1, "margin_kind": "relative"}, lambda closest: 0.9 * closest),
    ],
)
@pytest.mark.parametrize("guided", [False, True])
def test_false_negatives_are_those_a_guide_finds_closer_than_the_closest_positive(guided, options, bound):
    embeddings, guide = random(NUMBER, 3), random(20, 6, seed=1)
    places = torch.tensor([7, 3, 11, 0, 19, 4, 2, 13])
    judged = cosines(guide[places] if guided else embeddings)
    positive, negative = masks()
    expected = torch.zeros_like(negative)
    for i, j in negative.nonzero().tolist():
        closest = judged[i][positive[i]].max() if positive[i].any() else torch.inf
        expected[i, j] = judged[i, j] <= bound(closest)
    found = kept_negatives(
        em.objective("gist", **options, **({"guide": guide} if guided else {})), embeddings, index=places
    )
    assert torch.equal(found, expected)
    assert expected.sum() < negative.sum()


@pytest.mark.parametrize("loss", ["ntxent", "supcon", "dcl", "nca", "multi_similarity"])
def test_any_loss_takes_the_mask(loss):
    embeddings = random(NUMBER, 3)
    positive, negative = masks()
    judged = cosines(embeddings)
    closest = judged.masked_fill(~positive, -torch.inf).amax(1, keepdim=True)
    closest[~positive.any(1)] = torch.inf
    relation = positive, negative & (judged <= closest)
    torch.testing.assert_close(
        em.objective(loss, selection="gist")(embeddings, LABELS), em.objective(loss)(embeddings, relation)
    )


def test_a_guide_is_checked_and_needs_to_know_the_samples():
    guide = random(20, 6)
    objective = em.objective("gist", guide=guide)
    assert not objective.separable, "columns are looked up, too"
    assert em.objective("gist").separable
    assert not objective.state_dict(), "the guide is given, not learned"
    with pytest.raises(EquimetricError, match="gist keeps the guide of 20 images; it needs index="):
        objective(random(NUMBER, 3), LABELS)
    with pytest.raises(EquimetricError, match="gist keeps the guide of 20 images; it needs index="):
        objective(random(NUMBER, 3), LABELS, index=torch.arange(NUMBER) + 15)
    with pytest.raises(EquimetricError, match="guide must be a matrix"):
        em.objective("gist", guide=guide[0])
    with pytest.raises(EquimetricError, match="margin_kind must be 'absolute' or 'relative'"):
        em.objective("gist", margin_kind="percent")


def test_names_of_other_libraries_lead_here():
    names = {
        "SigLIP": "sigmoid",
        "DCLLoss": "dcl",
        "KoLeoLoss": "koleo",
        "GlobalOrthogonalRegularizationLoss": "gor",
        "CombinedMarginLoss": "combined_margin",
        "AdaFaceLoss": "adaface",
        "MagFaceLoss": "magface",
        "ContextualSimilarity": "contextual",
        "GroupLoss": "group",
    }
    for theirs, ours in names.items():
        with pytest.raises(EquimetricError, match=f"'{ours}'"):
            em.objective(theirs)
    assert "GISTEmbedLoss" in SELECTIONS["gist"].known_as


# Margins.


def with_weights(method, classes=4, dim=5, **options):
    torch.manual_seed(2)
    return em.objective(method, classes=classes, dim=dim, **options).double()


def classify(cosine, margin, scale=64.0, labels=LABELS):
    """The mean cross-entropy after the cosine of the right class is replaced."""
    logits = scale * torch.stack([row.index_copy(0, y[None], margin(row[y], i)[None]) for i, (row, y) in
                                  enumerate(zip(cosine, labels, strict=True))])  # fmt: skip
    return cross_entropy(logits, labels)


LENGTHS = torch.linspace(5, 130, NUMBER, dtype=torch.float64)[:, None]


def test_adaface_widens_the_margin_by_quality():
    objective, embeddings = with_weights("adaface", h=1.2), LENGTHS * normalize(random(NUMBER, 5))
    objective.references.weight.data[2] = embeddings[0]
    lengths = LENGTHS[:, 0].clamp(1e-3, 100)
    quality = (1.2 * (lengths - lengths.mean()) / (lengths.std() + 1e-3)).clamp(-1, 1)
    assert (quality == 1).any()

    def expected(embeddings):
        cosine = cosines(embeddings, objective.references.weight).clamp(-1 + 1e-3, 1 - 1e-3)
        assert (cosine == 1 - 1e-3).any()

        def margin(cosine, i):
            angle = (cosine.acos() - 0.4 * quality[i]).clamp(1e-3, math.pi - 1e-3)
            return angle.cos() - 0.4 - 0.4 * quality[i]

        return classify(cosine, margin)

    assert_equal_with_gradient(objective, expected, embeddings, LABELS)


def test_the_statistics_of_adaface_are_its_state():
    objective, embeddings = with_weights("adaface", rate=0.3), LENGTHS * normalize(random(NUMBER, 5))
    assert [objective.loss.mean.item(), objective.loss.deviation.item()] == [20, 100]
    lengths = LENGTHS[:, 0].clamp_max(100)
    objective.eval()(embeddings, LABELS)
    assert objective.loss.mean == 20, "only training changes them"
    objective.train()(embeddings, LABELS)
    torch.testing.assert_close(objective.loss.mean, 0.3 * lengths.mean() + 0.7 * 20)
    torch.testing.assert_close(objective.loss.deviation, 0.3 * lengths.std() + 0.7 * 100)
    objective(embeddings[:1], LABELS[:1])
    # One sample has no deviation.
    torch.testing.assert_close(objective.loss.deviation, 0.7 * (0.3 * lengths.std() + 0.7 * 100))
    other = with_weights("adaface", rate=0.3)
    other.load_state_dict(objective.state_dict())
    torch.testing.assert_close(other.eval()(embeddings, LABELS), objective.eval()(embeddings, LABELS))


def test_adaface_counts_lengths_by_weight():
    weight = torch.tensor([2, 0, 1, 1, 3, 1, 1, 2])
    rows = torch.arange(NUMBER).repeat_interleave(weight)
    embeddings = LENGTHS * normalize(random(NUMBER, 5))
    values = [
        with_weights("adaface")(embeddings, LABELS, sample_weight=weight),
        with_weights("adaface")(embeddings[rows], LABELS[rows]),
    ]
    torch.testing.assert_close(*values)


def test_magface_has_margin_and_pull_by_length():
    objective, embeddings = with_weights("magface"), LENGTHS * normalize(random(NUMBER, 5))

    def expected(embeddings):
        cosine = cosines(embeddings, objective.references.weight)
        lengths = embeddings.norm(dim=1).clamp(10, 110)
        margins = 0.45 + 0.35 / 100 * (lengths - 10)
        assert margins[-1].item() == pytest.approx(0.8)

        def margin(cosine, i):
            return (cosine.acos() + margins[i]).cos() if cosine > 0 else cosine

        return classify(cosine, margin) + 35 * (lengths / 110**2 + 1 / lengths).mean()

    assert_equal_with_gradient(objective, expected, embeddings, LABELS)
    with pytest.raises(EquimetricError, match="shortest < longest"):
        with_weights("magface", shortest=120.0)(embeddings, LABELS)


@pytest.mark.parametrize("method", ["adaface", "magface"])
def test_margins_by_length_need_class_weights_of_unit_length(method):
    with pytest.raises(EquimetricError, match="normalize_proxies=True"):
        with_weights(method, normalize_proxies=False)(random(NUMBER, 5), LABELS)


@pytest.mark.parametrize(
    ("combined", "method", "options"),
    [
        ({"m2": 0.5, "m3": 0.0}, "arcface", {"mode": "plain"}),
        ({"m2": 0.0, "m3": 0.35}, "cosface", {}),
        ({"m2": 0.0, "m3": 0.0, "scale": 20.0}, "normalized_softmax", {"temperature": 0.05}),
    ],
)
def test_the_combined_margin_holds_the_others(combined, method, options):
    embeddings = random(NUMBER, 5)
    found = with_weights("combined_margin", mode="plain", **combined)(embeddings, LABELS)
    torch.testing.assert_close(found, with_weights(method, initial="normal", **options)(embeddings, LABELS))


def test_the_combined_margin_goes_on_falling_beyond_a_half_turn():
    """With a factor alone it is SphereFace's rule; with all three it is continuous and falls."""
    objective = with_weights("combined_margin", m1=4.0, m2=0.0, m3=0.0, scale=8.0)

    def sphere(embeddings):
        cosine = cosines(embeddings, objective.references.weight)
        return classify(cosine, lambda cosine, _: multiply_angle(cosine, 4), 8.0)

    assert_equal_with_gradient(objective, sphere, random(NUMBER, 5), LABELS)
    angles = torch.linspace(0.001, math.pi - 0.001, 4000, dtype=torch.float64)
    proxy, other = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    objective = with_weights("combined_margin", classes=2, dim=2, m1=1.7, m2=0.4, m3=0.1, scale=1.0, reduction="none")
    objective.references.weight.data = torch.stack([proxy, other]).double()
    points = torch.stack([angles.cos(), angles.sin()], 1)
    losses = objective(points, torch.zeros(4000, dtype=torch.int64))
    logits = -(losses.exp() - 1).log() + angles.sin()
    plain = (1.7 * angles + 0.4).cos() - 0.1
    inside = 1.7 * angles + 0.4 < math.pi
    torch.testing.assert_close(logits[inside], plain[inside])
    assert (logits.diff() < 0).all()
    assert logits.diff().abs().max() < 0.01, "without a jump"


def test_an_unknown_mode_is_an_error():
    with pytest.raises(EquimetricError, match="mode must be 'plain' or 'monotone', got 'hard'"):
        with_weights("combined_margin", mode="hard")(random(NUMBER, 5), LABELS)
