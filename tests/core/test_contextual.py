"""The contextual family: worked values, and the facts that tell each method from its look-alikes."""

import json
import math
from pathlib import Path

import pytest
import torch
from rounding import assert_same_digits
from torch import nn
from torch.nn.functional import cross_entropy, layer_norm, leaky_relu, normalize

import equimetric as em
from equimetric.backbones import EmbeddingNetwork
from equimetric.errors import EquimetricError
from equimetric.learners.single import SingleObjectiveLearner
from equimetric.losses.group import correlations, draw_anchors
from equimetric.losses.hist import propagate
from equimetric.losses.intra_batch import MessageLayer

WORKED = json.loads((Path(__file__).parents[1] / "worked_values" / "contextual.json").read_text())
LABELS = torch.arange(8).repeat_interleave(4)


def float64(values):
    return torch.tensor(values, dtype=torch.float64)


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def close(found, expected):
    assert_same_digits(found.detach(), float64(expected))


# Group Loss: shares of classes in samples, after the replicator dynamics.


def assign(embeddings, logits, labels, anchors, temperature=24.0, iterations=1, weight=None):
    loss = em.objective("group", classes=4, dim=4, temperature=temperature, iterations=iterations).double().loss
    return loss.assign(embeddings, logits, labels, anchors, weight)


def worked_group(name="group_T24_steps1"):
    case = WORKED[name]
    inputs = [float64(case[key]).requires_grad_() for key in ("embeddings", "logits")]
    return case, *inputs, torch.tensor(case["labels"]), torch.tensor(case["anchors"])


def group_value(shares, labels):
    return -(shares.gather(1, labels[:, None]) + 1e-12).log().mean()


@pytest.mark.parametrize(("temperature", "iterations"), [(24, 1), (2, 3)])
def test_worked_group_loss(temperature, iterations):
    case, embeddings, logits, labels, anchors = worked_group(f"group_T{temperature}_steps{iterations}")
    shares = assign(embeddings, logits, labels, anchors, temperature, iterations)
    close(shares, case["assignment"])
    value = group_value(shares, labels)
    close(value, case["group"])
    value.backward()
    close(embeddings.grad, case["grad_embeddings"])
    close(logits.grad, case["grad_logits"])
    close(cross_entropy(logits, labels), case["cross_entropy"])


def test_the_group_loss_is_that_of_shares_and_of_the_classifier():
    embeddings, labels = random(9, 4), torch.arange(9) % 4
    objective = em.objective(
        "group", classes=4, dim=4, anchors=1, weight_ce=0.5, generator=torch.Generator().manual_seed(3)
    ).double()
    anchors = draw_anchors(labels, 1, generator=torch.Generator().manual_seed(3))
    logits = objective.loss.classifier(embeddings)
    expected = group_value(assign(embeddings, logits, labels, anchors), labels) + 0.5 * cross_entropy(logits, labels)
    torch.testing.assert_close(objective(embeddings, labels), expected)


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_anchors_stay_what_they_are_and_rows_sum_to_one(iterations):
    _, embeddings, logits, labels, anchors = worked_group()
    shares = assign(embeddings, logits, labels, anchors, iterations=iterations)
    torch.testing.assert_close(shares.sum(1), torch.ones(6, dtype=torch.float64))
    assert torch.equal(shares[anchors], nn.functional.one_hot(labels, 4).double()[anchors])
    # The mean counts anchors among the samples: (1 − |a|/B) times the mean of the others.
    others = -(shares[~anchors].gather(1, labels[~anchors, None]) + 1e-12).log().mean()
    torch.testing.assert_close(group_value(shares, labels), (1 - 3 / 6) * others)
    alone = assign(embeddings, logits, labels, torch.ones_like(anchors), iterations=iterations)
    assert group_value(alone, labels).item() == pytest.approx(0, abs=1e-11)


def test_group_shares_are_invariant():
    _, embeddings, logits, labels, anchors = worked_group()
    shares = assign(embeddings, logits, labels, anchors)
    scaled = embeddings * torch.linspace(0.1, 9, 6, dtype=torch.float64)[:, None] + random(6, 1)
    torch.testing.assert_close(assign(scaled, logits, labels, anchors), shares)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    permuted = assign(embeddings[order], logits[order], labels[order], anchors[order])
    torch.testing.assert_close(permuted, shares[order])
    classes = torch.tensor([2, 0, 3, 1])
    renamed = assign(embeddings, logits[:, classes], classes.argsort()[labels], anchors)
    torch.testing.assert_close(renamed, shares[:, classes])


