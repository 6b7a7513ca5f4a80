"""Laws that every loss and every method of the registry must keep."""

import copy
import inspect
import pickle

import pytest
import torch
from rounding import assert_same_digits
from small_methods import OPTIONS

import equimetric as em
from equimetric.components import LAWS, LOSSES, SELECTIONS
from equimetric.objectives import Context, build_objective
from equimetric.objectives.recipes import recipes
from equimetric.pairs import Pairs
from equimetric.references.batch import BatchReferences

DIMENSION = 5
CLASSES = 4
LABELS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 3])
# Needs the samples' places in the training set; "magnet" stands for it.
METHODS = sorted(n for n, recipe in recipes().items() if recipe.stands_alone and "images" not in recipe.context)
CONTEXT = Context(classes=CLASSES, dim=DIMENSION, images=len(LABELS))


def exempt(method, law):
    """Why a part of the method declares that it breaks a law; None where it keeps it."""
    assert law in LAWS
    return next((part.exempt[law] for part in recipes()[method].parts() if law in part.exempt), None)


def keeping(law, methods=METHODS):
    return [method for method in methods if not exempt(method, law)]


def draws_at_random(method):
    return "draws" in (exempt(method, "permutation") or "")


def build(method, **options):
    torch.manual_seed(1)
    return build_objective(method, {**OPTIONS.get(method, {}), **options}, CONTEXT).double().eval()


def batch(seed=0, dtype=torch.float64, rows=10):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, DIMENSION, generator=generator, dtype=dtype)


def value_and_gradient(objective, embeddings, labels, **options):
    embeddings = embeddings.clone().requires_grad_()
    torch.manual_seed(3)
    value = objective(embeddings, labels, **options)
    value.backward()
    return value.detach(), embeddings.grad


def index(labels):
    return torch.arange(len(labels))


@pytest.mark.parametrize("method", keeping("permutation"))
def test_permutation_of_the_batch_changes_nothing(method):
    objective, embeddings = build(method), batch()
    order = torch.randperm(len(LABELS), generator=torch.Generator().manual_seed(5))
    value, gradient = value_and_gradient(objective, embeddings, LABELS)
    permuted, permuted_gradient = value_and_gradient(objective, embeddings[order], LABELS[order])
    torch.testing.assert_close(permuted, value)
    torch.testing.assert_close(permuted_gradient, gradient[order])


@pytest.mark.parametrize("method", METHODS)
def test_relabelling_changes_nothing(method):
    objective, embeddings = build(method), batch()
    value, gradient = value_and_gradient(objective, embeddings, LABELS)
    by_class = "classes" in LOSSES[recipes()[method].loss].options
    if hasattr(objective.references, "weight") or recipes()[method].context or by_class:
        names = torch.tensor([2, 0, 3, 1])
        for parameter in (*objective.parameters(), *objective.buffers()):
            if len(parameter.shape) and len(parameter) % CLASSES == 0:
                rows = parameter.data.unflatten(0, (CLASSES, -1))
                parameter.data = rows[names.argsort()].flatten(0, 1)
    else:
        # Far apart, close together above 2^24 where float32 cannot tell them apart, and negative.
        names = torch.tensor([2**40, 2**24 + 1, 2**24, -7])
    relabelled, relabelled_gradient = value_and_gradient(objective, embeddings, names[LABELS])
    torch.testing.assert_close(relabelled, value)
    torch.testing.assert_close(relabelled_gradient, gradient)


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64])
def test_labels_of_any_integer_type(kind):
    objective, embeddings = build("multi_similarity"), batch()
    assert objective(embeddings, LABELS.to(kind)) == objective(embeddings, LABELS)


def pairs_of(objective, embeddings=None):
    with torch.no_grad():
        return objective.pairs(batch() if embeddings is None else embeddings, LABELS, index=index(LABELS))


def repeat_columns(pairs, times):
    """The same pairs with each reference present `times` times."""
    columns = torch.repeat_interleave(torch.arange(pairs.similarity.shape[1]), times)
    return Pairs(
        pairs.similarity[:, columns],
        pairs.positive[:, columns],
        pairs.negative[:, columns],
        geometry=pairs.geometry,
        queries=pairs.queries,
    )


