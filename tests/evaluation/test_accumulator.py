"""Embeddings collected batch by batch have the metrics of all of them at once."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.evaluation.row_store import RowStore

METRICS = ["recall@1", "map@r", "nmi", "eer", "opis"]


def rows(count=60, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % 6
    centres = torch.randn(6, 5, generator=generator)
    return (centres[labels] + torch.randn(count, 5, generator=generator)).to(dtype), labels


def collected(accumulator, embeddings, labels, batch=7, index=None, **options):
    for start in range(0, len(labels), batch):
        part = slice(start, start + batch)
        accumulator.update(embeddings[part], labels[part], None if index is None else index[part], **options)
    return accumulator


@pytest.mark.parametrize("memory", [2**20, 400])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batches_are_evaluated_together(dtype, memory):
    embeddings, labels = rows(dtype=dtype)
    accumulator = collected(em.Accumulator(METRICS, memory=memory), embeddings, labels)
    result, whole = accumulator.compute(), em.evaluate(embeddings, labels, metrics=METRICS)
    assert dict(result) == dict(whole)
    assert len(accumulator) == 60
    assert dict(accumulator.compute()) == dict(whole)


def test_beyond_the_memory_rows_are_in_a_file_that_is_deleted():
    embeddings, labels = rows()
    accumulator = collected(em.Accumulator(METRICS, memory=400), embeddings, labels)
    store = accumulator._sets["queries"].vectors
    assert store.on_disk
    file = Path(store._file.name)
    assert isinstance(store.array(), np.memmap)
    accumulator.reset()
    del store
    assert not file.exists()
    assert len(accumulator) == 0


@pytest.mark.parametrize("memory", [2**20, 400])
def test_positions_restore_the_order_and_remove_what_came_twice(memory):
    embeddings, labels = rows()
    order = torch.randperm(60, generator=torch.Generator().manual_seed(1))
    order = torch.cat([order, order[:5]])
    accumulator = collected(em.Accumulator(METRICS, memory=memory), embeddings[order], labels[order], index=order)
    result, whole = accumulator.compute(), em.evaluate(embeddings, labels, metrics=METRICS)
    assert result.queries == 60
    assert dict(result) == dict(whole)
    assert torch.equal(result.per_query["recall@1"], whole.per_query["recall@1"])


def test_a_position_in_the_batch_is_no_position_in_the_data_set():
    embeddings, labels = rows()
    accumulator = em.Accumulator()
    for start in (0, 7):
        accumulator.update(embeddings[start : start + 7], labels[start : start + 7], torch.arange(7))
    with pytest.raises(EquimetricError, match="not in its batch"):
        accumulator.compute()


def test_a_gallery_apart_from_the_queries():
    embeddings, labels = rows()
    accumulator = em.Accumulator(["recall@1"], geometry="euclidean")
    collected(accumulator, embeddings[:20], labels[:20])
    collected(accumulator, embeddings[20:], labels[20:], gallery=True)
    whole = em.evaluate(embeddings[:20], labels[:20], embeddings[20:], labels[20:], metrics=["recall@1"])
    euclidean = em.evaluate(
        embeddings[:20], labels[:20], embeddings[20:], labels[20:], metrics=["recall@1"], geometry="euclidean"
    )
    result = accumulator.compute()
    assert result.gallery == 40
    assert torch.equal(result.per_query["recall@1"], euclidean.per_query["recall@1"])
    assert not torch.equal(result.per_query["recall@1"], whole.per_query["recall@1"])


def test_labels_as_strings_and_multi_hot():
    embeddings, labels = rows()
    names = [f"class {label}" for label in labels]
    accumulator = collected(em.Accumulator(["map@r"]), embeddings, names)
    assert dict(accumulator.compute()) == dict(em.evaluate(embeddings, names, metrics=["map@r"]))
    several = torch.nn.functional.one_hot(labels, 6)
    accumulator = collected(em.Accumulator(["recall@1"]), embeddings, several)
    assert dict(accumulator.compute()) == dict(em.evaluate(embeddings, several, metrics=["recall@1"]))


def test_half_precision_and_gradients():
    embeddings, labels = rows(dtype=torch.bfloat16)
    accumulator = collected(em.Accumulator(["map@r"]), embeddings.requires_grad_(), labels)
    assert dict(accumulator.compute()) == dict(em.evaluate(embeddings, labels, metrics=["map@r"]))


def test_the_caller_may_reuse_the_memory_of_a_batch():
    embeddings, labels = rows()
    accumulator, buffer = em.Accumulator(["map@r"]), torch.empty(30, 5)
    for part in (slice(0, 30), slice(30, 60)):
        accumulator.update(buffer.copy_(embeddings[part]), labels[part])
    assert dict(accumulator.compute()) == dict(em.evaluate(embeddings, labels, metrics=["map@r"]))


@pytest.mark.parametrize("kind", ["numbers", "strings"])
def test_the_state_goes_through_a_file(tmp_path, kind):
    embeddings, labels = rows()
    labels = labels if kind == "numbers" else [f"class {label}" for label in labels]
    half = collected(em.Accumulator(METRICS), embeddings[:30], labels[:30], index=torch.arange(30))
    torch.save(half.state_dict(), tmp_path / "state.pt")
    other = em.Accumulator(METRICS)
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    collected(other, embeddings[30:], labels[30:], index=torch.arange(30, 60))
    assert dict(other.compute()) == dict(em.evaluate(embeddings, labels, metrics=METRICS))


def test_what_cannot_be_collected_raises_an_error():
    embeddings, labels = rows()
    with pytest.raises(EquimetricError, match="recall@1"):
        em.Accumulator(["recal@1"])
    with pytest.raises(EquimetricError, match="geometry"):
        em.Accumulator(geometri="cosine")
    with pytest.raises(EquimetricError, match="update"):
        em.Accumulator().compute()
    accumulator = em.Accumulator()
    accumulator.update(embeddings[:9], labels[:9])
    for wrong, match in (
        ((embeddings[:9, :3], labels[:9]), "another model"),
        ((embeddings[:9].double(), labels[:9]), "float64"),
        ((embeddings[:9], labels[:9], torch.arange(9)), "for all, or for none"),
        ((embeddings[:9], list("abcdefghi")), "one kind"),
        ((embeddings[:9], labels[:8]), "exactly one label"),
        ((embeddings[:9], torch.full((9, 3), 2)), "multi-hot"),
    ):
        with pytest.raises(EquimetricError, match=match):
            accumulator.update(*wrong)
    accumulator.update(embeddings[:0], labels[:0])
    assert len(accumulator) == 9


def test_a_store_reads_and_sorts_rows_a_piece_at_a_time(monkeypatch):
    monkeypatch.setattr("equimetric.evaluation.row_store.PIECE_BYTES", 64)
    store, array = RowStore(memory=100), np.arange(60, dtype=np.float32).reshape(20, 3)
    for start in range(0, 20, 6):
        store.append(array[start : start + 6])
    assert [one.stop - one.start for one in store.pieces()] == [5, 5, 5, 5]
    order = np.random.default_rng(0).permutation(20)
    assert np.array_equal(store.take(order).array(), array[order])


WORKER = """
import sys, torch, torch.distributed as dist
import equimetric as em
from equimetric.evaluation import row_store
row_store.PIECE_BYTES = 100  # several rounds of sending
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, data = dist.get_rank(), torch.load(sys.argv[1], weights_only=True)
embeddings, labels, metrics = data["embeddings"], data["labels"], data["metrics"]
found = {}
for name, padded in (("even", 1), ("uneven", 0)):
    mine = torch.arange(rank, len(labels), 2)
    if padded:  # as DistributedSampler does: the first rows once more, so that both ranks have as many
        mine = torch.cat([mine, torch.arange(len(mine), 31)]) if len(mine) < 31 else mine
    accumulator = em.Accumulator(metrics)
    for batch in mine.split(7):
        accumulator.update(embeddings[batch], labels[batch], batch)
    found[name] = dict(accumulator.compute())
accumulator = em.Accumulator(metrics)
if rank == 1:  # the first rank has no rows
    for batch in torch.arange(len(labels)).split(9):
        accumulator.update(embeddings[batch], labels[batch])
found["one rank"] = dict(accumulator.compute())
try:
    em.Accumulator(metrics).compute()
except em.EquimetricError as error:
    found["error"] = str(error)
torch.save(found, f"{sys.argv[1]}.{rank}")
dist.destroy_process_group()
"""


def test_two_ranks_find_what_one_process_finds(tmp_path):
    embeddings, labels = rows(61)
    torch.save({"embeddings": embeddings, "labels": labels, "metrics": METRICS}, tmp_path / "data")
    (tmp_path / "worker.py").write_text(WORKER)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, str(tmp_path / "worker.py"), str(tmp_path / "data")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, timeout=300, capture_output=True, text=True, env=environment)
    assert ran.returncode == 0, ran.stderr
    whole = dict(em.evaluate(embeddings, labels, metrics=METRICS))
    for rank in (0, 1):
        found = torch.load(tmp_path / f"data.{rank}", weights_only=True)
        assert "update" in found.pop("error")
        assert found == {"even": whole, "uneven": whole, "one rank": whole}
