"""Calls of objectives: listed triples, own selections, empty batches and reference sets, wrong arguments."""

import re

import pytest
import torch
from small_methods import OPTIONS

import equimetric as em
from equimetric.components import SELECTIONS
from equimetric.objectives import Context, build_objective
from equimetric.objectives.recipes import recipes
from equimetric.pairs import Pairs, TripletBand

LABELS = torch.tensor([0, 0, 1, 1, 1, 2])
CONTEXT = Context(classes=3, dim=4, images=6)


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def all_triples(labels):
    rows = range(len(labels))
    return torch.tensor(
        [
            (a, p, n)
            for a in rows
            for p in rows
            for n in rows
            if a != p and labels[a] == labels[p] and labels[a] != labels[n]
        ]
    )


@pytest.mark.parametrize("method", ["triplet", "margin_loss", "contrastive", "multi_similarity", "triplet+tcm"])
def test_listed_triples_replace_the_selection(method):
    triples = all_triples(LABELS)
    by_selection = "all_triplets" if "+" not in method else None
    embeddings = random(6, 4)
    given, selected = (embeddings.clone().requires_grad_() for _ in range(2))
    options = {"reduction": "mean"} if method in ("triplet", "contrastive") else {}
    value = em.objective(method, **options)(given, LABELS, triplets=triples)
    if by_selection:
        expected = em.objective(method, selection=by_selection, **options)(selected, LABELS)
    else:
        expected = em.objective("triplet", reduction="mean")(selected, LABELS) + em.objective(
            "tcm", selection="all_triplets"
        )(selected, LABELS)
    torch.testing.assert_close(value, expected)
    value.backward()
    expected.backward()
    torch.testing.assert_close(given.grad, selected.grad)


def test_some_triples_alone_count():
    """By hand: two triples, their hinges and the mean."""
    embeddings = random(6, 4)
    distance = torch.cdist(*[torch.nn.functional.normalize(embeddings)] * 2)
    value = em.objective("triplet", margin=2.0)(embeddings, LABELS, triplets=torch.tensor([[0, 1, 3], [4, 2, 5]]))
    expected = (distance[0, 1] - distance[0, 3] + distance[4, 2] - distance[4, 5]) / 2 + 2
    torch.testing.assert_close(value, expected)


def test_triples_may_point_into_an_explicit_reference_set():
    embeddings, references = random(2, 4), random(3, 4, seed=1)
    ids = torch.tensor([0, 1]), torch.tensor([0, 0, 1])
    triples = torch.tensor([[0, 1, 2], [1, 2, 0]])
    value = em.objective("triplet", margin=2.0)(embeddings, ids[0], references, ids[1], triplets=triples)
    distance = torch.cdist(*map(torch.nn.functional.normalize, (embeddings, references)))
    torch.testing.assert_close(value, (distance[0, 1] - distance[0, 2] + distance[1, 2] - distance[1, 0]) / 2 + 2)


@pytest.mark.parametrize(
    ("triples", "message"),
    [
        (torch.tensor([[0, 1, 2], [0, 2, 1]]), r"triple \[0, 2, 1\] is not an anchor, a positive and a negative"),
        (torch.tensor([[0, 1, 6]]), r"triple \[0, 1, 6\] is not .* of these 6 queries and 6 references"),
        (torch.tensor([[-1, 1, 2]]), r"triple \[-1, 1, 2\]"),
        (torch.tensor([0, 1, 2]), "of shape"),
        (torch.tensor([[0.0, 1.0, 2.0]]), "whole numbers"),
        ([[0, 1, 2]], "must be a tensor"),
    ],
)
def test_invalid_triples_are_errors(triples, message):
    with pytest.raises(em.EquimetricError, match=message):
        em.objective("triplet")(random(6, 4), LABELS, triplets=triples)


def test_triples_need_rows_of_the_batch():
    with pytest.raises(em.EquimetricError, match="cannot be used with gather=True"):
        em.objective("triplet", gather=True)(random(6, 4), LABELS, triplets=torch.tensor([[0, 1, 2]]))
    objective = em.objective("arcface", classes=3, dim=4)
    with pytest.raises(em.EquimetricError, match="they need references='batch'"):
        objective(random(6, 4), LABELS, triplets=torch.tensor([[0, 1, 2]]))


@pytest.mark.parametrize("method", ["npairs", "angular_npair", "angular_npairs_combo", "spectral"])
def test_losses_that_choose_their_own_pairs_take_no_selection(method):
    with pytest.raises(em.EquimetricError, match="chooses its pairs itself; leave triplets=… out"):
        em.objective(method)(random(6, 4), LABELS, triplets=torch.tensor([[0, 1, 2]]))
    with pytest.raises(em.EquimetricError, match="chooses its pairs itself; use selection='all'"):
        em.objective(method, selection="semihard")


