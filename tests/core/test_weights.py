"""Sample weights, class weights and per-query reductions, against loops and across references."""

import pytest
import torch
from torch.nn.functional import normalize, softplus

import equimetric as em
from equimetric.components import LOSSES
from equimetric.objectives import Context, build_objective

LABELS = torch.tensor([0, 0, 1, 1, 2, 2, 2])
WEIGHTS = torch.tensor([1.0, 2.5, 0.5, 1.0, 0.0, 3.0, 1.0], dtype=torch.float64)


def embeddings(seed=0, rows=7, dim=4):
    return torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_a_weighted_binomial_deviance_by_loops():
    x = normalize(embeddings())
    s = (x @ x.T).tolist()
    w, y = WEIGHTS.tolist(), LABELS.tolist()
    total = number = 0.0
    for i in range(len(y)):
        sums = {True: [0.0, 0.0], False: [0.0, 0.0]}
        for j in range(len(y)):
            if i != j:
                same = y[i] == y[j]
                term = 2.0 * (0.5 - s[i][j]) if same else 50.0 * (s[i][j] - 0.5)
                sums[same][0] += w[j] * float(softplus(torch.tensor(term, dtype=torch.float64)))
                sums[same][1] += w[j]
        total += w[i] * sum(top / bottom for top, bottom in sums.values() if bottom)
        number += w[i]
    value = em.objective("binomial")(embeddings(), LABELS, sample_weight=WEIGHTS)
    assert value.item() == pytest.approx(total / number, rel=1e-12)


@pytest.mark.parametrize("reduction", ["nonzero", "mean", "sum", "batch", "valid"])
def test_weighted_triplets_by_loops(reduction):
    x = normalize(embeddings())
    d = torch.cdist(x, x).tolist()
    w, y, rows = WEIGHTS.tolist(), LABELS.tolist(), range(len(LABELS))
    triples = [(a, p, n) for a in rows for p in rows for n in rows if a != p and y[a] == y[p] != y[n]]
    terms = [(w[a] * w[p] * w[n], max(0.0, d[a][p] - d[a][n] + 0.3), a) for a, p, n in triples]
    anchors = {a for times, _, a in terms if times}
    number = {
        "nonzero": sum(times for times, term, _ in terms if term > 0),
        "mean": sum(times for times, _, _ in terms),
        "sum": 1.0,
        "batch": sum(w),
        "valid": sum(w[a] for a in anchors),
    }[reduction]
    objective = em.objective("triplet", margin=0.3, reduction=reduction)
    value = objective(embeddings(), LABELS, sample_weight=WEIGHTS)
    assert value.item() == pytest.approx(sum(times * term for times, term, _ in terms) / number, rel=1e-12)


def test_class_weights_of_a_classifier_are_those_of_torch():
    objective = em.objective("softmax", classes=3, dim=4, class_weight=[1.0, 0.5, 3.0]).double()
    x, weight = embeddings(), torch.tensor([1.0, 0.5, 3.0], dtype=torch.float64)
    for reduction in ("mean", "sum", "none"):
        objective.loss.options["reduction"] = reduction
        expected = torch.nn.functional.cross_entropy(
            x @ objective.references.weight.T, LABELS, weight=weight, reduction=reduction
        )
        torch.testing.assert_close(objective(x, LABELS), expected)


@pytest.mark.parametrize("method", ["contrastive", "triplet_semihard", "multi_similarity", "margin_loss", "ntxent"])
@pytest.mark.parametrize("selection", [None, "hdc", "batch_hard", "violating"])
def test_class_weights_are_sample_weights_by_label(method, selection):
    by_class = torch.tensor([0.5, 2.0, 1.5])
    chosen = {} if selection is None else {"selection": selection}
    weighted = em.objective(method, class_weight=by_class, **chosen)(embeddings(), LABELS, sample_weight=WEIGHTS)
    samples = em.objective(method, **chosen)(embeddings(), LABELS, sample_weight=WEIGHTS * by_class[LABELS])
    torch.testing.assert_close(weighted, samples)


def test_class_weights_stay_as_precise_as_given():
    objective = em.objective("ntxent", class_weight=torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64)).bfloat16()
    assert objective.class_weight.dtype == torch.float64
    assert "class_weight" not in objective.state_dict()