def test_similarities_of_the_group_loss_are_correlations_with_ones_on_the_diagonal():
    vectors = random(5, 7)
    torch.testing.assert_close(correlations(vectors), torch.corrcoef(vectors).clamp_min(0))
    for dtype in (torch.float32, torch.float64):
        vectors = random(4, 6).to(dtype)
        vectors[1], vectors[2] = 0.1, 0.0
        vectors.requires_grad_()
        found = correlations(vectors)
        assert torch.equal(found[1:3], torch.eye(4, dtype=dtype)[1:3]), "a constant vector resembles itself alone"
        found.square().sum().backward()
        assert vectors.grad.isfinite().all()


def test_a_sample_of_weight_two_supports_twice():
    _, embeddings, logits, labels, anchors = worked_group()
    weight = float64([2, 1, 3, 1, 0, 2])
    rows = torch.arange(6).repeat_interleave(weight.long())
    repeated = assign(embeddings[rows], logits[rows], labels[rows], anchors[rows], iterations=3)
    weighted = assign(embeddings, logits, labels, anchors, iterations=3, weight=weight)
    torch.testing.assert_close(weighted[rows], repeated)


def test_the_temperature_divides_the_logits():
    """A lead of 8 logits at temperature 24 among 5 classes is next to nothing."""
    logits = float64([[8.0, 0, 0, 0, 0]])
    loss = em.objective("group", classes=5, dim=4).double().loss
    shares = loss.assign(random(1, 4), logits, torch.tensor([1]), torch.tensor([False]))
    prior = (logits / 24).softmax(1)
    assert prior[0, 0].item() == pytest.approx(0.2587, abs=1e-3)
    torch.testing.assert_close(shares, prior.square() / prior.square().sum())


def test_anchors_are_drawn_evenly_among_the_samples_of_a_class():
    labels = torch.tensor([5, 7, 5, 5, 7, 9, 5])
    torch.manual_seed(0)
    drawn = torch.stack([draw_anchors(labels, 2) for _ in range(3000)]).double()
    assert (drawn[:, labels == 5].sum(1) == 2).all()
    assert (drawn[:, labels != 5] == 1).all(), "a class of two or fewer is all anchors"
    torch.testing.assert_close(
        drawn[:, labels == 5].mean(0), torch.full((4,), 0.5, dtype=torch.float64), atol=0.04, rtol=0
    )
    absent = draw_anchors(labels, 2, float64([1, 0, 0, 1, 1, 1, 0]))
    assert absent.tolist() == [True, False, False, True, True, True, False]


# Intra-Batch Connections: rounds of messages.


def worked_layer():
    """Parameter j (weight, bias) of layer i is 0.6 sin(n (1.3 + 0.7i + 0.2j) + i), n its entries; norms about 1."""
    layer = MessageLayer(4, 2, 16, 0.1).double().eval()
    parts = (layer.query, layer.key, layer.value, layer.out, layer.widen, layer.narrow, layer.norm_messages, layer.norm)
    for i, part in enumerate(parts):
        for j, parameter in enumerate((part.weight, part.bias)):
            entries = torch.arange(parameter.numel(), dtype=torch.float64)
            values = 0.6 * torch.sin(entries * (1.3 + 0.7 * i + 0.2 * j) + i)
            parameter.data = values.view_as(parameter) + (1 if isinstance(part, nn.LayerNorm) and j == 0 else 0)
    return layer


def test_worked_messages():
    case = WORKED["attention_layer"]
    vectors = float64(case["x"]).requires_grad_()
    out = worked_layer()(vectors)
    close(out, case["out"])
    out.pow(3).sum().backward()
    close(vectors.grad, case["grad_of_sum_of_cubes"])


def test_messages_follow_the_order_of_the_batch():
    vectors, order = random(6, 4), torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(worked_layer()(vectors[order]), worked_layer()(vectors)[order])


def test_without_messages_a_layer_normalises_twice():
    layer, vectors = worked_layer(), random(6, 4)
    for part in (layer.value, layer.out, layer.narrow):
        part.weight.data.zero_()
        part.bias.data.zero_()
    first = layer_norm(vectors, [4], layer.norm_messages.weight, layer.norm_messages.bias)
    torch.testing.assert_close(layer(vectors), layer_norm(first, [4], layer.norm.weight, layer.norm.bias))


