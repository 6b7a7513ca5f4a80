"""Two processes, started by torchrun, train what one process with the whole batch trains."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rounding import assert_same_digits

from equimetric.batches import SmartMiningBatches
from equimetric.errors import EquimetricError
from equimetric.processes import Processes, init_processes
from equimetric.runs.model import load_weights
from equimetric.training import train
from equimetric.training.distributed import shard_batches

BASE = {
    "data": {"name": "digits", "transform": "none"},
    "model": {"dim": 8, "frozen_batch_norm": True},
    "batch": {"classes": 2, "samples": 4},
    "optimizer": {"name": "sgd", "lr": 0.01, "objective_lr": 0.1, "schedule": "constant"},
    "training": {"steps": 4, "validate_every": 2, "log_every": 1, "precision": "float64"},
}


def changed(**tables):
    plain = {name: value for name, value in tables.items() if not isinstance(value, dict)}
    nested = {name: {**BASE.get(name, {}), **value} for name, value in tables.items() if isinstance(value, dict)}
    return {**BASE, **plain, **nested}


RUNS = {
    "pairs, uneven parts": changed(method="contrastive", batch={"classes": 3}),
    "own boundary, random selection": changed(method="margin"),
    "proxies, average": changed(method="arcface", training={"ema": 0.5}),
    "sampled classes": changed(method="arcface", options={"sample_rate": 0.7}),
    "sum": changed(method="proxy_anchor+tcm"),
    "several batches a step": changed(method="multi_similarity", batch={"per_step": 2}),
    "two passes": changed(method="arcface", batch={"classes": 3, "at_once": 3, "per_step": 2}),
    "memory": changed(method="contrastive", options={"references": "memory", "dim": 8, "start_iteration": 1}),
    "staged": changed(method="contrastive", model={"freeze": {"backbone": 2}}),
    "clusters": changed(method="magnet_clusters", batch={"kind": "clusters", "classes": 3}),
    "frozen features, mined batches": changed(
        method="triplet", model={"frozen": True}, batch={"kind": "neighbour_classes"}
    ),
}

WORKER = """
import json, sys
from pathlib import Path
from equimetric.training import train
from equimetric.processes import init_processes
folder = Path(sys.argv[1])
with init_processes("cpu") as processes:
    assert processes.is_distributed
    for name, config in json.loads((folder / "runs.json").read_text()).items():
        trained = train(config, folder=folder / name)
        (folder / f"{name}-{processes.rank}.json").write_text(json.dumps(trained.metrics))
threads = [file.read_text() for file in Path("/proc/self/task").glob("*/comm")]
(folder / f"threads-{processes.rank}.json").write_text(json.dumps(threads))
"""


@pytest.fixture(scope="module")
def of_two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    (folder / "runs.json").write_text(json.dumps(RUNS))
    (folder / "worker.py").write_text(WORKER)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*torchrun, str(folder / "worker.py"), str(folder)], check=True, timeout=300, capture_output=True)
    return folder


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are listed by Linux only")
def test_the_process_group_leaves_no_threads(of_two_processes):
    """Threads of gloo that live on may abort the end of the interpreter."""
    for rank in (0, 1):
        threads = json.loads((of_two_processes / f"threads-{rank}.json").read_text())
        assert threads
        assert not [name for name in threads if "gloo" in name]


def log_of(folder):
    return [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_train_as_one_does(of_two_processes, tmp_path, name):
    trained = train(RUNS[name], folder=tmp_path)
    assert_same_digits(
        load_weights(of_two_processes / name / "model.safetensors"),
        load_weights(tmp_path / "model.safetensors"),
    )
    # The losses of the last step tell of all parameters, also where the best weights are earlier ones. Metrics jump
    # where two neighbours all but tie, so they are compared less closely.
    for line, expected in zip(log_of(of_two_processes / name), log_of(tmp_path), strict=True):
        figures = {key: value for key, value in line.items() if key not in ("kind", "seconds", "terms")}
        tolerance = {"rel": 1e-9} if line["kind"] == "train" else {"abs": 1e-5}
        assert figures == pytest.approx({key: expected[key] for key in figures}, **tolerance)
    for rank in (0, 1):
        metrics = json.loads((of_two_processes / f"{name}-{rank}.json").read_text())
        assert metrics == pytest.approx(dict(trained.metrics), abs=1e-5)


def test_without_torchrun_there_is_one_process(monkeypatch):
    for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(variable, raising=False)
    with init_processes("auto") as processes:
        assert processes == Processes(0, 1, 0)
        assert processes.is_main
        assert not processes.is_distributed


@pytest.mark.parametrize(("things", "world"), [(7, 2), (2, 3), (0, 2), (9, 3)])
def test_parts_of_many_things_are_all_of_them_in_order(things, world):
    parts = [number for rank in range(world) for number in Processes(rank, world).shard(things)]
    assert parts == list(range(things))


def test_own_draws_differ_and_leave_no_trace():
    drawn, after = [], []
    for rank in range(2):
        torch.manual_seed(4)
        torch.rand(3)
        with Processes(rank, 2).per_rank_rng():
            drawn.append(torch.rand(5))
        after.append(torch.rand(5))
    torch.manual_seed(4)
    torch.rand(3)
    assert not torch.equal(*drawn)
    assert torch.equal(*after)
    assert torch.equal(after[0], torch.rand(5))


def test_batches_that_adapt_are_refused_in_several_processes():
    batches = SmartMiningBatches(torch.arange(4).repeat_interleave(5), triples=4)
    with pytest.raises(EquimetricError, match="adapt to the embeddings of the whole batch"):
        shard_batches(batches, Processes(0, 2))


def test_sharded_proxies_are_refused(tmp_path):
    config = changed(method="arcface", options={"sharded": True})
    with pytest.raises(EquimetricError, match=r"leave out options\.sharded"):
        train(config, folder=tmp_path)