def test_weights_of_an_explicit_reference_set():
    x, references, labels = embeddings(), embeddings(1, rows=5), torch.tensor([0, 1, 2, 2, 0])
    times, reference_times = torch.tensor([1, 2, 1, 0, 1, 1, 3]), torch.tensor([2, 1, 0, 1, 1])
    rows = torch.arange(7).repeat_interleave(times)
    columns = torch.arange(5).repeat_interleave(reference_times)
    objective = em.objective("multi_similarity")
    weighted = objective(x, LABELS, references, labels, sample_weight=times, reference_weight=reference_times)
    torch.testing.assert_close(weighted, objective(x[rows], LABELS[rows], references[columns], labels[columns]))


def test_a_memory_keeps_the_weights_of_its_samples():
    def remember(weight):
        objective = em.objective("multi_similarity", references="memory", dim=4, size=16, start_iteration=0).double()
        objective(embeddings(), LABELS, sample_weight=weight)
        return objective

    objective, unweighted = remember(WEIGHTS), remember(None)
    assert "references.weights" not in unweighted.state_dict()
    pairs = objective.pair_terms(embeddings(2), LABELS).weighted_pairs[1][1]
    torch.testing.assert_close(pairs.weight, WEIGHTS.expand(7, 7))
    unweighted.load_state_dict(objective.state_dict())
    torch.testing.assert_close(unweighted(embeddings(2), LABELS), objective(embeddings(2), LABELS))
    plain = em.objective("multi_similarity", references="memory", dim=4, size=16, start_iteration=0).double()
    objective.load_state_dict(plain.state_dict())
    assert objective.references.weights is None


def test_prototypes_are_weighted_means_and_queries_count_by_weight():
    x = embeddings(rows=6)
    labels, weight = torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([1.0, 3.0, 2.0, 0.0, 1.0, 4.0])
    weight = weight.double()
    means = torch.stack([(x[0] + 3 * x[1]) / 4, x[4]])
    queries = x[[2, 5]]
    logits = -torch.cdist(queries, means).square()
    values = torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1]), reduction="none")
    expected = (2 * values[0] + 4 * values[1]) / 6
    torch.testing.assert_close(em.objective("prototypical", ns=2)(x, labels, sample_weight=weight), expected)


def test_listed_triplets_count_by_the_weights_of_their_samples():
    triplets = torch.tensor([[0, 1, 2], [3, 2, 5], [5, 6, 0]])
    objective = em.objective("triplet", margin=2.0, reduction="mean")
    terms = em.objective("triplet", margin=2.0, reduction="none")(embeddings(), LABELS, triplets=triplets)
    times = WEIGHTS[triplets].prod(1)
    value = objective(embeddings(), LABELS, triplets=triplets, sample_weight=WEIGHTS)
    torch.testing.assert_close(value, (times * terms).sum() / times.sum())


@pytest.mark.parametrize("method", ["contrastive", "triplet", "proxy_triplet", "softmax", "binomial"])
def test_terms_of_weighted_queries_add_up_to_the_sum(method):
    parts = {"classes": 3, "dim": 4} if method in ("proxy_triplet", "softmax") else {}
    torch.manual_seed(0)
    value = em.objective(method, reduction="sum", **parts).double()(embeddings(), LABELS, sample_weight=WEIGHTS)
    if method != "proxy_triplet":
        torch.manual_seed(0)
        terms = em.objective(method, reduction="none", **parts).double()(embeddings(), LABELS, sample_weight=WEIGHTS)
        torch.testing.assert_close(terms.sum(), value)
    assert value > 0


PER_QUERY = sorted(name for name, loss in LOSSES.items() if loss.per_query and "reduction" not in loss.options)


@pytest.mark.parametrize("loss", PER_QUERY)
def test_losses_that_compare_queries_with_one_another_have_values_of_queries(loss):
    options = {"dreml": {"members": 2}}.get(loss, {})

    def build(**reduction):
        torch.manual_seed(0)
        return build_objective(loss, {**options, **reduction}, Context(classes=3, dim=4, images=7)).double().eval()

    torch.manual_seed(1)
    values = build(reduction="query")(embeddings(), LABELS)
    assert values.shape == LABELS.shape
    if loss in ("angular", "lifted", "hierarchical_triplet"):
        # Means over pairs or triples: the mean of the queries' own means, by their number of terms.
        same = (LABELS[:, None] == LABELS).sum(1)
        number = (same - 1) * (len(LABELS) - same if loss == "hierarchical_triplet" else 1)
        expected = (values * number).sum() / number.sum()
    else:
        expected = values.mean()
    if loss == "bier":
        # Means over positives and over negatives, whose numbers differ from query to query unless classes are alike.
        labels = torch.tensor([0, 0, 1, 1, 2, 2])
        values_alike = build(reduction="query")(embeddings()[:6], labels)
        torch.testing.assert_close(build()(embeddings()[:6], labels), values_alike.mean())
    else:
        torch.testing.assert_close(build()(embeddings(), LABELS), expected)
    torch.testing.assert_close(build(reduction="sum")(embeddings(), LABELS), values.sum())


