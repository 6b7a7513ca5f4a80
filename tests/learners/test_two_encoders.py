"""Two encoders: the loss of both directions, what is positive, views, one modality alone, search across modalities."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from making import IMAGES, batch_for, configuration, make, make_batch
from rounding import assert_same_digits
from torch.nn.functional import cross_entropy, logsigmoid, normalize

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.learners import Batch
from equimetric.processes import SINGLE
from equimetric.runs.result import DataShape
from equimetric.training import train
from equimetric.training.distributed import Trainable
from equimetric.training.gradients import backward
from equimetric.training.placement import Placement

NAME = "two_encoders"
PAIRS = DataShape(channels=10, vectors=True, classes=3, images=24, modalities={"image": 6, "text": 4})
CPU = Placement(torch.device("cpu"), "float64")


def encoders(method="sigmoid", shape=PAIRS, positives="item", **tables):
    return make(NAME, shape, method=method, learner={"options": {"positives": positives}}, **tables)


def vectors():
    generator = torch.Generator().manual_seed(5)
    rows = torch.randn(24, 10, generator=generator, dtype=torch.float64)
    return Batch(rows, torch.arange(24) % 3, torch.arange(24))


def unit_outputs(learner, batch):
    outputs = learner.outputs(batch)
    return [normalize(outputs[name], dim=1) for name in ("image", "text")]


def total(learner, batch):
    return sum(learner.losses(learner.outputs(batch), batch).values())


def compare_gradients(learner, value, expected):
    parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    assert_same_digits(value, expected)
    pairs = [torch.autograd.grad(one, parameters, retain_graph=True) for one in (value, expected)]
    for one, other in zip(*pairs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", ["sigmoid", "ntxent", "contrastive", "triplet", "sigmoid+0.5*ntxent"])
def test_the_loss_is_the_mean_of_both_directions(method):
    learner, batch = encoders(method, positives="class"), vectors()
    terms = learner.losses(learner.outputs(batch), batch)
    image, text = learner.outputs(batch).values()
    there, back = (
        learner.objective(one, batch.labels, other, batch.labels) for one, other in ((image, text), (text, image))
    )
    torch.testing.assert_close(sum(terms.values()), (there + back) / 2)
    assert {name.rsplit(" ", 1)[0] for name in terms} == {"image to text", "text to image"}


def test_the_sigmoid_loss_is_that_of_siglip():
    learner, batch = encoders("sigmoid", options={"initial_scale": 4.0, "initial_bias": -2.0}), vectors()
    image, text = unit_outputs(learner, batch)
    loss = learner.objective.loss
    logits = loss.log_scale.exp() * image @ text.T + loss.bias
    signs = 2 * torch.eye(24, dtype=torch.float64) - 1
    compare_gradients(learner, total(learner, batch), -logsigmoid(signs * logits).sum() / 24)


def test_the_contrastive_loss_is_that_of_clip():
    learner, batch = encoders("ntxent", options={"temperature": 0.2}), vectors()
    image, text = unit_outputs(learner, batch)
    logits, own = image @ text.T / 0.2, torch.arange(24)
    compare_gradients(learner, total(learner, batch), (cross_entropy(logits, own) + cross_entropy(logits.T, own)) / 2)


def test_positives_are_the_item_or_the_class():
    batch = vectors()
    assert torch.equal(encoders().labels(batch), batch.index)
    assert torch.equal(encoders(positives="class").labels(batch), batch.labels)
    several = encoders(shape=PAIRS.model_copy(update={"attributes": {"item": 8}}))
    several.on_epoch(SimpleNamespace(attributes={"item": torch.arange(24) // 3}))
    assert several.labels(batch).tolist() == [row // 3 for row in range(24)]
    with pytest.raises(EquimetricError, match="positives must be 'item' or 'class', got 'pair'"):
        encoders(positives="pair")


def test_weights_are_multiplicities_on_both_sides():
    learner, batch = encoders("sigmoid"), vectors()
    weights = torch.ones(24, dtype=torch.float64)
    weights[20:] = 0
    weighted = replace(batch, weight=weights)
    torch.testing.assert_close(total(learner, weighted), total(learner, batch.rows(slice(0, 20))))


def test_the_embedding_is_the_mean_of_both_and_members_are_each_alone():
    learner, batch = encoders().eval(), vectors()
    outputs = learner.outputs(batch)
    image, text = unit_outputs(learner, batch)
    torch.testing.assert_close(learner.embedding(outputs), normalize(image + text, dim=1))
    assert list(learner.members(outputs)) == ["image", "text"]
    torch.testing.assert_close(learner.encode("text", batch.images[:, 6:]), text)
    torch.testing.assert_close(learner.encode("image", batch.images[:, :6]), image)
    with pytest.raises(EquimetricError, match="unknown modality 'txt'; did you mean 'text'"):
        learner.encode("txt", batch.images[:, 6:])
    with pytest.raises(EquimetricError, match="'text' has vectors of 4 dimensions, not an array of"):
        learner.encode("text", batch.images)
    with pytest.raises(EquimetricError, match="has no modalities"):
        make("single", PAIRS).encode("text", batch.images)


def test_a_batch_of_pairs_part_by_part_has_the_gradient_of_the_whole():
    gradients = []
    for at_once in (None, 7):
        learner = encoders().train()
        backward(Trainable(learner), vectors(), CPU, SINGLE, at_once=at_once)
        gradients.append({key: parameter.grad for key, parameter in learner.named_parameters()})
    assert_same_digits(gradients[0], gradients[1])


def test_images_have_two_views_in_training_and_one_in_evaluation():
    learner = make(NAME).eval()
    assert (learner.views, learner.forward_passes) == (2, 2)
    batch = batch_for(learner)
    first, second = learner.networks
    outputs = learner.outputs(batch)
    torch.testing.assert_close(outputs["first"], first(batch.images))
    torch.testing.assert_close(outputs["second"], second(batch.views[0]))
    alone = learner.outputs(Batch.unlabelled(batch.images))
    torch.testing.assert_close(alone["second"], second(batch.images))


def test_on_a_frozen_backbone_encoders_are_heads_on_its_features():
    learner = make(NAME, IMAGES, model={"frozen": True, "head_init": "random"}).eval()
    assert (learner.views, learner.forward_passes) == (1, 1)
    assert learner.frozen_backbone() is learner.networks[0].backbone
    images = make_batch().images
    features = learner.features(images)
    torch.testing.assert_close(learner.embed(images), learner.embed(features))
    torch.testing.assert_close(learner.encode("second", images), learner.encode("second", features))
    assert not torch.allclose(learner.encode("first", images), learner.encode("second", images))


@pytest.mark.parametrize(("method", "options"), [("arcface", {}), ("contrastive", {"references": "memory", "dim": 8})])
def test_objectives_with_references_of_their_own_are_refused(method, options):
    with pytest.raises(EquimetricError, match=f"{method!r} compares with references of its own; choose a method"):
        encoders(method, options=options)


@pytest.fixture
def pairs_file(tmp_path):
    """Digits, even and odd columns as two modalities; every item has two texts, and one image for both."""

    def write(texts=1):
        digits = em.load_dataset("digits")
        pixels, labels = digits.images[:, 0].float().numpy() / 255, digits.labels.numpy()
        kept = np.concatenate([np.flatnonzero(labels == label)[:12] for label in range(10)]).repeat(texts)
        noise = np.random.default_rng(0).normal(0, 0.1, (len(kept), 32))
        np.savez(
            tmp_path / "pairs.npz",
            image=pixels[kept][:, :, ::2].reshape(len(kept), -1),
            text=pixels[kept][:, :, 1::2].reshape(len(kept), -1) + noise,
            labels=labels[kept],
            **({"item": kept} if texts > 1 else {}),
        )
        return str(tmp_path / "pairs.npz")

    return write


def paired(file, **tables):
    pair = {"data": {"name": "pairs", "options": {"file": file}, "transform": "none"}, "method": "ntxent"}
    return configuration(NAME, **{**pair, "optimizer": {"lr": 0.1}, **tables})


def brute_force(queries, labels, gallery, gallery_labels):
    """Recall@1, recall@5, MAP@R and the median rank, by loops over sorted lists."""
    recall1, recall5, precision, ranks = [], [], [], []
    for query, label in zip(queries, labels, strict=True):
        order = sorted(range(len(gallery)), key=lambda item, query=query: (-float(query @ gallery[item]), item))
        hits = [gallery_labels[item] == label for item in order]
        ranks.append(hits.index(True) + 1)
        recall1.append(ranks[-1] <= 1)
        recall5.append(ranks[-1] <= 5)
        found = sum(hits)
        precision.append(sum(sum(hits[: r + 1]) / (r + 1) for r in range(found) if hits[r]) / found)
    means = {name: np.mean(values) for name, values in (("recall@1", recall1), ("recall@5", recall5))}
    return {**means, "map@r": np.mean(precision), "median_rank": np.median(ranks)}


@pytest.mark.parametrize("texts", [1, 2])
def test_results_report_both_directions_by_item_and_by_class(pairs_file, tmp_path, texts):
    file = pairs_file(texts)
    trained = train(paired(file), folder=tmp_path / "run")
    data = em.load_dataset("pairs", file=file)
    rows = torch.isin(data.labels, torch.arange(5, 10)).nonzero().flatten()
    items = data.sample_attributes["item"] if texts > 1 else list(range(len(data)))
    sides = {}
    for name, part, chosen in (("image", slice(0, 32), rows[::texts]), ("text", slice(32, 64), rows)):
        embedded = trained.embed(data.images[chosen, part], modality=name)
        sides[name] = embedded, {"item": [items[row] for row in chosen], "class": data.labels[chosen].tolist()}
    found = {(one.query, one.relevant): one for one in trained.result.cross_modal}
    assert len(found) == 4
    for (name, relevant), one in found.items():
        queries, labels = sides[name]
        gallery, gallery_labels = sides[one.gallery]
        assert one.gallery != name
        assert (one.queries, one.items) == (len(queries), len(gallery))
        expected = brute_force(queries, labels[relevant], gallery, gallery_labels[relevant])
        assert {metric: one.metrics[metric] for metric in expected} == pytest.approx(expected)


def test_across_modalities_is_what_selects_and_what_evaluate_prints(pairs_file, tmp_path, equimetric):
    across = {"across": "item", "metrics": ["recall@1", "recall@5"], "selected_by": "mrr"}
    config = paired(pairs_file(), evaluation=across, training={"steps": 30, "validate_every": 10})
    trained = train(config, folder=tmp_path / "run")
    by_item = [one.metrics for one in trained.result.cross_modal if one.relevant == "item"]
    for name in ("recall@1", "recall@5"):
        assert trained.metrics[name] == pytest.approx(sum(one[name] for one in by_item) / 2)
    assert [member.name for member in trained.result.members] == ["image", "text", "both"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    values = [line["mrr"] for line in lines if line["kind"] == "validation"]
    assert max(values) > 1.3 * values[0], "the validation items are found better than at the start"
    assert trained.validation["mrr"] == max(values)
    stored = np.load(tmp_path / "run" / "per_query.npz")
    assert set(stored["labels"]) == set(range(5, 10)), "classes of the data, not numbers of items"
    code, out, _ = equimetric("evaluate", tmp_path / "run", "--json")
    assert code == 0
    assert {name: json.loads(out)[name] for name in trained.metrics} == pytest.approx(dict(trained.metrics))
    code, _, err = equimetric("calibrate", tmp_path / "run")
    assert code == 2
    assert "has a separate gallery" in err


def test_across_needs_two_encoders_and_metrics_of_rankings(tmp_path):
    config = configuration("single", evaluation={"across": "item"})
    with pytest.raises(EquimetricError, match="needs the learner 'two_encoders'; leave it out"):
        train(config, folder=tmp_path)
    with pytest.raises(EquimetricError, match="leave parents and cohort out"):
        train(configuration(NAME, evaluation={"across": "item", "cohort": {}}), folder=tmp_path)
    with pytest.raises(EquimetricError, match="'uniformity' describes the whole space"):
        train(configuration(NAME, evaluation={"across": "class", "metrics": ["uniformity"]}), folder=tmp_path)


def test_a_killed_run_of_items_with_several_texts_resumes_to_the_same_bits(pairs_file, tmp_path):
    config = paired(pairs_file(2), training={"log_every": 1})

    class KilledError(Exception):
        pass

    def kill(step, figures):
        if step == 5:
            raise KilledError

    train(config, folder=tmp_path / "undisturbed")
    with pytest.raises(KilledError):
        train(config, folder=tmp_path / "killed", progress=kill)
    resumed = train(config, folder=tmp_path / "killed")
    one, other = ((tmp_path / run / "metrics.jsonl").read_text().splitlines() for run in ("killed", "undisturbed"))
    for line, expected in zip(one, other, strict=True):
        assert {**json.loads(line), "seconds": 0} == {**json.loads(expected), "seconds": 0}
    assert resumed.result.cross_modal == em.load(tmp_path / "undisturbed").result.cross_modal


def test_heads_start_at_the_principal_components_of_their_modality(pairs_file, tmp_path):
    config = paired(pairs_file(), model={"dim": 4, "head_init": "pca"}, training={"steps": 1, "validate_every": 1})
    trained = train(
        {**config, "optimizer": {"name": "sgd", "lr": 1e-12, "schedule": "constant"}}, folder=tmp_path / "r"
    )
    data = em.load_dataset("pairs", file=config["data"]["options"]["file"])
    train_rows = data.images[data.labels < 3].double()
    for network, part in zip(trained.learner.networks, (slice(0, 32), slice(32, 64)), strict=True):
        rows = train_rows[:, part] - train_rows[:, part].mean(0)
        directions = torch.linalg.svd(rows, full_matrices=False).Vh[:4]
        overlap = (normalize(network.head.weight.detach(), dim=1) @ directions.T).abs()
        torch.testing.assert_close(overlap, torch.eye(4, dtype=torch.float64), rtol=0, atol=1e-5)