def test_objectives_add_up_as_numbers_do():
    objectives = [em.objective("triplet"), em.objective("contrastive"), em.objective("tcm")]
    embeddings = random(6, 4)
    total = sum(objectives)(embeddings, LABELS)
    torch.testing.assert_close(total, sum(objective(embeddings, LABELS) for objective in objectives))


def test_a_sum_of_unreduced_terms_has_no_value():
    terms = em.objective("contrastive+tcm", reduction="none").terms(random(6, 4), LABELS)
    assert {name: term.ndim for name, term in terms.items()} == {"contrastive": 1, "tcm": 0}
    with pytest.raises(em.EquimetricError, match="a sum has no value where a term has reduction='none'"):
        em.objective("contrastive+tcm", reduction="none")(random(6, 4), LABELS)


@pytest.mark.parametrize("index", [torch.arange(4), torch.arange(6.0), list(range(6)), torch.ones(6, 1).long()])
def test_index_must_fit_the_batch(index):
    with pytest.raises(em.EquimetricError, match="index must"):
        em.objective("margin_loss", beta_img=8)(random(6, 4), LABELS, index=index)


def test_a_selection_of_ones_own():
    def nearest(pairs, *, number=1):
        """Keep the nearest negatives of each anchor, and all positives."""
        order = pairs.similarity.masked_fill(~pairs.negative, -torch.inf).argsort(1, descending=True)
        kept = torch.zeros_like(pairs.negative).scatter(1, order[:, :number], True)
        return pairs.keep(positive=pairs.positive, negative=kept)

    embeddings = random(6, 4)
    chosen = em.objective("contrastive", selection=nearest, number=2).select(
        em.objective("contrastive").pairs(embeddings, LABELS)
    )
    assert chosen.negative.sum(1).tolist() == [2] * 6
    assert em.objective("contrastive", selection=nearest, number=5)(embeddings, LABELS) == em.objective("contrastive")(
        embeddings, LABELS
    )
    with pytest.raises(em.EquimetricError, match="a selection is a name, a function of Pairs or a module, not int 3"):
        em.objective("contrastive", selection=3)
    with pytest.raises(em.EquimetricError, match="a loss is a name, a function of Pairs or a module, not NoneType"):
        em.objective(None)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: em.objective("triplet", 0.1), "got 0.1 without one; write em.objective('triplet', margin=…)"),
        (lambda: em.objective("contrastive+tcm", 1), "write em.objective('contrastive+tcm', pos_margin=…)"),
        (lambda: em.objective(len, "semihard"), "write em.objective(loss, selection=…)"),
        (
            lambda: em.losses.triplet(selection=em.selections.semihard),
            "selection 'semihard' has no argument that takes the pairs; to use what it makes, call it: semihard(…)",
        ),
        (
            lambda: em.losses.triplet(selection=em.losses.contrastive()),
            "'contrastive' is an objective, no selection; give the name of one, or em.selections.…()",
        ),
        (lambda: em.objective(em.losses.triplet), "loss 'triplet' has no argument that takes the pairs; "),
        (lambda: em.objective(em.losses.triplet()), "'triplet' is an objective already; use it as it is"),
        (lambda: em.objective(em.objective("contrastive+tcm")), "'contrastive+tcm' is an objective already"),
    ],
)
def test_parts_and_options_in_a_wrong_place_raise_errors(build, message):
    with pytest.raises(em.EquimetricError, match=re.escape(message)):
        build()


def test_static_proxies_make_softmax_cross_entropy_on_the_outputs():
    outputs, labels = random(6, 3), torch.tensor([0, 2, 1, 1, 0, 2])
    value = em.objective("softmax", references=em.StaticProxy(3))(outputs, labels)
    torch.testing.assert_close(value, torch.nn.functional.cross_entropy(outputs, labels))
    assert value == em.objective("softmax", static=True, classes=3, dim=3)(outputs, labels)
    with pytest.raises(em.EquimetricError, match="references are made already, so classes cannot be set"):
        em.objective("softmax", references=em.StaticProxy(3), classes=3)
    with pytest.raises(em.EquimetricError, match="makes no sense with references 'proxies'"):
        em.objective("npairs", references=em.StaticProxy(3))
    with pytest.raises(em.EquimetricError, match="references are a name or an object of a registered kind, not int"):
        em.objective("softmax", references=3)


@pytest.mark.parametrize("method", ["spectral", "structured_clustering"])
def test_clustering_nan_embeddings_is_an_error(method):
    embeddings = random(6, 4)
    embeddings[2] = torch.nan
    with pytest.raises(em.EquimetricError, match="the network has diverged"):
        em.objective(method)(embeddings, LABELS)


def test_no_triples_at_all_give_zero():
    embeddings = random(6, 4).requires_grad_()
    value = em.objective("triplet")(embeddings, LABELS, triplets=torch.zeros(0, 3, dtype=torch.int64))
    value.backward()
    assert value == 0
    assert torch.equal(embeddings.grad, torch.zeros(6, 4, dtype=torch.float64))