@pytest.mark.parametrize("method", keeping("multiplicity"))
def test_weight_is_multiplicity(method):
    objective = build(method)
    pairs = pairs_of(objective)
    most = 1 if exempt(method, "doubling") else 2
    times = torch.randint(0, most + 1, (pairs.similarity.shape[1],), generator=torch.Generator().manual_seed(2))
    weighted = pairs.weighted(times.to(torch.float64).expand_as(pairs.similarity))
    torch.testing.assert_close(objective.value(weighted), objective.value(repeat_columns(pairs, times)))


TIMES = torch.tensor([1, 2, 0, 3, 1, 1, 2, 1, 1, 2])
WEIGHTED = [m for m in keeping("sample weights") if not draws_at_random(m) and not exempt(m, "repetition")]


def repeat_rows(objective, embeddings):
    """The loss of a batch with each row present as often as `TIMES` says; copies are no pairs of one another."""
    rows = torch.arange(len(LABELS)).repeat_interleave(TIMES)
    embeddings, labels = embeddings[rows], LABELS[rows]
    if not isinstance(objective.references, BatchReferences):
        return objective(embeddings, labels)
    return objective(embeddings, labels, embeddings, labels, self_mask=rows[:, None] == rows)


@pytest.mark.parametrize("method", [m for m in WEIGHTED if m not in ("prototypical", "xbm")])
def test_a_sample_weight_is_the_number_of_its_rows(method):
    objective, embeddings = build(method), batch().requires_grad_()
    weighted, repeated = objective(embeddings, LABELS, sample_weight=TIMES), repeat_rows(objective, embeddings)
    torch.testing.assert_close(weighted, repeated)
    gradients = [torch.autograd.grad(value, embeddings, allow_unused=True)[0] for value in (weighted, repeated)]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("method", keeping("sample weights"))
def test_weights_of_one_change_nothing_and_no_weight_at_all_is_no_loss(method):
    objective, embeddings = build(method), batch()
    ones, zeros = torch.ones(len(LABELS)), torch.zeros(len(LABELS))
    value, gradient = value_and_gradient(objective, embeddings, LABELS)
    torch.testing.assert_close(value_and_gradient(objective, embeddings, LABELS, sample_weight=ones), (value, gradient))
    empty, no_gradient = value_and_gradient(objective, embeddings, LABELS, sample_weight=zeros)
    assert empty.isfinite()
    assert (no_gradient == 0).all()


def test_every_method_takes_weights():
    assert keeping("sample weights") == METHODS


def test_losses_without_weights_say_why(monkeypatch):
    LOSSES.discover()
    for table in ("_records", "_modules"):
        monkeypatch.setattr(LOSSES, table, dict(getattr(LOSSES, table)))
    exempt_from = {"sample weights": "all samples are one"}

    @em.loss("whole", title="Whole", paper="Doe: One (2026)", family="ranking", exempt=exempt_from)
    def whole(pairs):
        return pairs.similarity.sum()

    with pytest.raises(em.EquimetricError, match=r"takes no weights: all samples are one; leave them out"):
        em.objective("whole")(batch(), LABELS, sample_weight=torch.ones(len(LABELS)))
    with pytest.raises(em.EquimetricError, match=r"takes no weights: all samples are one; leave them out"):
        em.objective("whole", class_weight=[1.0] * CLASSES)


@pytest.mark.parametrize("method", keeping("finite differences"))
def test_gradients_agree_with_finite_differences(method):
    objective = build(method)

    def function(embeddings):
        torch.manual_seed(3)
        return objective(embeddings, LABELS, index=index(LABELS))

    assert torch.autograd.gradcheck(function, (batch(7).requires_grad_(),), eps=1e-6, atol=1e-5)


@pytest.mark.parametrize("method", keeping("parameter differences"))
def test_parameter_gradients_agree_with_finite_differences(method):
    objective, embeddings = build(method, **({"nu": 0.01} if "nu" in recipes()[method].defaults else {})), batch(7)
    parameters = dict(objective.named_parameters())

    def function(*values):
        torch.manual_seed(3)
        return torch.func.functional_call(objective, dict(zip(parameters, values, strict=True)), (embeddings, LABELS))

    if parameters:
        assert torch.autograd.gradcheck(function, tuple(parameters.values()), eps=1e-6, atol=1e-5)


