"""The peak memory of a run: measured anew for each, kept with its result, and no part of what identifies it."""

import json
from pathlib import Path

import numpy as np
import pytest

from equimetric.runs.folder import RunFolder
from equimetric.runs.key import RunKey
from equimetric.runs.result import Memory, RunResult
from equimetric.studies.outcomes import Outcome
from equimetric.training import train
from equimetric.training.memory import RESET, PeakMemory, peak_of_process

MEGABYTE = 10**6
TINY = {
    "method": "contrastive",
    "data": {"name": "digits"},
    "model": {"dim": 4},
    "batch": {"classes": 2, "samples": 2},
    "training": {"steps": 2, "validate_every": 2},
}


def hold(megabytes: int) -> None:
    """Use memory for a moment."""
    np.ones(megabytes * MEGABYTE, dtype=np.uint8).sum()


@pytest.mark.skipif(not RESET.exists(), reason="this system does not begin the peak of a process anew")
def test_the_peak_is_that_since_the_beginning():
    hold(400)
    memory = PeakMemory(cuda=False)
    before = memory.read().process
    hold(200)
    after = memory.read().process
    assert 150 * MEGABYTE < after - before < 350 * MEGABYTE
    assert PeakMemory(cuda=False).read().process < after - 100 * MEGABYTE


def test_without_the_files_of_linux_the_peak_is_that_of_the_process(monkeypatch):
    exact = peak_of_process()
    monkeypatch.setattr("equimetric.training.memory.STATUS", Path("/there/is/no/such/file"))
    monkeypatch.setattr("equimetric.training.memory.RESET", Path("/there/is/no/such/file"))
    assert PeakMemory(cuda=False).read().process > 0.5 * exact


def test_a_run_keeps_its_peak_and_loads_without_it(tmp_path):
    trained = train(TINY, folder=tmp_path / "run")
    assert trained.result.memory.process > 50 * MEGABYTE
    assert trained.result.memory.device is None
    assert RunFolder(tmp_path / "run").require_result().memory == trained.result.memory
    values = json.loads(trained.result.to_json())
    del values["memory"]
    assert RunResult.parse(values, "an older run").memory is None


def test_the_index_keeps_the_peak():
    key = RunKey("contrastive", 0, 0, None, "final", "0123456789ab")
    outcome = Outcome(key, "done", memory=Memory(process=3, device=2).model_dump(exclude_none=True))
    assert Outcome.from_json(json.loads(json.dumps(outcome.to_json()))).memory == {"process": 3, "device": 2}
    older = Outcome(key, "done").to_json()
    assert "memory" not in older
    assert Outcome.from_json(older).memory == {}
