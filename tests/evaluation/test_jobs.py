"""Worker processes, and tasks of a Ray cluster, give every bit of the single process, and end cleanly."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from spread import die_in_workers, identical, intervals

from equimetric.errors import EquimetricError
from equimetric.evaluation import evaluate, list_metrics
from equimetric.evaluation.engine import binned_pairs, pair_distances, plan
from equimetric.evaluation.parallel import local
from equimetric.evaluation.parallel.packing import ALIGNMENT, pack, place_aligned, unpack
from equimetric.geometry import Geometry

EXAMPLES = [example for family in list_metrics() for example in family.examples]
WITHOUT_WHOLE_ROWS = [
    example
    for family in list_metrics()
    for example in family.examples
    if all(collector.accepts_columns or not collector.reads_tiles for collector in family.collectors)
]


def space(count=150, classes=9, dimension=5):
    generator = np.random.default_rng(4)
    labels = generator.integers(0, classes, count)
    centres = generator.normal(size=(classes, dimension))
    return (centres[labels] + 0.7 * generator.normal(size=(count, dimension))).astype(np.float32), labels


@pytest.fixture
def blocks(monkeypatch):
    """Bins, and tiles of some columns: decided here, before the processes start."""
    monkeypatch.setattr(pair_distances, "MAX_KEPT_PAIRS", 2**13)
    monkeypatch.setattr(binned_pairs, "POSITIVES_KEPT", 50)
    monkeypatch.setattr(plan, "TILE_BYTES", 64)
    monkeypatch.setattr(plan, "MIN_COLUMNS", 64)


@pytest.mark.usefixtures("blocks")
def test_two_processes_give_every_bit_of_one():
    """All metrics at once: whole rows; those of nearest neighbours and of pairs: each pair once, in bins."""
    for count, metrics in ((120, EXAMPLES), (300, WITHOUT_WHOLE_ROWS)):
        options = {"metrics": metrics, "neighbours": 5, "block_rows": 11}
        alone, spread = evaluate(*space(count), **options), evaluate(*space(count), **options, jobs=2)
        assert identical(alone, spread)
        assert identical(intervals(alone), intervals(spread))
        assert ("each pair once" in alone.path) == (metrics is WITHOUT_WHOLE_ROWS)


def test_more_jobs_than_bands():
    assert identical(evaluate(*space(10)), evaluate(*space(10), jobs=3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 0}, "jobs is 0; give the number of processes, at least 1"),
        ({"engine": "slurm"}, "unknown engine 'slurm'; valid names: local, ray"),
    ],
)
def test_options_that_cannot_be(options, message):
    with pytest.raises(EquimetricError, match=message):
        evaluate(*space(), **options)


def test_ray_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        EquimetricError, match=r"the engine 'ray' needs the package 'ray'.*pip install 'equimetric\[ray\]"
    ):
        evaluate(*space(), engine="ray")


def test_an_error_of_a_worker_is_raised_here(monkeypatch):
    embeddings, labels = space(60)
    monkeypatch.setattr(local, "pack_task", lambda task: pack(([], "no task")))
    with pytest.raises(RuntimeError, match=r"a worker process failed:\nTraceback(.|\n)*AssertionError"):
        evaluate(embeddings, labels, block_rows=4, jobs=2)


def test_a_killed_worker_is_one_sentence(monkeypatch):
    monkeypatch.setenv("EQUIMETRIC_TEST_PARENT", str(os.getpid()))
    geometry = Geometry("deadly", die_in_workers, summary="", to_distance=torch.neg)
    with pytest.raises(EquimetricError, match=r"ended without a result \(exit code -9\); was it killed"):
        evaluate(*space(60), geometry=geometry, block_rows=4, jobs=2)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("__main__", "'die_in_workers' is defined in the script itself"),
        ("nowhere", "cannot be sent to other processes"),
    ],
)
def test_what_other_processes_do_not_know_is_named(monkeypatch, module, message):
    monkeypatch.setattr(die_in_workers, "__module__", module)
    geometry = Geometry("deadly", die_in_workers, summary="", to_distance=torch.neg)
    with pytest.raises(EquimetricError, match=message):
        evaluate(*space(60), geometry=geometry, metrics="map@r", block_rows=4, jobs=2)


SCRIPT = """
    import sys, time
    import numpy as np
    import equimetric as em

    generator = np.random.default_rng(0)
    embeddings = generator.normal(size=(40_000, 64)).astype(np.float32)
    print("imported", flush=True)  # once: workers do not import the script
    em.evaluate(embeddings, np.arange(40_000) % 1000, metrics=["map", "map@r"], block_rows=16, jobs=2)
"""


def children(process):
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=False)
    return [int(number) for number in listed.stdout.split()]


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_running(process):
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(tmp_path, number):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as parent:
        wait_until(lambda: len(children(parent.pid)) == 2)
        workers = children(parent.pid)
        time.sleep(3)
        os.kill(parent.pid, number)
        output, errors = parent.communicate(timeout=30)
    wait_until(lambda: not any(map(is_running, workers)), 20)
    assert output == "imported\n"
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)


@pytest.mark.slow
def test_the_command(tmp_path):
    embeddings, labels = space(600)
    np.save(tmp_path / "space.npy", embeddings)
    np.save(tmp_path / "labels.npy", labels)
    found = []
    for more in ([], ["--jobs", "2"]):
        command = [sys.executable, "-m", "equimetric", "evaluate", str(tmp_path / "space.npy")]
        command += ["--labels", str(tmp_path / "labels.npy"), "--intervals", "--json", "-m", "map@r,opis", *more]
        found.append(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    assert found[0] == found[1]
    assert set(found[0]["intervals"]) == {"map@r", "opis"}


def test_arrays_keep_their_alignment():
    room = np.zeros(2**20 + ALIGNMENT, np.uint8)
    start = -room.__array_interface__["data"][0] % ALIGNMENT + 16
    vectors = torch.from_numpy(room[start : start + 2**20].view(np.float32))
    content, buffers = pack([vectors, vectors.bfloat16(), torch.arange(3)], read_only=[{"vectors": vectors}])
    found = unpack(content, [part.copy() for part in buffers])
    assert found[0].data_ptr() % ALIGNMENT == 16
    assert identical([vectors.numpy(), torch.arange(3)], [found[0].numpy(), found[2]])
    assert torch.equal(found[1], vectors.bfloat16())
    assert place_aligned(buffers[0], 16) is buffers[0]


@pytest.fixture(scope="module")
def two_nodes():
    """A Ray cluster of two nodes with one CPU each, on this machine."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 10**8}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    cluster.add_node(**node)
    ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
    yield ray
    ray.shutdown()
    cluster.shutdown()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("blocks")
def test_ray_tasks_give_every_bit_of_one_process(two_nodes, tmp_path):
    assert len(two_nodes.nodes()) == 2
    embeddings, labels = space(300)
    np.save(tmp_path / "space.npy", embeddings)
    mapped = np.load(tmp_path / "space.npy", mmap_mode="r")
    for given, metrics in ((embeddings, EXAMPLES), (embeddings, WITHOUT_WHOLE_ROWS), (mapped, WITHOUT_WHOLE_ROWS)):
        options = {"metrics": metrics, "neighbours": 5, "block_rows": 11}
        alone = evaluate(given, labels, **options)
        for jobs in (None, 3):
            spread = evaluate(given, labels, **options, engine="ray", jobs=jobs)
            assert identical(alone, spread)
            assert identical(intervals(alone), intervals(spread))