DEGENERATE = {
    "all labels different": torch.arange(4),
    "all labels equal": torch.zeros(4, dtype=torch.int64),
    "one sample": torch.zeros(1, dtype=torch.int64),
    "one pair": torch.tensor([1, 1]),
    "singletons among others": torch.tensor([0, 0, 1, 2]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("labels", DEGENERATE.values(), ids=DEGENERATE)
@pytest.mark.parametrize("method", keeping("any batch"))
def test_degenerate_batches_are_finite(method, labels, dtype):
    objective = build(method).to(dtype)
    for embeddings in (
        batch(rows=len(labels), dtype=dtype),
        torch.ones(len(labels), DIMENSION, dtype=dtype),
        torch.zeros(len(labels), DIMENSION, dtype=dtype),
    ):
        value, gradient = value_and_gradient(objective, embeddings, labels)
        assert torch.isfinite(value)
        assert torch.isfinite(gradient).all()


NOT_FINITE = {"NaN": torch.nan, "infinite": torch.inf, "minus infinite": -torch.inf}


def is_nan_or_error(objective, embeddings, labels, *arguments, **options):
    """Whether a loss says that embeddings are not finite: by NaN, or by an error that explains it."""
    embeddings = embeddings.clone().requires_grad_()
    try:
        value = objective(embeddings, labels, *arguments, **options)
    except em.EquimetricError as error:
        assert "NaN or infinite" in str(error)  # noqa: PT017
        return True
    value.sum().backward()
    return bool(value.isnan().all())


@pytest.mark.parametrize("entry", NOT_FINITE.values(), ids=NOT_FINITE)
@pytest.mark.parametrize("method", METHODS)
def test_a_row_that_is_not_finite_never_gives_a_finite_loss(method, entry):
    for row, columns in ((0, 2), (5, slice(None)), (9, slice(None))):
        for dtype in (torch.float64, torch.bfloat16):
            embeddings = batch()
            embeddings[row, columns] = entry
            assert is_nan_or_error(build(method), embeddings.to(dtype), LABELS, index=index(LABELS))


@pytest.mark.parametrize("selection", sorted(SELECTIONS))
@pytest.mark.parametrize("loss", sorted(name for name in LOSSES if LOSSES[name].takes != "batch"))
def test_no_selection_drops_a_row_that_is_not_finite(loss, selection):
    references = LOSSES[loss].reference_kinds[0]
    embeddings = batch()
    objective = build_objective(loss, {"selection": selection, "references": references}, CONTEXT).double()
    try:
        objective(embeddings, LABELS, index=index(LABELS))
    except em.EquimetricError:
        pytest.skip("this selection makes no sense here")
    embeddings[5] = torch.nan
    assert is_nan_or_error(objective, embeddings, LABELS, index=index(LABELS))


@pytest.mark.parametrize("method", ["contrastive", "triplet_semihard", "margin", "multi_similarity_miner", "fastap"])
def test_neither_references_nor_triplets_nor_reductions_hide_a_row_that_is_not_finite(method):
    objective, wrong = build(method), batch(1)
    wrong[3] = torch.nan
    assert is_nan_or_error(objective, batch(), LABELS, wrong, LABELS)
    assert is_nan_or_error(objective, wrong, LABELS, batch(), LABELS)
    # No triple has the wrong row.
    assert is_nan_or_error(objective, wrong, LABELS, triplets=torch.tensor([[0, 1, 5], [5, 6, 0]]))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert is_nan_or_error(objective, wrong, LABELS)
    if "reduction" in recipes()[method].defaults:
        assert is_nan_or_error(build(method, reduction="none"), wrong, LABELS)


@pytest.mark.parametrize("method", ["contrastive", "triplet", "multi_similarity_miner", "proxy_triplet"])
def test_compiled_losses_of_a_row_that_is_not_finite_are_nan(method):
    objective, wrong = build(method), batch()
    wrong[3] = torch.nan
    compiled = torch.compile(objective, fullgraph=True, backend="eager")
    assert compiled(wrong, LABELS).isnan()
    torch.testing.assert_close(compiled(batch(), LABELS), objective(batch(), LABELS))
    torch._dynamo.reset()


def test_finite_embeddings_whose_sum_overflows_have_a_finite_loss():
    embeddings = batch(dtype=torch.float32).abs().mul(2e4).clamp_max(6e4).half()
    assert embeddings.sum().isinf()
    assert em.objective("contrastive")(embeddings, LABELS).isfinite()


def test_a_memory_does_not_remember_a_batch_that_is_not_finite():
    objective = em.objective("contrastive", references="memory", dim=DIMENSION, size=64, start_iteration=0).double()
    objective(batch(), LABELS)
    wrong = batch(1)
    wrong[3] = torch.nan
    assert objective(wrong, LABELS).isnan()
    assert objective.references.filled == len(LABELS)
    assert objective(batch(2), LABELS).isfinite()


RELATIVE = ["triplet", "triplet_semihard", "triplet_batch_hard", "triplet_facenet", "multi_similarity_miner", "nca"]


@pytest.mark.parametrize("labels", [DEGENERATE["all labels different"], DEGENERATE["all labels equal"]])
@pytest.mark.parametrize("method", RELATIVE)
def test_relative_losses_are_zero_without_positives_or_negatives(method, labels):
    value, gradient = value_and_gradient(build(method), batch(rows=4), labels)
    assert value == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_coincident_and_opposite_points_are_finite(method):
    objective = build(method).float()
    one = torch.nn.functional.normalize(batch(rows=1, dtype=torch.float32))
    embeddings = torch.cat([one, one, -one, one, -one, one, one, -one, one, -one])
    if hasattr(objective.references, "weight"):
        objective.references.weight.data[:2] = one
        objective.references.weight.data[2:] = -one
    value, gradient = value_and_gradient(objective, embeddings, LABELS)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("method", METHODS)
def test_half_precision_stays_finite_and_close(method, precision):
    objective = build(method).float()
    # Rounded beforehand, so that only the arithmetic differs.
    embeddings = batch(dtype=torch.float32).to(precision).float()
    value, gradient = value_and_gradient(objective, embeddings, LABELS)
    with torch.autocast("cpu", dtype=precision):
        half, half_gradient = value_and_gradient(objective, embeddings.to(precision), LABELS)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, value, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(half_gradient.float(), gradient, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("method", METHODS)
def test_parameters_of_another_precision_than_the_embeddings(method):
    single, double = build(method).float(), build(method)
    value, _ = value_and_gradient(double, batch().float().double(), LABELS)
    for objective, dtype in ((single, torch.float64), (double, torch.float32)):
        other, gradient = value_and_gradient(objective, batch().float().to(dtype), LABELS)
        assert gradient.dtype == dtype
        torch.testing.assert_close(other.double(), value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("part", ["loss", "selection"])
def test_losses_and_selections_can_be_pickled_and_copied(method, part):
    module = getattr(build(method), part)
    for again in (pickle.loads(pickle.dumps(module)), copy.deepcopy(module)):
        assert repr(again) == repr(module)
        torch.testing.assert_close(again.state_dict(), module.state_dict())


@pytest.mark.parametrize("method", METHODS)
def test_copies_have_the_same_loss_and_gradients(method):
    """After a step that has changed what the objective keeps: memories, histograms, moving averages."""
    objective = build(method).train()
    value_and_gradient(objective, batch(1), LABELS)
    objective.zero_grad()
    found = []
    for one in (copy.deepcopy(objective), pickle.loads(pickle.dumps(objective)), objective):
        result = value_and_gradient(one, batch(), LABELS)
        found.append((*result, *(parameter.grad for parameter in one.parameters())))
    assert len(found[0]) == 2 + len(list(objective.parameters()))
    torch.testing.assert_close(found[:2], [found[2], found[2]], rtol=0, atol=0)


@pytest.mark.parametrize("selection", ["distance_weighted", "pads", "random_semihard"])
def test_a_selection_with_a_generator_of_its_own_resumes_its_draws_after_pickling(selection):
    generator = torch.Generator().manual_seed(4)
    objective = em.objective("triplet", selection=selection, generator=generator).double()
    pairs = objective.pairs(batch(), LABELS)
    objective.select(pairs)
    again = pickle.loads(pickle.dumps(objective.selection))
    torch.testing.assert_close(again(pairs).negative, objective.selection(pairs).negative)


# ArcFace and its like have a monotone mode, which is their default.
MONOTONE = [m for m in METHODS if not exempt(m, "monotone") or recipes()[m].defaults.get("mode") == "monotone"]


@pytest.mark.parametrize("method", MONOTONE)
def test_positives_are_never_pushed_apart_nor_negatives_pulled_together(method):
    objective = build(method)
    for seed in range(5):
        pairs = pairs_of(objective, batch(seed))
        similarity = pairs.similarity.requires_grad_()
        torch.manual_seed(3)
        (gradient,) = torch.autograd.grad(objective.value(pairs), similarity)
        assert (gradient[pairs.positive] <= 1e-12).all()
        assert (gradient[pairs.negative] >= -1e-12).all()
        assert (gradient[~pairs.mask] == 0).all()


def test_plain_arcface_pushes_an_opposite_positive_away_as_documented():
    assert "plain" in LOSSES["arcface"].exempt["monotone"]
    objective = build("arcface", mode="plain")
    objective.references.weight.data[0] = torch.tensor([1.0, 0.1, 0, 0, 0])
    pairs = objective.pairs(torch.tensor([[-1.0, 0, 0, 0, 0]], dtype=torch.float64), torch.tensor([0]))
    similarity = pairs.similarity.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(objective.value(pairs.replace(similarity=similarity)), similarity)
    assert gradient[pairs.positive].item() > 0


@pytest.mark.parametrize("method", METHODS)
def test_state_dict_round_trips(method):
    objective = build(method)
    copy = build_objective(method, OPTIONS.get(method, {}), CONTEXT).double().eval()
    copy.load_state_dict(objective.state_dict())
    torch.testing.assert_close(
        value_and_gradient(copy, batch(), LABELS), value_and_gradient(objective, batch(), LABELS)
    )


@pytest.mark.parametrize("method", keeping("static shapes"))
def test_compiles_as_one_graph(method):
    objective = build(method)
    compiled = torch.compile(objective, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(batch(), LABELS), objective(batch(), LABELS))
    torch._dynamo.reset()


@pytest.mark.parametrize("loss", ["magnet", "margin_loss", "prototypical"])
def test_losses_compile_where_their_pairs_do_not(loss):
    objective = build(loss)
    pairs = pairs_of(objective)
    compiled = torch.compile(objective.loss, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(pairs), objective.loss(pairs))
    torch._dynamo.reset()


@pytest.mark.parametrize("method", METHODS)
def test_scale_of_embeddings_does_not_matter_where_they_are_normalised(method):
    objective = build(method)
    if objective.normalize:
        scales = torch.rand(len(LABELS), 1, dtype=torch.float64) * 10 + 0.1
        value, _ = value_and_gradient(objective, batch(), LABELS)
        scaled, _ = value_and_gradient(objective, batch() * scales, LABELS)
        torch.testing.assert_close(scaled, value)


@pytest.mark.parametrize("loss", sorted(name for name in LOSSES if "batch" in LOSSES[name].reference_kinds))
def test_an_explicit_reference_set_equals_the_batch_itself(loss):
    required = {name for name, default in LOSSES[loss].options.items() if default is inspect.Parameter.empty}
    needed = {name: getattr(CONTEXT, name) for name in required}
    torch.manual_seed(1)
    objective = em.objective(loss, references="batch", **OPTIONS.get(loss, {}), **needed).double()
    embeddings = batch()
    itself = torch.eye(len(LABELS), dtype=torch.bool)
    torch.manual_seed(2)
    explicit = objective(embeddings, LABELS, embeddings.clone(), LABELS.clone(), self_mask=itself)
    torch.manual_seed(2)
    torch.testing.assert_close(explicit, objective(embeddings, LABELS))


def test_duplicates_are_legal_pairs():
    objective = em.objective("contrastive_cosine", lam=0.5).double()
    embeddings = torch.ones(3, 2, dtype=torch.float64)
    pairs = objective.pairs(embeddings, torch.tensor([0, 0, 1]))
    assert pairs.positive.sum() == 2
    assert pairs.negative.sum() == 4
    assert objective(embeddings, torch.tensor([0, 0, 1])).item() == pytest.approx(4 * 0.5 / 3)


OF_ANY_BATCH = sorted(name for name in SELECTIONS if "any batch" not in SELECTIONS[name].exempt)


@pytest.mark.parametrize("selection", OF_ANY_BATCH)
def test_selections_choose_among_the_pairs_they_are_given(selection):
    objective = em.objective("triplet", selection=selection).double()
    pairs = objective.pairs(batch(), LABELS)
    chosen = objective.select(pairs)
    as_pairs = chosen if isinstance(chosen, Pairs) else chosen.as_pairs()
    assert not (as_pairs.positive & ~pairs.positive).any()
    # Some push positives on purpose; no selection invents pairs.
    allowed = pairs.mask if "monotone" in SELECTIONS[selection].exempt else pairs.negative
    assert not (as_pairs.negative & ~allowed).any()
    assert not (as_pairs.positive & as_pairs.negative).any()
    assert as_pairs.similarity is pairs.similarity


@pytest.mark.parametrize("selection", OF_ANY_BATCH)
@pytest.mark.parametrize("loss", ["contrastive", "multi_similarity", "margin_loss", "tcm"])
def test_losses_and_selections_combine(loss, selection):
    value, gradient = value_and_gradient(em.objective(loss, selection=selection).double(), batch(), LABELS)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("method", METHODS)
def test_every_method_says_what_it_is(method):
    recipe = recipes()[method]
    assert recipe.title
    assert recipe.paper
    assert LOSSES[recipe.loss].summary
    assert set(recipe.search) <= set(recipe.defaults)
    assert inspect.getdoc(LOSSES[recipe.loss].definition).count("=") >= 1, "the formula belongs into the docstring"


SEPARABLE = [method for method in METHODS if LOSSES[recipes()[method].loss].separable]


def both_ways_agree(objective, monkeypatch, *, exactly=True, **options):
    embeddings = batch(4)

    def gradients():
        objective.zero_grad()
        value, gradient = value_and_gradient(objective, embeddings, LABELS, index=index(LABELS), **options)
        return [value, gradient, *(parameter.grad for parameter in objective.parameters())]

    at_once = gradients()
    monkeypatch.setattr("equimetric.ops.chunks.MIN_CHUNKED_PAIRS", 1)
    monkeypatch.setattr("equimetric.ops.chunks.CHUNK_ENTRIES", 3 * len(LABELS))
    # Positives as lists, as in large batches, where they are few.
    monkeypatch.setattr("equimetric.ops.positive_pairs.SPARSE_MIN_ENTRIES", 1)
    monkeypatch.setattr("equimetric.ops.positive_pairs.SPARSE_RATIO", 2)
    if exactly:
        torch.testing.assert_close(gradients(), at_once)
    assert all(torch.isfinite(part).all() for part in gradients())


@pytest.mark.parametrize("method", SEPARABLE)
def test_a_few_rows_at_a_time_give_the_same_value_and_gradients(method, monkeypatch):
    both_ways_agree(build(method), monkeypatch, exactly=not draws_at_random(method))


@pytest.mark.parametrize("method", sorted(set(SEPARABLE) & set(WEIGHTED)))
def test_a_few_weighted_rows_at_a_time_give_the_same_value_and_gradients(method, monkeypatch):
    both_ways_agree(build(method), monkeypatch, sample_weight=TIMES)


@pytest.mark.parametrize("method", [m for m in SEPARABLE if not draws_at_random(m)])
def test_every_query_of_a_separable_loss_has_a_loss_of_its_own(method):
    objective, plain = build(method, reduction="query"), build(method)
    pairs = pairs_of(plain)
    rows = [slice(row, row + 1) for row in range(len(pairs.similarity))]
    alone = [plain.value(pairs.rows(row, pairs.similarity[row])) for row in rows]
    torch.testing.assert_close(objective.value(pairs), torch.stack(alone))


@pytest.mark.parametrize("reduction", ["sum", "mean", "nonzero", "batch"])
@pytest.mark.parametrize("method", [m for m in SEPARABLE if "reduction" in LOSSES[recipes()[m].loss].options])
def test_every_reduction_is_the_same_a_few_rows_at_a_time(method, reduction, monkeypatch):
    try:
        objective = build(method, reduction=reduction)
    except em.EquimetricError as error:
        assert "reduction must be" in str(error)  # noqa: PT017
        return
    both_ways_agree(objective, monkeypatch, exactly=not draws_at_random(method))


def test_what_is_drawn_at_random_has_its_own_gradient_a_few_rows_at_a_time(monkeypatch):
    monkeypatch.setattr("equimetric.ops.chunks.MIN_CHUNKED_PAIRS", 1)
    monkeypatch.setattr("equimetric.ops.chunks.CHUNK_ENTRIES", 3 * len(LABELS))
    objective = build("contrastive", selection="distance_weighted")
    _, gradient = value_and_gradient(objective, batch(4), LABELS)
    after = torch.get_rng_state()
    step = 1e-6 * batch(5)
    up, down = (value_and_gradient(objective, batch(4) + sign * step, LABELS)[0] for sign in (1, -1))
    assert_same_digits((up - down) / 2, (gradient * step).sum(), digits=4)
    assert torch.equal(torch.get_rng_state(), after), "as many numbers are drawn each time"
