"""Objectives and metrics inside the loops of other libraries."""

import copy
import os
import pickle
import subprocess
import sys

import pytest
import torch
from rounding import assert_same_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import equimetric as em

CLASSES, EACH, FEATURES, DIM = 8, 8, 12, 6


def data(seed=0):
    """Rows of eight classes: features, labels and positions."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(CLASSES).repeat_interleave(EACH)
    centres = torch.randn(CLASSES, FEATURES, generator=generator)
    vectors = centres[labels] + 0.8 * torch.randn(len(labels), FEATURES, generator=generator)
    return TensorDataset(vectors, labels, torch.arange(len(labels)))


def batches(dataset):
    sampler = em.batches.class_balanced(dataset.tensors[1], classes_per_batch=4, samples_per_class=4, seed=0)
    return DataLoader(dataset, batch_sampler=sampler)


def network():
    torch.manual_seed(0)
    return nn.Linear(FEATURES, DIM)


def plain_loop(steps=8, method="arcface"):
    """What a loop of torch alone trains: the network and the loss of each step."""
    model, objective = network(), objective_of(method)
    optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=0.1)
    losses = []
    for _, (vectors, labels, _) in zip(range(steps), forever(batches(data())), strict=False):
        optimizer.zero_grad()
        loss = objective(model(vectors), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def objective_of(method):
    torch.manual_seed(1)
    sizes = {"classes": CLASSES, "dim": DIM} if method == "arcface" else {}
    return em.objective(method, **sizes)


def forever(loader):
    while True:
        yield from loader


@pytest.mark.filterwarnings("ignore")
def test_a_module_of_lightning_trains_and_validates(tmp_path):
    lightning = pytest.importorskip("pytorch_lightning")

    class Embedding(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network, self.objective = network(), objective_of("arcface")
            self.accumulator, self.losses = em.Accumulator(["map@r", "recall@1"]), []

        def training_step(self, batch, number):
            vectors, labels, _ = batch
            loss = self.objective(self.network(vectors), labels)
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch, number):
            vectors, labels, index = batch
            self.accumulator.update(self.network(vectors), labels, index)

        def on_validation_epoch_end(self):
            self.log_dict(dict(self.accumulator.compute()))
            self.accumulator.reset()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    module = Embedding()
    trainer = lightning.Trainer(
        max_steps=8,
        accelerator="cpu",
        default_root_dir=tmp_path,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    trainer.fit(module, batches(data()), DataLoader(data(1), batch_size=10))
    model, losses = plain_loop()
    assert module.losses == pytest.approx(losses)
    with torch.no_grad():
        expected = em.evaluate(module.network(data(1).tensors[0]), data(1).tensors[1], metrics=["map@r", "recall@1"])
    assert {name: float(trainer.logged_metrics[name]) for name in expected} == pytest.approx(dict(expected), abs=1e-6)
    torch.testing.assert_close(module.network.state_dict(), model.state_dict())


@pytest.mark.filterwarnings("ignore")
def test_accelerate_prepares_network_and_objective():
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model, objective = network(), objective_of("arcface")
    optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=0.1)
    model, objective, optimizer = accelerator.prepare(model, objective, optimizer)
    losses = []
    for _, (vectors, labels, _) in zip(range(8), forever(batches(data())), strict=False):
        optimizer.zero_grad()
        loss = objective(model(vectors), labels)
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    expected, expected_losses = plain_loop()
    assert losses == pytest.approx(expected_losses)
    torch.testing.assert_close(accelerator.unwrap_model(model).state_dict(), expected.state_dict())


@pytest.mark.parametrize("method", ["arcface", "multi_similarity", "supcon"])
def test_a_compiled_step_trains_as_a_plain_one(method):
    model, objective = network(), objective_of(method)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def loss_of(vectors, labels):
        return objective(model(vectors), labels)

    optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=0.1)
    losses = []
    for _, (vectors, labels, _) in zip(range(4), forever(batches(data())), strict=False):
        optimizer.zero_grad()
        loss = loss_of(vectors, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    torch._dynamo.reset()
    expected, expected_losses = plain_loop(4, method)
    assert losses == pytest.approx(expected_losses, rel=1e-5)
    torch.testing.assert_close(model.state_dict(), expected.state_dict(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["arcface", "contrastive", "triplet_semihard", "margin", "proxy_anchor", "ntxent"])
def test_mixed_precision_rounds_the_network_and_not_the_objective(method):
    vectors, labels, _ = data()[:]
    sizes = {"classes": CLASSES, "dim": DIM} if method in ("arcface", "proxy_anchor") else {}
    torch.manual_seed(1)
    model, objective = network(), em.objective(method, **sizes)
    torch.manual_seed(2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        embeddings = model(vectors)
        loss = objective(embeddings, labels)
    assert embeddings.dtype == torch.bfloat16
    assert loss.dtype == torch.float32
    loss.backward()
    torch.manual_seed(2)
    expected = objective(embeddings.detach().float(), labels)
    torch.testing.assert_close(loss.detach(), expected.detach(), rtol=1e-5, atol=1e-6)
    assert model.weight.grad.dtype == torch.float32
    assert model.weight.grad.isfinite().all()


WORKER = """
import sys, torch, torch.distributed as dist, torch.distributed.nn
from torch.nn.parallel import DistributedDataParallel
import equimetric as em
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, folder = dist.get_rank(), sys.argv[1]
given = torch.load(f"{folder}/given", weights_only=True)
model = torch.nn.Linear(12, 6).double()
model.load_state_dict(given["network"])
objective = em.objective("arcface", classes=8, dim=6, gather=True).double()
objective.load_state_dict(given["objective"])
model, objective = DistributedDataParallel(model), DistributedDataParallel(objective)
optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=0.1)
accumulator = em.Accumulator(["map@r"])
for rows in given["batches"]:
    mine = rows[10:] if rank else rows[:10]  # the ranks have parts of different size
    optimizer.zero_grad()
    objective(model(given["vectors"][mine]), given["labels"][mine]).backward()
    optimizer.step()