def test_nobody_listens_to_a_sample_of_lowest_score():
    layer, vectors = worked_layer(), random(5, 4)
    layer.query.weight.data.zero_()
    layer.query.bias.data.fill_(1.0)
    layer.key.weight.data = torch.eye(4, dtype=torch.float64)
    # Every query is (1, 1, 1, 1), so a sample's score is the sum of its coordinates.
    silent = torch.full((1, 4), -1e4, dtype=torch.float64)
    torch.testing.assert_close(layer(torch.cat([vectors, silent]))[:5], layer(vectors))


def test_one_part_of_the_attention_is_silent():
    layer, vectors = worked_layer(), random(5, 4)
    for part in (layer.query, layer.key):
        part.weight.data.zero_()
        part.bias.data.zero_()
    received = layer.messages(vectors, None)
    torch.testing.assert_close(received, layer.out(layer.value(vectors).sum(0) / 6).expand(5, -1))


@pytest.mark.parametrize("concat", [False, True])
def test_intra_batch_connections_classify_before_and_after_the_messages(concat):
    objective = em.objective("intra_batch", classes=8, dim=6, layers=2, heads=3, concat=concat).double().eval()
    loss, embeddings = objective.loss, random(len(LABELS), 6).requires_grad_()
    hidden = loss.start(normalize(embeddings))
    every = [loss.layers[0](hidden)]
    every.append(loss.layers[1](every[0]))
    norm = nn.BatchNorm1d(12 if concat else 6).double()
    norm.weight.data = loss.norm.weight.data
    refined = loss.second(norm(torch.cat(every, 1) if concat else every[1]))
    terms = [
        cross_entropy(logits / 0.2, LABELS, label_smoothing=0.1) for logits in (loss.classifier(embeddings), refined)
    ]
    value = objective(embeddings, LABELS)
    torch.testing.assert_close(value, sum(terms))
    torch.testing.assert_close(*(torch.autograd.grad(one, embeddings)[0] for one in (value, sum(terms))))


def test_intra_batch_connections_start_as_published():
    loss = em.objective("intra_batch", classes=100, dim=64).loss
    layer = loss.layers[0]
    for part in (layer.query, layer.key, layer.value, layer.out, layer.widen, layer.narrow):
        bound = math.sqrt(6 / sum(part.weight.shape))
        assert 0.9 * bound < part.weight.abs().max() <= bound
        assert not part.bias.any()
    assert loss.second.weight.std().item() == pytest.approx(0.001, rel=0.05)
    assert loss.norm.bias is None
    with pytest.raises(EquimetricError, match="3 do not divide dim=64"):
        em.objective("intra_batch", classes=4, dim=64, heads=3)


def test_messages_drop_out_in_training_alone():
    objective, embeddings = em.objective("intra_batch", classes=8, dim=6).double(), random(len(LABELS), 6)
    first, second = (objective(embeddings, LABELS) for _ in range(2))
    assert first != second
    assert objective.eval()(embeddings, LABELS) == objective(embeddings, LABELS)


@pytest.mark.parametrize("method", ["group", "intra_batch", "hist"])
def test_what_a_batch_exchanges_is_trained_and_saved_but_takes_no_part_in_embeddings(method):
    dim, classes = 8, 5
    learner = SingleObjectiveLearner(
        EmbeddingNetwork(None, nn.Linear(3, dim)), em.objective(method, classes=classes, dim=dim)
    ).double()
    counted = sum(parameter.numel() for parameter in learner.objective.parameters())
    layer = 12 * dim**2 + 13 * dim
    assert (
        counted
        == {
            "group": (dim + 1) * classes,
            "intra_batch": (dim + 1) * classes + (dim + 1) * dim + layer + dim + dim * classes,
            "hist": 2 * classes * dim + (dim + 1) * 512 + 2 * 512 + 513 * classes,
        }[method]
    )
    assert sum(name.startswith("objective.") for name in learner.state_dict()) == len(
        list(learner.objective.parameters())
    )
    images = random(4, 3)
    before = learner.embed(images)
    with torch.no_grad():
        for parameter in learner.objective.parameters():
            parameter.fill_(torch.nan)
    assert torch.equal(learner.embed(images), before)


# Contextual similarity: neighbourhoods.

RECIPE = {
    "contrastive_cosine.pos_offset": 0.75,
    "contrastive_cosine.lam": 0.6,
    "contrastive_cosine.reduction": "nonzero",
    "mean_similarity.target": 0.25,
}


