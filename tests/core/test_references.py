"""References: proxies, memories, prototypes."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize as unit

import equimetric as em
from equimetric.components import REFERENCES
from equimetric.errors import EquimetricError
from equimetric.objectives import Context, build_objective
from equimetric.ops.products import inner_products
from equimetric.references import centres as several_centres
from equimetric.references import proxies
from equimetric.references.centres import centre_similarity
from equimetric.references.cleaning import dominant_centres
from equimetric.search_space import Choice

WORKED = json.loads((Path(__file__).parents[1] / "worked_values" / "proxy_losses.json").read_text())


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


YES = torch.ones(4, 4, dtype=torch.bool)
IDS = torch.tensor([0, 0, 1, 1])


# Proxies


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"per_class": 0}, "per_class=0"),
        ({"pool": "mean"}, "pool must be 'max' or 'soft'"),
        ({"divisor": "half"}, "divisor must be 'ordered' or 'unordered'"),
        ({"sample_rate": 0.0}, "sample_rate"),
        ({"initial_length": 0.0}, "initial_length"),
        ({"initial": "orthogonal"}, "initial must be"),
        ({"static": True}, "dim = classes"),
        ({"assignment": "dinamic"}, "assignment must be 'static' or 'dynamic', got 'dinamic'"),
        ({"assignment": "dynamic", "sample_rate": 0.5}, "set sample_rate=1"),
    ],
)
def test_invalid_proxy_options_are_errors(options, message):
    with pytest.raises(EquimetricError, match=message):
        em.objective("normalized_softmax", classes=4, dim=3, **options)


def test_proxies_start_with_the_length_asked_for():
    for initial in ("normal", "uniform", "xavier", "kaiming_normal", "kaiming_uniform"):
        options = {"initial": initial, "initial_length": 3.2}
        weight = em.objective("proxy_anchor", classes=50, dim=256, **options).references.weight
        assert weight.norm(dim=1).mean().item() == pytest.approx(3.2, rel=0.02)


@pytest.mark.parametrize(
    ("method", "deviation", "bound"),
    [
        ("proxy_nca", 1 / 8, math.inf),
        ("normalized_softmax", 1 / (8 * math.sqrt(3)), 1 / 8),
        ("proxy_triplet", math.sqrt(2 / 264), math.sqrt(6 / 264)),
        ("proxy_anchor", math.sqrt(2 / 200), math.inf),
        ("softtriple", 1 / math.sqrt(3 * 2000), 1 / math.sqrt(2000)),
    ],
)
def test_proxies_start_as_their_papers_say(method, deviation, bound):
    weight = em.objective(method, classes=200, dim=64).references.weight
    assert weight.std().item() == pytest.approx(deviation, rel=0.03)
    assert weight.abs().max() <= bound
    if math.isfinite(bound):
        assert weight.abs().max() > 0.99 * bound
    else:
        assert weight.abs().max() > 3 * deviation


@pytest.mark.parametrize("method", ["sphereface", "large_margin_softmax"])
def test_a_bias_is_not_for_margins_that_multiply_the_angle(method):
    objective = em.objective(method, classes=4, dim=3, bias=True)
    with pytest.raises(EquimetricError, match="without a bias"):
        objective(random(2, 3), torch.tensor([0, 1]))


def test_a_bias_is_for_dot_products():
    with pytest.raises(EquimetricError, match="geometry='dot'"):
        em.objective("cosface", classes=3, dim=2, bias=True)(random(4, 2), IDS)


def test_static_proxies_make_cross_entropy_of_the_outputs():
    outputs, labels = random(5, 4), torch.tensor([0, 3, 1, 1, 2])
    objective = em.objective("softmax", classes=4, dim=4, static=True)
    assert not list(objective.parameters())
    expected = torch.nn.functional.cross_entropy(outputs, labels)
    torch.testing.assert_close(objective(outputs, labels), expected)


def arcface(proxies, **options):
    objective = em.objective("arcface", classes=len(proxies), dim=proxies.shape[1], **options).double()
    objective.references.weight.data = proxies
    return objective


@pytest.mark.parametrize("case", WORKED["sampled"], ids=lambda case: case["set"])
def test_worked_values_of_sampled_classes(case, monkeypatch):
    data = WORKED["sets"][case["set"]]
    objective = arcface(float64(data["proxies"] + case["extra"]), sample_rate=0.5)
    monkeypatch.setattr(proxies, "sample_classes", lambda *_: torch.tensor(case["ids"]))
    embeddings, labels = float64(data["embeddings"]), torch.tensor(data["labels"])
    assert objective(embeddings, labels).item() == pytest.approx(case["value"], abs=1e-6)
    if "full" in case:
        assert objective.eval()(embeddings, labels).item() == pytest.approx(case["full"], abs=1e-6)


@pytest.mark.parametrize("per_class", [1, 2])
def test_dynamic_assignment_takes_the_nearest_proxy_whatever_the_label(per_class):
    embeddings, proxies = random(6, 3).requires_grad_(), random(4 * per_class, 3, seed=1)
    objective = em.objective("proxy_nca", classes=4, dim=3, per_class=per_class, assignment="dynamic").double()
    objective.references.weight.data = proxies
    value = objective(embeddings, torch.tensor([2**40, -3, 7, 7, 7, 7]))
    value.backward()
    distance = 9 * torch.cdist(unit(embeddings), unit(proxies)).square()
    distance = distance.view(6, 4, per_class).amin(2)
    terms = []
    for row in distance.tolist():
        nearest = min(row)
        row.remove(nearest)
        terms.append(nearest + math.log(sum(math.exp(-other) for other in row)))
    assert value.item() == pytest.approx(sum(terms) / 6)
    static = em.objective("proxy_nca", classes=4, dim=3, per_class=per_class).double()
    static.references.weight.data = proxies
    again = embeddings.detach().clone().requires_grad_()
    static(again, distance.argmin(1)).backward()
    torch.testing.assert_close(embeddings.grad, again.grad)
    # Also where the positive is in the denominator, as in all classification.
    softmax = em.objective("normalized_softmax", classes=4, dim=3, per_class=per_class, assignment="dynamic").double()
    softmax.references.weight.data = proxies
    cosine = (unit(embeddings) @ unit(proxies).T).view(6, 4, per_class).amax(2)
    expected = torch.nn.functional.cross_entropy(cosine / 0.05, cosine.argmax(1))
    torch.testing.assert_close(softmax(embeddings, torch.tensor([2**40, -3, 7, 7, 7, 7])), expected)


# Cleaning


def at(*degrees):
    angles = float64(degrees).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], 1)


def centres(*degrees, per_class, lengths=1.0, **options):
    objective = em.objective(
        "subcenter_arcface", classes=len(degrees) // per_class, dim=2, per_class=per_class, **options
    )
    objective.double().references.weight.data = lengths * at(*degrees)
    return objective.references


@pytest.mark.parametrize("measure", [inner_products, lambda q, r: q @ r.T])
def test_many_centres_are_pooled_a_few_rows_at_a_time_with_both_derivatives(measure, monkeypatch):
    def pooled(queries, centres, pool="soft"):
        return centre_similarity(measure, queries, centres, 3, pool, 0.7)

    both = random(5, 2).requires_grad_(), random(3 * 4, 2, seed=1).requires_grad_()
    together = {pool: pooled(*both, pool) for pool in ("soft", "max")}
    monkeypatch.setattr(several_centres, "CHUNK_ENTRIES", 24)
    monkeypatch.setattr(several_centres, "STRIP_ROWS", 2)
    for pool, expected in together.items():
        torch.testing.assert_close(pooled(*both, pool), expected)
    assert torch.autograd.gradcheck(pooled, both)
    assert torch.autograd.gradgradcheck(pooled, both)


@pytest.mark.parametrize("pool", ["max", "soft"])
def test_rows_of_centres_are_class_by_class(pool):
    proxies = em.objective("arcface", classes=4, dim=2, per_class=3, pool=pool, gamma=0.1)
    with torch.no_grad():
        angles = torch.tensor([0.0, 0.1, 0.2])[None] + torch.pi / 2 * torch.arange(4)[:, None]
        proxies.references.weight.copy_(torch.stack([angles.cos(), angles.sin()], -1).view(12, 2))
    x = torch.eye(2)
    similarity = proxies.pairs(x, torch.tensor([0, 1])).similarity
    cosines = torch.cos(angles[None] - torch.tensor([0, torch.pi / 2])[:, None, None])
    weights = (cosines / 0.1).softmax(-1)
    expected = cosines.amax(-1) if pool == "max" else (weights * cosines).sum(-1)
    torch.testing.assert_close(similarity, expected, rtol=0, atol=1e-6)


def test_the_dominant_centre_is_nearest_to_most_samples_and_samples_far_from_it_are_noisy():
    # Class 0 has centres at 0°, 90° and 250°, class 1 at 180°, 180.5° and 300°.
    lengths = float64([[1.0], [2.0], [3.0], [4.0], [5.0], [6.0]])
    references = centres(0, 90, 250, 180, 180.5, 300, per_class=3, lengths=lengths)
    embeddings = 7 * at(80, 95, 10, 166, 164, 210, 299, 230, 181, 182)
    labels = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 1])
    found = dominant_centres(references, embeddings, labels)
    assert found.chosen.tolist() == [1, 1]
    torch.testing.assert_close(found.proxies, references.weight.data[[1, 4]])
    expected = float64([10, 5, 80, 76, 74, 120, 118.5, 49.5, 0.5, 1.5])
    torch.testing.assert_close(found.degrees, expected, rtol=0, atol=1e-6)
    assert found.noisy.tolist() == [2, 3, 5, 6]
    assert dominant_centres(references, embeddings, labels, max_angle_deg=118.0).noisy.tolist() == [5, 6]


def test_the_first_of_equally_dominant_centres_counts_and_one_centre_is_dominant_by_itself():
    references = centres(0, 90, 180, 270, per_class=2)
    found = dominant_centres(references, at(1, 89), torch.tensor([0, 0]))
    assert found.chosen.tolist() == [0, 0]
    assert found.noisy.tolist() == [1]
    single = centres(0, 90, per_class=1)
    assert dominant_centres(single, at(1, 2), torch.tensor([0, 1])).noisy.tolist() == [1]


def test_cleaned_centres_go_on_as_single_ones():
    references = centres(0, 90, 180, 270, per_class=2)
    found = dominant_centres(references, at(88, 92, 181), torch.tensor([0, 0, 1]))
    single = em.objective("arcface", classes=2, dim=2).double()
    single.references.weight.data.copy_(found.proxies)
    pairs = single.pairs(at(90, 180), torch.tensor([0, 1]))
    torch.testing.assert_close(pairs.similarity, torch.eye(2, dtype=torch.float64))


def test_cleaning_needs_classes():
    with pytest.raises(EquimetricError, match="class ids must lie in 0 … 1"):
        dominant_centres(centres(0, 90, 180, 270, per_class=2), at(1), torch.tensor([2]))
    dynamic = centres(0, 90, 180, 270, per_class=2, assignment="dynamic")
    with pytest.raises(EquimetricError, match="belong to no class"):
        dominant_centres(dynamic, at(1), torch.tensor([0]))


@pytest.mark.parametrize("kind", ["proxies", "memory"])
def test_search_ranges_of_references_hold_valid_values(kind):
    record = REFERENCES[kind]
    assert record.search
    needed = {"dim": 3, **({"classes": 4} if kind == "proxies" else {})}
    for option, space in record.search.items():
        ends = space.values if isinstance(space, Choice) else (space.low, space.high)
        for value in ends:
            record.build({**needed, option: value})


# Memory


def memory(method="contrastive_cosine", **options):
    options = {"references": "memory", "dim": 2, "start_iteration": 0, **options}
    return em.objective(method, **options).double()


def test_worked_value_of_the_memory_term():
    case = WORKED["memory"]
    objective = memory(size=4, lam=0.5, weight=2.0)
    objective(float64(case["memory"]), torch.tensor(case["memory_labels"]))
    batch, labels = float64(case["batch"]), torch.tensor(case["batch_labels"])
    without = em.objective("contrastive_cosine", lam=0.5)(batch, labels)
    term = (objective(batch, labels) - without) / 2.0
    assert term.item() == pytest.approx(case["value"], abs=1e-6)


@pytest.mark.parametrize("sizes", [[3, 3, 3, 3], [2, 5, 1, 4], [9, 2], [4, 7, 8, 1], [7]])
def test_the_ring_holds_the_last_entries(sizes):
    objective, size, stored = memory(size=7), 7, []
    for step, number in enumerate(sizes):
        embeddings = torch.nn.functional.normalize(random(number, 2, seed=step))
        labels = torch.arange(number) + 100 * step
        objective(embeddings, labels)
        stored += list(zip(labels.tolist(), embeddings.tolist(), strict=True))
    references = objective.references
    filled = int(references.filled)
    assert filled == min(size, len(stored))
    held = dict(zip(references.labels[:filled].tolist(), references.embeddings[:filled].tolist(), strict=True))
    assert set(held) == {label for label, _ in stored[-size:]}
    for label, embedding in stored[-size:]:
        assert held[label] == pytest.approx(embedding)


@pytest.mark.parametrize(
    "method", ["multi_similarity", "triplet", "triplet_semihard", "margin", "multi_similarity_miner"]
)
def test_any_loss_adds_its_value_against_the_memory(method):
    objective = memory(method, size=20, weight=0.3)
    past, past_labels = random(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    now, labels = random(5, 2, seed=1).requires_grad_(), torch.tensor([0, 0, 1, 2, 3])
    objective(past, past_labels)
    torch.manual_seed(0)
    value = objective(now, labels)
    value.backward()
    plain = em.objective(method).double()
    other = now.detach().clone().requires_grad_()
    torch.manual_seed(0)
    expected = plain(other, labels) + 0.3 * plain(other, labels, past, past_labels)
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(now.grad, other.grad)


def test_nothing_is_stored_before_the_start_or_in_evaluation_mode():
    objective = memory(size=8, start_iteration=2)
    embeddings = random(4, 2)
    plain = em.objective("contrastive_cosine")(embeddings, IDS)
    assert [objective(embeddings, IDS).item() for _ in range(3)] == pytest.approx([plain.item()] * 3)
    assert objective.references.filled == 4
    objective.eval()
    first = objective(embeddings, IDS)
    assert first > plain
    assert objective(embeddings, IDS) == first
    assert objective.references.iteration == 3


def test_a_memory_survives_a_restart():
    objective = memory(size=5)
    for step in range(3):
        objective(random(3, 2, seed=step), torch.tensor([0, 0, 1]))
    restarted = memory(size=5)
    restarted.load_state_dict(objective.state_dict())
    for step in range(3, 6):
        batch = random(3, 2, seed=step), torch.tensor([0, 1, 1])
        assert restarted(*batch) == objective(*batch)
    assert torch.equal(restarted.references.embeddings, objective.references.embeddings)


def test_a_memory_needs_room():
    for options in ({"size": 0}, {"dim": 0}):
        with pytest.raises(EquimetricError, match="must be a whole number of 1 or more"):
            memory(**options)


def test_the_dimension_of_a_memory_comes_from_the_context():
    objective = build_objective("xbm", {"size": 3}, Context(classes=2, dim=7, images=1))
    assert objective.references.embeddings.shape == (3, 7)


# Prototypes


@pytest.mark.parametrize("case", WORKED["episodes"], ids=lambda case: case["id"])
def test_worked_values_of_episodes(case):
    support, query = float64(case["support"]).requires_grad_(), float64(case["query"]).requires_grad_()
    support_labels, labels = torch.tensor(case["support_labels"]), torch.tensor(case["query_labels"])
    objective = em.objective("prototypical", **case["options"])
    value = objective(query, labels, support, support_labels)
    assert value.item() == pytest.approx(case["value"], abs=1e-6)
    value.backward()
    if "support_gradient" in case:
        torch.testing.assert_close(support.grad, float64(case["support_gradient"]), rtol=0, atol=1e-5)
        torch.testing.assert_close(query.grad, float64(case["query_gradient"]), rtol=0, atol=1e-5)
    batch = torch.cat([support, query]).detach(), torch.cat([support_labels, labels])
    as_batch = em.objective("prototypical", ns=2, **case["options"])
    assert as_batch(*batch).item() == pytest.approx(case["value"], abs=1e-6)


def episode_by_hand(embeddings, labels, support):
    """Mean over queries of −log softmax(−‖q − μ‖²), with each class's first rows as support."""
    means, queries = {}, []
    for label in dict.fromkeys(labels.tolist()):
        rows = [x for x, y in zip(embeddings, labels.tolist(), strict=True) if y == label]
        number = max(1, len(rows) // 2) if support is None else support
        means[label] = sum(rows[:number]) / len(rows[:number])
        queries += [(x, label) for x in rows[number:]]
    terms = []
    for x, label in queries:
        distance = {other: (x - mean).square().sum() for other, mean in means.items()}
        terms.append(distance[label] + torch.stack([(-d).exp() for d in distance.values()]).sum().log())
    return sum(terms) / len(terms)


@pytest.mark.parametrize("support", [None, 1, 2, 3])
def test_the_first_rows_of_a_class_are_its_support(support):
    labels = torch.tensor([5, 2, 5, 9, 2, 5, -1, 5, 9, 2])
    embeddings = random(10, 3).requires_grad_()
    value = em.objective("prototypical", ns=support)(embeddings, labels)
    value.backward()
    other = embeddings.detach().clone().requires_grad_()
    expected = episode_by_hand(other, labels, support)
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(embeddings.grad, other.grad)


def test_several_episodes_give_the_mean_of_their_losses():
    embeddings, labels = random(24, 3), torch.tensor([0, 1, 2]).repeat(8)
    value = em.objective("prototypical", ns=2, episodes=2)(embeddings, labels)
    each = [episode_by_hand(embeddings[rows], labels[rows], 2) for rows in (slice(12), slice(12, 24))]
    torch.testing.assert_close(value, (each[0] + each[1]) / 2)
    with pytest.raises(EquimetricError, match="5 equal episodes"):
        em.objective("prototypical", episodes=5)(embeddings, labels)


def test_episodes_of_unequal_size_have_equal_weight():
    """Five queries in one episode and two in the other: the mean of the two losses, not over the seven queries."""
    embeddings, labels = random(14, 3), torch.tensor([0, 0, 0, 0, 1, 1, 1, 0, 1, 1, 0, 2, 3, 4])
    objective = em.objective("prototypical", ns=1, episodes=2)
    each = [episode_by_hand(embeddings[rows], labels[rows], 1) for rows in (slice(0, 7), slice(7, 14))]
    torch.testing.assert_close(objective(embeddings, labels), (each[0] + each[1]) / 2)
    by_query = em.objective("prototypical", ns=1, episodes=2, reduction="none")(embeddings, labels)
    assert by_query.shape == (7,)
    torch.testing.assert_close((by_query[:5].mean() + by_query[5:].mean()) / 2, (each[0] + each[1]) / 2)


def test_episodes_can_be_required_to_have_a_size():
    embeddings, labels = random(12, 3), torch.arange(2).repeat_interleave(3).repeat(2)
    em.objective("prototypical", nc=2, ns=2, nq=1, episodes=2)(embeddings, labels)
    with pytest.raises(EquimetricError, match=r"must have nc=3 classes, this batch has \[2, 2\]"):
        em.objective("prototypical", nc=3, episodes=2)(embeddings, labels)
    with pytest.raises(EquimetricError, match=r"ns=1 support rows and nq=1 queries, but .* have \[3\] rows"):
        em.objective("prototypical", ns=1, nq=1, episodes=2)(embeddings, labels)


def test_invalid_prototype_options_are_errors():
    for options in ({"ns": 0}, {"nq": 0}, {"nc": 0}, {"episodes": 0}):
        with pytest.raises(EquimetricError, match="must be a whole number of 1 or more"):
            em.objective("prototypical", **options)
    objective = em.objective("prototypical")
    with pytest.raises(EquimetricError, match="both reference_embeddings and reference_labels"):
        objective(random(4, 2), IDS, random(4, 2))
    with pytest.raises(EquimetricError, match="leave self_mask out"):
        objective(random(4, 2), IDS, random(4, 2), IDS, self_mask=YES)