with torch.no_grad():
    for rows in torch.arange(len(given["labels"]))[rank::2].split(7):
        accumulator.update(model.module(given["vectors"][rows]), given["labels"][rows], rows)
found = {"network": model.module.state_dict(), "scores": dict(accumulator.compute())}
torch.save(found, f"{folder}/{rank}")
del model, objective
dist.destroy_process_group()
"""


def test_two_processes_of_torchrun_train_as_one(tmp_path):
    vectors, labels, _ = data()[:]
    vectors = vectors.double()
    model, objective = network().double(), objective_of("arcface").double()
    sampler = em.batches.class_balanced(labels, classes_per_batch=4, samples_per_class=4, seed=0, batches=5)
    given = {"vectors": vectors, "labels": labels, "batches": [torch.as_tensor(rows) for rows in sampler]}
    given |= {"network": model.state_dict(), "objective": objective.state_dict()}
    torch.save(given, tmp_path / "given")
    (tmp_path / "worker.py").write_text(WORKER)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    ran = subprocess.run(
        [*torchrun, str(tmp_path / "worker.py"), str(tmp_path)],
        timeout=300,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert ran.returncode == 0, ran.stderr
    optimizer = torch.optim.SGD([*model.parameters(), *objective.parameters()], lr=0.1)
    for rows in given["batches"]:
        optimizer.zero_grad()
        objective(model(vectors[rows]), labels[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        scores = dict(em.evaluate(model(vectors), labels, metrics=["map@r"]))
    for rank in (0, 1):
        found = torch.load(tmp_path / str(rank), weights_only=True)
        assert_same_digits(found["network"], dict(model.state_dict()))
        assert found["scores"] == pytest.approx(scores, abs=1e-9)


def test_a_trained_objective_is_copied_with_its_state():
    objective = em.objective("xbm", dim=FEATURES, size=32, start_iteration=0)
    vectors, labels, _ = data()[:]
    for start in (0, 16):
        objective(vectors[start : start + 16], labels[start : start + 16])
    again = pickle.loads(pickle.dumps(objective)), copy.deepcopy(objective)
    expected = objective(vectors[32:], labels[32:])
    assert [copied(vectors[32:], labels[32:]) for copied in again] == [expected, expected]