def test_worked_contextual_similarity():
    case = WORKED["contextual"]
    embeddings, labels = float64(case["embeddings"]).requires_grad_(), torch.tensor(case["labels"])
    together = em.objective("0.4*contextual + 0.5*contrastive_cosine + 0.1*mean_similarity", **RECIPE)
    assert together.objectives[0].loss.options == {
        "k": case["k"], "epsilon": case["epsilon"], "slope": case["slope"], "keep_signs": False
    }  # fmt: skip
    terms = together.terms(embeddings, labels)
    close(terms["contextual"] / 0.4, case["context"])
    close(terms["contrastive_cosine"] / 0.5, case["contrastive"])
    close(terms["mean_similarity"] / 0.1, case["regulariser"])
    total = together(embeddings, labels)
    close(total, case["total"])
    close(torch.autograd.grad(total, embeddings)[0], case["grad_total"])
    value = em.objective("contextual")(embeddings, labels)
    close(torch.autograd.grad(value, embeddings)[0], case["grad_context"])


def contextual_by_loops(similarity, labels, k, epsilon):
    """Similarities of neighbourhoods, and the loss, from the definition."""
    number = len(labels)
    distance = (2 - 2 * similarity).clamp_min(0)

    def members(n):
        radius = distance.sort(1).values[:, n - 1] + epsilon
        return [{j for j in range(number) if distance[i, j] <= radius[i]} for i in range(number)]

    near, nearer, everyone = members(k), members(k // 2), set(range(number))
    linked = torch.zeros(number, number, dtype=torch.float64)
    for i in range(number):
        for j in near[i]:
            both = len(near[i] & near[j]) / len(near[i])
            outside = everyone - near[i]
            neither = len(outside - near[j]) / len(outside) if outside else 0.0
            linked[i, j] = (both + neither) / 2
    mutual = [[j for j in nearer[i] if i in nearer[j]] for i in range(number)]
    expanded = torch.stack([linked[rows].mean(0) for rows in mutual])
    similar = (expanded + expanded.T) / 2
    same = labels[:, None] == labels
    terms = torch.where(same, (1 - similar).square(), similar.square())
    return similar, terms.fill_diagonal_(0).sum() / number**2


@pytest.mark.parametrize(("k", "epsilon"), [(4, 0.05), (5, 0.0), (2, 0.3), (31, 0.05)])
def test_contextual_similarity_is_its_definition(k, epsilon):
    embeddings = random(len(LABELS), 6, seed=k)
    units = normalize(embeddings)
    similar, expected = contextual_by_loops(units @ units.T, LABELS, k, epsilon)
    assert ((similar >= 0) & (similar <= 1)).all()
    torch.testing.assert_close(em.objective("contextual", k=k, epsilon=epsilon)(embeddings, LABELS), expected)


def test_worked_similarity_of_neighbourhoods():
    case = WORKED["contextual"]
    units = normalize(float64(case["embeddings"]))
    similar, value = contextual_by_loops(units @ units.T, torch.tensor(case["labels"]), 4, 0.05)
    close(similar[0], case["similarity_row0"])
    close(value, case["context"])


def test_a_perfect_batch_has_only_the_penalty_of_its_mean():
    embeddings = torch.eye(8, dtype=torch.float64)[LABELS]
    terms = em.objective("contextual+contrastive_cosine+mean_similarity", **RECIPE).terms(embeddings, LABELS)
    assert terms["contextual"].item() == pytest.approx(0, abs=1e-12)
    assert terms["contrastive_cosine"].item() == 0
    assert terms["mean_similarity"].item() == pytest.approx((1 / 8 - 1 / 4) ** 2)


def test_a_collapsed_batch_is_finite_and_a_batch_of_one_neighbourhood_an_error():
    embeddings = torch.ones(8, 3, dtype=torch.float64, requires_grad=True)
    value = em.objective("contextual")(embeddings, LABELS[:8])
    value.backward()
    # All are neighbours of all, and nobody is outside: w = 1/2.
    assert value.item() == pytest.approx((64 - 8) / 4 / 64)
    assert embeddings.grad.isfinite().all()
    with pytest.raises(EquimetricError, match=r"more than 4, got 4; enlarge the batch or lower k"):
        em.objective("contextual")(random(4, 3), LABELS[:4])
    with pytest.raises(EquimetricError, match="k must be a whole number of 2 or more"):
        em.objective("contextual", k=1)


def test_contextual_similarity_moves_pairs_the_wrong_way_unless_signs_are_kept():
    pairs = em.objective("contextual").pairs(random(len(LABELS), 6), LABELS)

    def gradient(**options):
        similarity = pairs.similarity.clone().requires_grad_()
        value = em.objective("contextual", **options).value(pairs.replace(similarity=similarity))
        return value.detach(), torch.autograd.grad(value, similarity)[0]

    value, free = gradient()
    assert (free[pairs.positive] > 1e-9).any()
    assert (free[pairs.negative] < -1e-9).any()
    same, kept = gradient(keep_signs=True)
    assert same == value
    right = torch.where(pairs.positive, free.clamp_max(0), torch.where(pairs.negative, free.clamp_min(0), 0))
    torch.testing.assert_close(kept, right)


# HIST: class distributions and their hypergraph.


def worked_hist():
    case = WORKED["hist"]
    loss = em.objective("hist", classes=4, dim=4, tau=case["tau"], alpha=case["alpha"], hidden=5).double().loss
    loss.means.data, loss.log_variances.data = float64(case["means"]), float64(case["log_variances"])
    return case, loss, float64(case["embeddings"]).requires_grad_(), torch.tensor(case["labels"])


def test_worked_hist():
    case, loss, embeddings, labels = worked_hist()
    distance = loss.distance(embeddings)
    first = loss.classify(-loss.tau * distance, labels)
    close(first, case["distribution_loss"])
    incidence = loss.incidence(distance, labels)
    close(incidence, case["H"])
    propagated = propagate(torch.eye(5, dtype=torch.float64), incidence)
    close(propagated, case["G"])
    (first + propagated.square().sum()).backward()
    close(embeddings.grad, case["grad_of_distribution_loss_plus_sum_G_squared"])


def test_hist_is_its_definition():
    _, loss, embeddings, labels = worked_hist()
    units, means = normalize(embeddings), normalize(loss.means)
    variance = loss.log_variances.clamp(0, 6).exp()
    distance = ((units[:, None] - means).square() / variance).sum(2)
    torch.testing.assert_close(loss.distance(embeddings), distance)
    classes = labels.unique()
    incidence = torch.where(labels[:, None] == classes, 1.0, (-loss.alpha * distance[:, classes]).exp())
    scale = torch.diag(incidence.sum(1).rsqrt())
    graph = scale @ incidence @ torch.diag(1 / incidence.sum(0)) @ incidence.T @ scale
    norm = nn.BatchNorm1d(5).double()
    hidden = leaky_relu(norm(graph @ loss.first(embeddings)), 0.1)
    logits = graph @ loss.second(hidden)
    objective = em.objective("hist", classes=4, dim=4, alpha=loss.alpha, lam=0.7, hidden=5).double()
    objective.loss.load_state_dict(loss.state_dict())
    expected = cross_entropy(-32 * distance, labels) + 0.7 * cross_entropy(logits, labels)
    torch.testing.assert_close(objective(embeddings, labels), expected)


def test_the_hardest_samples_of_hist_count_although_their_share_underflows():
    _, loss, embeddings, labels = worked_hist()
    loss.tau = 1e6
    assert (-loss.tau * loss.distance(embeddings)).softmax(1).gather(1, labels[:, None]).min() == 0
    assert em.objective("hist", classes=4, dim=4, tau=1e6).double()(embeddings, labels) > 1e4


def test_the_means_of_hist_are_proxies_of_the_classes():
    objective = em.objective("hist + 0.1*regular_face", classes=4, dim=4).double()
    value = objective.terms(random(6, 4), torch.arange(6) % 4)["regular_face"]
    means = normalize(objective.objectives[0].loss.means)
    torch.testing.assert_close(value, 0.1 * (means @ means.T - 2 * torch.eye(4)).max(1).values.mean())


@pytest.mark.parametrize("method", ["group", "intra_batch", "hist"])
def test_contextual_losses_refuse_what_they_do_not_know(method):
    objective = em.objective(method, classes=3, dim=4).double()
    with pytest.raises(EquimetricError, match="class ids 0 … 2 for classes=3, got 0 … 3"):
        objective(random(4, 4), torch.arange(4))
    with pytest.raises(EquimetricError, match=rf"dimension 5, but {method} was made for 4"):
        objective(random(4, 5), torch.arange(4) % 3)
    with pytest.raises(EquimetricError, match="reads the embeddings themselves"):
        em.pair_weights(objective, random(4, 4), torch.arange(4) % 3)
    with pytest.raises(EquimetricError, match="give no reference_embeddings"):
        objective(random(4, 4), torch.arange(4) % 3, random(5, 4), torch.arange(5) % 3)
