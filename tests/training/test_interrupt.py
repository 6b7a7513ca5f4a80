"""A signal stops a run between two steps; what resumes there equals, bit for bit, what was never stopped."""

import json
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from equimetric.components import Scheduled
from equimetric.data import CenterCrop, RandomCrop, Resize, Transform, View, transforms
from equimetric.runs.model import load_weights
from equimetric.stopping import Stopped, StopRequest, raise_stopped, stop_on_signals
from equimetric.training import checkpoint, train

STEPS = 8

TINY = {
    "method": "contrastive",
    "data": {"name": "digits", "transform": "affine"},
    "model": {"dim": 4},
    "batch": {"classes": 3, "samples": 3},
    "training": {"steps": STEPS, "validate_every": 6, "log_every": 4, "checkpoint_seconds": 0},
}

CASES = {
    "sums of the log": {},
    "moving average": {"training": {"ema": 0.9}},
    "two batches a step": {"batch": {"per_step": 2}},
    "clusters of the objective": {"method": "magnet", "batch": {"kind": "clusters"}},
    "tree of the objective": {"method": "hierarchical_triplet"},
    "mined neighbours": {"batch": {"kind": "neighbour_classes"}},
    "mined classes": {"batch": {"kind": "hard_classes", "samples": 2}},
    "adaptive sampler": {"batch": {"kind": "smart_mining", "options": {"interval": 2, "neighbours": 20}}},
    "memory": {"method": "xbm", "options": {"start_iteration": 2, "size": 32}},
    "curriculum": {"options": {"selection": "curriculum", "curriculum_steps": 6}},
    "decayed gamma": {"method": "structured_clustering", "options": {"gamma": 9.0, "decay": 0.5, "decay_steps": 2}},
    "proxies": {"method": "proxy_nca", "optimizer": {"objective_name": "sgd"}},
    "several epochs of the sampler": {"batch": {"kind": "exhaustive", "options": {}}},
}


def configuration(changes):
    return {
        **TINY,
        **{key: {**TINY.get(key, {}), **value} if isinstance(value, dict) else value for key, value in changes.items()},
    }


def stop_at(step, number=signal.SIGINT):
    def progress(now, figures):
        if now == step and figures:
            signal.raise_signal(number)

    return progress


def require_equal(one, other):
    first, second = (load_weights(folder / "model.safetensors") for folder in (one, other))
    assert first.keys() == second.keys()
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    for name in ("result.json", "metrics.jsonl"):
        first, second = ([json.loads(line) for line in lines_of(folder / name)] for folder in (one, other))
        for line in (*first, *second):
            # Checksums cover times, too.
            for changing in ("seconds", "memory", "checksum", "files"):
                line.pop(changing, None)
        assert first == second


def lines_of(file: Path):
    text = file.read_text()
    return text.splitlines() if file.suffix == ".jsonl" else [text]


@pytest.mark.parametrize("case", CASES)
def test_a_stopped_run_resumes_at_that_step_to_the_same_bits(case, tmp_path):
    config = configuration(CASES[case])
    train(config, folder=tmp_path / "undisturbed")
    # Between two lines of the log, then within the second epoch.
    for step in (3, 7):
        with pytest.raises(Stopped, match=f"stopped at step {step} of 8; run the same command again to resume"):
            train(config, folder=tmp_path / "run", progress=stop_at(step))
        assert json.loads((tmp_path / "run" / "checkpoint.json").read_text())["step"] == step
    resumed = []
    train(config, folder=tmp_path / "run", progress=lambda step, figures: resumed.append((step, bool(figures))))
    assert resumed == [(7, False), (8, True)]
    require_equal(tmp_path / "run", tmp_path / "undisturbed")


def test_the_loop_sets_the_step_of_schedules(tmp_path, monkeypatch):
    steps = []
    monkeypatch.setattr(Scheduled, "set_step", lambda _, step: steps.append(step))
    config = configuration({"options": {"selection": "curriculum", "end": [0.25, 1.0]}, "batch": {"per_step": 2}})
    train(config, folder=tmp_path / "run")
    assert steps == list(range(STEPS))