NOBODY = torch.zeros(0, dtype=torch.int64)


@pytest.mark.parametrize("method", sorted(name for name, recipe in recipes().items() if recipe.stands_alone))
def test_an_empty_batch_has_no_loss(method):
    embeddings = torch.zeros(0, 4, requires_grad=True)
    # The penalty of the centres does not depend on the batch.
    options = {"tau": 0.0} if method == "softtriple" else {}
    value = build_objective(method, {**OPTIONS.get(method, {}), **options}, CONTEXT)(embeddings, NOBODY, index=NOBODY)
    value.backward()
    assert value == 0


@pytest.mark.parametrize("selection", sorted(SELECTIONS))
@pytest.mark.parametrize("method", ["proxy_anchor", "proxy_triplet", "multi_similarity", "contrastive", "triplet"])
def test_an_empty_batch_has_no_loss_with_any_selection(method, selection):
    if method.startswith("proxy") and selection in ("angular", "triplet_rows"):
        with pytest.raises(em.EquimetricError, match=r"with one another|compared with themselves"):
            build_objective(method, {"selection": selection}, CONTEXT)(torch.randn(6, 4), LABELS)
        return
    embeddings = torch.zeros(0, 4, requires_grad=True)
    value = build_objective(method, {"selection": selection}, CONTEXT)(embeddings, NOBODY)
    value.backward()
    assert value == 0


@pytest.mark.parametrize("method", [name for name, recipe in recipes().items() if recipe.parts()[2].name == "batch"])
def test_an_empty_reference_set_has_no_loss(method):
    queries = torch.randn(6, 4, requires_grad=True)
    value = build_objective(method, OPTIONS.get(method, {}), CONTEXT)(
        queries, LABELS, torch.zeros(0, 4), NOBODY, index=torch.arange(6)
    )
    value.backward()
    assert value == 0
    assert torch.equal(queries.grad, torch.zeros(6, 4))


def test_terms_of_an_empty_reference_set():
    shapes = {"binomial": (6,), "triplet": (0,), "contrastive": (0,), "snr_contrastive": (0,), "nca": (6,)}
    for method, shape in shapes.items():
        value = em.objective(method, reduction="none")(random(6, 4), LABELS, torch.zeros(0, 4), NOBODY)
        assert value.shape == shape
        assert not value.any()


@pytest.mark.parametrize("method", ["contrastive", "multi_similarity", "tcm", "margin_loss", "ranked_list", "binomial"])
@pytest.mark.parametrize("labels", [torch.arange(6), torch.zeros(6, dtype=torch.int64)])
def test_separable_losses_may_require_both_kinds_of_pairs(method, labels):
    embeddings = (random(1, 4) + random(6, 4, seed=1)).requires_grad_()
    assert em.objective(method)(embeddings, labels) != 0
    value = em.objective(method, require_both=True)(embeddings, labels)
    value.backward()
    assert value == 0
    assert not embeddings.grad.any()
    both = em.objective(method)(embeddings, LABELS)
    assert em.objective(method, require_both=True)(embeddings, LABELS) == both != 0


def test_an_array_is_an_error_that_says_how_to_convert_it():
    with pytest.raises(em.EquimetricError, match=r"convert with torch.as_tensor\(embeddings\)"):
        em.objective("triplet")(random(6, 4).numpy(), LABELS)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("selection", ["all", "semihard", "batch_hard"])
def test_triplets_divided_by_the_queries_that_have_any(soft, selection):
    embeddings = random(6, 4)
    options = {"margin": 0.5, "soft": soft, "selection": selection}
    pairs = em.objective("triplet").pairs(embeddings, LABELS)
    chosen = em.objective("triplet", **options).select(pairs)
    listed = TripletBand(chosen) if isinstance(chosen, Pairs) else chosen
    anchors = (listed.triplets() if isinstance(listed, TripletBand) else listed).anchor
    total = em.objective("triplet", reduction="sum", **options)(embeddings, LABELS)
    value = em.objective("triplet", reduction="valid", **options)(embeddings, LABELS)
    torch.testing.assert_close(value, total / len(set(anchors.tolist())))


def test_binomial_divided_by_the_anchors_that_have_pairs():
    """With masks for labels, an anchor may have no pair at all."""
    embeddings = random(4, 3)
    positive = torch.zeros(4, 4, dtype=torch.bool)
    positive[0, 1] = positive[1, 0] = True
    negative = torch.zeros_like(positive)
    negative[0, 2] = True
    total = em.objective("binomial", reduction="sum")(embeddings, (positive, negative))
    for reduction, number in (("valid", 2), ("batch", 4), ("mean", 4)):
        value = em.objective("binomial", reduction=reduction)(embeddings, (positive, negative))
        torch.testing.assert_close(value, total / number)
