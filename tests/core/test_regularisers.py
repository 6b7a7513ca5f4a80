"""Regularisers as terms of a sum: of embeddings, and of the proxies that another term learns."""

import copy
import math
import pickle

import pytest
import torch

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.objectives import Context, build_objective
from equimetric.objectives.recipes import recipes

LABELS = torch.tensor([0, 0, 1, 1, 2, 3])
CONTEXT = Context(classes=4, dim=5, images=len(LABELS))


def batch(seed=0):
    return torch.randn(len(LABELS), 5, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def build(method, **options):
    torch.manual_seed(1)
    return build_objective(method, options, CONTEXT).double()


def unit(vector):
    return vector / vector.norm()


def lp(vectors, p=3.0, power=2.0):
    return sum(sum(x.abs() ** p for x in vector) ** (power / p) for vector in vectors) / len(vectors)


def zero_mean(vectors):
    return sum(sum(vector).abs() for vector in vectors) / len(vectors)


def center_invariant(vectors):
    squares = [sum(x**2 for x in vector) for vector in vectors]
    return sum((square - sum(squares) / len(squares)) ** 2 / 4 for square in squares) / len(squares)


def regular_face(vectors, per_class=1):
    nearest = [
        max(unit(v) @ unit(w) for j, w in enumerate(vectors) if j // per_class != i // per_class)
        for i, v in enumerate(vectors)
    ]
    return sum(nearest) / len(nearest)


def variance(vectors, deviation=1.0, epsilon=1e-4):
    return (deviation - (vectors.var(0) + epsilon).sqrt()).clamp_min(0).mean()


def covariance(vectors):
    return (torch.cov(vectors.T).square() * (1 - torch.eye(vectors.shape[1]))).sum() / vectors.shape[1]


def koleo(vectors, epsilon=1e-8):
    nearest = [min((unit(v) - unit(w)).norm() for j, w in enumerate(vectors) if j != i) for i, v in enumerate(vectors)]
    return -torch.stack(nearest).add(epsilon).log().mean()


def mean_similarity(vectors, target=0.1):
    return (sum(unit(v) @ unit(w) for v in vectors for w in vectors) / len(vectors) ** 2 - target) ** 2


def gor(vectors, labels=LABELS):
    found = [unit(v) @ unit(w) for v, a in zip(vectors, labels) for w, b in zip(vectors, labels) if a != b]  # noqa: B905
    found = torch.stack(found)
    return found.mean() ** 2 + (found.square().mean() - 1 / vectors.shape[1]).clamp_min(0)


OF_EMBEDDINGS = {
    "lp": (lp, {"p": 3.0, "lp.power": 2.0}),
    "zero_mean": (zero_mean, {}),
    "variance": (variance, {"deviation": 1.0}),
    "covariance": (covariance, {}),
    "koleo": (koleo, {}),
    "mean_similarity": (mean_similarity, {"target": 0.1}),
    "gor": (gor, {}),
}


@pytest.mark.parametrize("name", OF_EMBEDDINGS)
def test_a_regulariser_of_embeddings_is_that_of_raw_embeddings_times_its_weight(name):
    loop, options = OF_EMBEDDINGS[name]
    embeddings = batch().requires_grad_()
    terms = build(f"contrastive+0.1*{name}", **options).terms(embeddings, LABELS)
    assert list(terms) == ["contrastive", name]
    expected = 0.1 * loop(embeddings)
    torch.testing.assert_close(terms[name], expected)
    found, wanted = (torch.autograd.grad(value, embeddings)[0] for value in (terms[name], expected))
    torch.testing.assert_close(found, wanted)


OF_PROXIES = {
    "center_invariant": (center_invariant, {}),
    "regular_face": (regular_face, {}),
    "lp": (lp, {"p": 3.0, "power": 2.0, "lp.references": "proxy_set"}),
    "zero_mean": (zero_mean, {"zero_mean.references": "proxy_set"}),
    "variance": (variance, {"variance.references": "proxy_set"}),
    "covariance": (covariance, {"covariance.references": "proxy_set"}),
    "koleo": (koleo, {"koleo.references": "proxy_set"}),
    "mean_similarity": (mean_similarity, {"target": 0.1, "mean_similarity.references": "proxy_set"}),
    "gor": (lambda proxies: gor(proxies, range(len(proxies))), {"gor.references": "proxy_set"}),
}


@pytest.mark.parametrize("base", ["arcface", "proxy_anchor", "softmax"])
@pytest.mark.parametrize("name", OF_PROXIES)
def test_a_regulariser_of_proxies_finds_those_of_the_other_term(base, name):
    loop, options = OF_PROXIES[name]
    objective = build(f"{base}+0.1*{name}", **options)
    embeddings, (proxies,) = batch().requires_grad_(), objective.parameters()
    value = objective.terms(embeddings, LABELS)[name]
    expected = 0.1 * loop(proxies)
    torch.testing.assert_close(value, expected)
    (found, untouched), (wanted,) = (
        torch.autograd.grad(value, [proxies, embeddings], allow_unused=True),
        torch.autograd.grad(expected, [proxies]),
    )
    torch.testing.assert_close(found, wanted)
    assert untouched is None
    assert found.abs().max() > 1e-6


def test_centres_of_one_class_do_not_repel_one_another():
    objective = build("subcenter_arcface+regular_face", per_class=2)
    (proxies,) = objective.parameters()
    torch.testing.assert_close(objective.terms(batch(), LABELS)["regular_face"], regular_face(proxies, per_class=2))


def test_the_proxies_of_several_terms_are_regularised_each_by_themselves():
    objective = build("arcface+proxy_anchor+regular_face")
    first, second = objective.parameters()
    torch.testing.assert_close(
        objective.terms(batch(), LABELS)["regular_face"], regular_face(first) + regular_face(second)
    )


@pytest.mark.parametrize("name", OF_PROXIES)
def test_proxies_inside_a_loss_are_found(name):
    loop, options = OF_PROXIES[name]
    objective = build(f"manifold+0.1*{name}", proxies=3, **options)
    (proxies,) = objective.parameters()
    value = objective.terms(batch(), LABELS)[name]
    torch.testing.assert_close(value, 0.1 * loop(proxies))
    assert torch.autograd.grad(value, proxies)[0].abs().max() > 1e-6


def test_proxies_of_members_are_regularised_each_by_themselves():
    objective = build("dreml+regular_face", members=2, **{"dreml.proxies": "learned"})
    members = [member.detach() for member in objective.parameters()]
    assert [tuple(member.shape) for member in members] == [(2, 2), (3, 3)]
    value = objective.terms(batch(), LABELS)["regular_face"]
    torch.testing.assert_close(value, sum(map(regular_face, members)))
    with pytest.raises(EquimetricError, match="no other term learns any"):
        build("dreml+regular_face", members=2)


def test_proxies_of_no_class_are_not_regularised():
    """Of more proxies than classes some stand for none, and those of a hierarchy are ancestors of samples."""
    objective = build("manifold+regular_face", proxies=6)
    (proxies,) = objective.parameters()
    rows = objective.objectives[0].loss.meta_classes.unique()
    assert len(rows) == 4
    torch.testing.assert_close(objective.terms(batch(), LABELS)["regular_face"], regular_face(proxies[rows]))
    with pytest.raises(EquimetricError, match="no other term learns any"):
        build("contrastive+hier+regular_face")


def test_objectives_added_by_hand_are_the_same():
    by_hand = build("arcface") + 0.1 * recipes()["regular_face"].build()
    torch.testing.assert_close(by_hand(batch(), LABELS), build("arcface+0.1*regular_face")(batch(), LABELS))


@pytest.mark.parametrize("method", ["regular_face", "0.5*regular_face", "contrastive+center_invariant"])
def test_without_proxies_there_is_nothing_to_regularise(method):
    with pytest.raises(EquimetricError, match=r"no other term learns any.*arcface\+0\.1\*regular_face"):
        build(method)
    with pytest.raises(EquimetricError, match="no other term learns any"):
        recipes()["regular_face"].build()(batch(), LABELS)


def test_fixed_proxies_are_not_regularised():
    with pytest.raises(EquimetricError, match="no other term learns any"):
        build("softmax+regular_face", static=True, **{"softmax.dim": 4})


def test_terms_that_only_stand_beside_others_say_so():
    assert [name for name, recipe in sorted(recipes().items()) if not recipe.stands_alone] == [
        "center_invariant",
        "regular_face",
    ]


def test_the_state_holds_each_proxy_once_and_survives_copies():
    objective = build("arcface+0.1*regular_face")
    assert list(objective.state_dict()) == ["objectives.0.references.weight"]
    expected = objective(batch(), LABELS)
    for other in (copy.deepcopy(objective), pickle.loads(pickle.dumps(objective))):
        torch.testing.assert_close(other(batch(), LABELS), expected)
        with torch.no_grad():
            next(other.parameters()).mul_(torch.linspace(1, 2, 5))
        assert other.terms(batch(), LABELS)["regular_face"] != objective.terms(batch(), LABELS)["regular_face"]


def test_gradients_of_a_sum_with_regularised_proxies_agree_with_finite_differences():
    objective = build("normalized_softmax+0.5*regular_face+0.1*center_invariant")
    names = [name for name, _ in objective.named_parameters()]

    def function(embeddings, *values):
        return torch.func.functional_call(objective, dict(zip(names, values, strict=True)), (embeddings, LABELS))

    assert torch.autograd.gradcheck(function, (batch().requires_grad_(), *objective.parameters()), atol=1e-6)


def test_a_sum_with_regularised_proxies_compiles_as_one_graph():
    objective = build("normalized_softmax+0.5*regular_face")
    compiled = torch.compile(objective, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(batch(), LABELS), objective(batch(), LABELS))
    torch._dynamo.reset()


def test_pair_weights_leave_a_regulariser_of_proxies_out():
    objective = build("arcface+regular_face")
    with pytest.warns(UserWarning, match="leave out 'regular_face'"):
        weights = em.pair_weights(objective, batch(), LABELS)
    torch.testing.assert_close(weights, em.pair_weights(build("arcface"), batch(), LABELS))


def test_variance_and_covariance_are_the_terms_of_vicreg():
    embeddings = batch().requires_grad_()
    whole = build("vicreg", invariance=0.0, variance=3.0, covariance=0.5)(embeddings, LABELS)
    terms = build("3*variance + 1*covariance")(embeddings, LABELS)
    torch.testing.assert_close(whole, terms)
    torch.testing.assert_close(*(torch.autograd.grad(value, embeddings) for value in (whole, terms)))


def test_coincident_samples_have_a_finite_entropy():
    embeddings = torch.ones(6, 5, requires_grad=True)
    value = em.objective("koleo")(embeddings, LABELS)
    value.backward()
    assert value.item() == pytest.approx(-math.log(1e-8), rel=1e-4)
    assert (embeddings.grad == 0).all()


def test_a_vector_of_zeros_has_a_finite_gradient():
    for options in ({}, {"p": 1.0}, {"p": 3.0, "power": 2.0}):
        embeddings = torch.zeros(2, 3, requires_grad=True)
        em.objective("lp", **options)(embeddings, torch.tensor([0, 1])).backward()
        assert torch.equal(embeddings.grad, torch.zeros(2, 3))


def test_a_penalty_that_is_steep_at_zero_is_refused():
    with pytest.raises(EquimetricError, match="power"):
        em.objective("lp", power=0.5)