@pytest.fixture
def crops(monkeypatch):
    """A transform that crops at random."""
    views = {"train": View(Resize(20, "square"), RandomCrop(12)), "test": View(Resize(20, "square"), CenterCrop(12))}
    monkeypatch.setitem(transforms.TRANSFORMS._records, "crops", Transform("crops", "", **views))
    return "crops"


@pytest.fixture
def photos(tmp_path):
    generator = np.random.default_rng(0)
    for label in range(12):
        folder = tmp_path / "photos" / f"class{label}"
        folder.mkdir(parents=True)
        for number in range(4):
            pixels = generator.integers(256, size=(30, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return tmp_path / "photos"


@pytest.mark.parametrize("step", range(1, STEPS))
def test_batches_that_were_read_ahead_are_not_skipped(step, photos, crops, tmp_path):
    """Images of files are decoded ahead, with random crops that follow from the number of their batch."""
    options = {"root": str(photos), "size": 24, "in_memory": False}
    data = {"name": "folder", "transform": crops, "options": options}
    config = {**TINY, "data": data, "batch": {"classes": 2, "samples": 2}}
    train(config, folder=tmp_path / "undisturbed")
    with pytest.raises(Stopped):
        train(config, folder=tmp_path / "run", progress=stop_at(step))
    train(config, folder=tmp_path / "run")
    require_equal(tmp_path / "run", tmp_path / "undisturbed")


def test_a_second_signal_does_not_wait_for_the_step(tmp_path):
    def twice(step, figures):
        if step == 3:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Stopped):
        train(TINY, folder=tmp_path / "run", progress=twice)
    assert json.loads((tmp_path / "run" / "checkpoint.json").read_text())["step"] == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_exit_code_says_which_signal(number, code, tmp_path):
    with pytest.raises(KeyboardInterrupt) as stopped:
        train(TINY, folder=tmp_path / "run", progress=stop_at(2, number))
    assert stopped.value.exit_code == code
    assert signal.getsignal(number) is (signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def test_handlers_of_a_caller_stay(monkeypatch):
    caught = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: caught.append(number))
    try:
        with StopRequest().watch(), stop_on_signals():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert caught == [signal.SIGTERM]


def test_threads_leave_signals_alone():
    seen = []

    def look():
        with stop_on_signals():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]
    with stop_on_signals():
        assert signal.getsignal(signal.SIGTERM) is raise_stopped


def test_a_baseline_that_is_asked_to_stop_stops(tmp_path, monkeypatch):
    from equimetric.training import loop

    validate = loop.validate
    monkeypatch.setattr(loop, "validate", lambda *given: (signal.raise_signal(signal.SIGTERM), validate(*given)))
    config = {**TINY, "method": "untrained", "learner": {"name": "untrained"}}
    with pytest.raises(Stopped):
        train(config, folder=tmp_path / "run")
    assert not (tmp_path / "run" / "result.json").exists()
    monkeypatch.undo()
    train(config, folder=tmp_path / "run")
    train(config, folder=tmp_path / "undisturbed")
    require_equal(tmp_path / "run", tmp_path / "undisturbed")


def test_checkpoints_of_older_versions_resume(tmp_path, monkeypatch):
    older = [name for name in checkpoint.JSON_FIELDS if name not in ("sums", "counts")]
    monkeypatch.setattr(checkpoint, "JSON_FIELDS", older)
    with pytest.raises(Stopped):
        train(TINY, folder=tmp_path / "run", progress=stop_at(6))
    monkeypatch.undo()
    train(TINY, folder=tmp_path / "run")
    train(TINY, folder=tmp_path / "undisturbed")
    require_equal(tmp_path / "run", tmp_path / "undisturbed")