def test_reductions_of_the_queries_own_losses():
    labels = torch.tensor([0, 0, 1, 2])
    x, weight = embeddings(rows=4), torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    own = em.objective("tcm", selection="batch_hard", reduction="none")(x, labels)
    assert (own[:2] > 0).all()
    assert (own[2:] == 0).all(), "queries without a positive have no triple"

    def reduce(reduction, **options):
        return em.objective("tcm", selection="batch_hard", reduction=reduction)(x, labels, **options)

    torch.testing.assert_close(reduce("query"), own)
    torch.testing.assert_close(reduce("sum"), own.sum())
    torch.testing.assert_close(reduce("batch"), own.sum() / 4)
    torch.testing.assert_close(reduce("valid"), own.sum() / 2)
    torch.testing.assert_close(reduce("mean"), reduce("valid"))
    torch.testing.assert_close(reduce("none", sample_weight=weight), own * weight)
    torch.testing.assert_close(reduce("valid", sample_weight=weight), (own * weight).sum() / 3)


def test_a_sum_passes_weights_to_every_term():
    both = em.objective("contrastive + 0.5*tcm").terms(embeddings(), LABELS, sample_weight=WEIGHTS)
    alone = em.objective("tcm")(embeddings(), LABELS, sample_weight=WEIGHTS)
    torch.testing.assert_close(both["tcm"], 0.5 * alone)


def test_an_unweighted_loss_runs_no_weighted_kernel(monkeypatch):
    def forbidden(*_):
        raise AssertionError("a weighted sum without weights")

    monkeypatch.setattr("equimetric.ops.rows.torch.dot", forbidden)
    em.objective("multi_similarity")(embeddings(), LABELS)
    with pytest.raises(AssertionError, match="weighted sum"):
        em.objective("multi_similarity")(embeddings(), LABELS, sample_weight=WEIGHTS)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (torch.ones(6), "one weight for each of 7 samples"),
        (torch.full((7,), float("nan")), "finite numbers of 0 or more"),
        (-torch.ones(7), "finite numbers of 0 or more"),
        (torch.ones(7, dtype=torch.bool), "finite numbers of 0 or more"),
        ([1.0] * 7, "sample_weight"),
    ],
)
def test_wrong_sample_weights_are_errors(weight, message):
    with pytest.raises(em.EquimetricError, match=message):
        em.objective("ntxent")(embeddings(), LABELS, sample_weight=weight)


@pytest.mark.parametrize("weight", [[], [1.0, -1.0], [1.0, float("inf")], "abc", 3.0, torch.ones(2, 2)])
def test_wrong_class_weights_are_errors(weight):
    with pytest.raises(em.EquimetricError, match="class_weight must be one finite number"):
        em.objective("ntxent", class_weight=weight)


def test_weights_that_do_not_fit_the_call_are_errors():
    with pytest.raises(em.EquimetricError, match="holds 2 weights, but class ids are 0 … 2"):
        em.objective("ntxent", class_weight=[1.0, 2.0])(embeddings(), LABELS)
    with pytest.raises(em.EquimetricError, match="class_weight needs one class id per sample"):
        em.objective("ntxent", class_weight=[1.0, 2.0])(embeddings(), torch.eye(7, dtype=torch.int64))
    with pytest.raises(em.EquimetricError, match="reference_weight needs reference_embeddings"):
        em.objective("ntxent")(embeddings(), LABELS, reference_weight=torch.ones(7))
    with pytest.raises(em.EquimetricError, match="it scores the batch as a whole and no query by itself"):
        em.objective("global_loss", reduction="none")
    with pytest.raises(em.EquimetricError, match="'sum' or 'none', got 'average'"):
        em.objective("ntxent", reduction="average")
