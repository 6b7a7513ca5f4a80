"""What would take no part in a run is said before it trains, and in its notes."""

import json
import warnings

import pytest

import equimetric as em
from equimetric.errors import EquimetricWarning
from equimetric.runs.model import load_run
from equimetric.training import train

TINY = {
    "data": {"name": "digits"},
    "model": {"dim": 8},
    "batch": {"classes": 3, "samples": 4},
    "training": {"steps": 4, "validate_every": 2, "log_every": 2},
}

LATE = {
    "memory": (
        {"method": "xbm"},
        r"The memory of 'xbm' takes no part in this run: it begins after 1,001 batches \(start_iteration\), and the "
        r"run has 4; lower start_iteration, or raise training\.steps\.",
    ),
    "memory that is filled once": (
        {"method": "xbm", "options": {"start_iteration": 3}},
        r"it begins after 4 batches \(start_iteration\), and the run has 4",
    ),
    "memory of a term": (
        {"method": "contrastive+xbm", "options": {"xbm.start_iteration": 8}, "batch": {**TINY["batch"], "per_step": 2}},
        r"The memory of 'xbm' .* after 9 batches \(start_iteration\), and the run has 8",
    ),
    "frozen part": (
        {"method": "contrastive", "model": {"dim": 8, "freeze": {"backbone": 4}}},
        r"The part 'backbone' of the network takes no part .* after 4 steps \(model\.freeze\), and the run has 4",
    ),
    "milestone": (
        {"method": "contrastive", "optimizer": {"schedule": "step", "milestones": [2, 9]}},
        r"A lower learning rate takes no part .* after 9 steps \(optimizer\.milestones\), and the run has 4",
    ),
}


@pytest.mark.parametrize("name", LATE)
def test_a_part_that_never_begins_is_named_before_and_after(name, tmp_path):
    tables, sentence = LATE[name]
    steps = []
    with pytest.warns(EquimetricWarning, match=sentence):
        train({**TINY, **tables}, folder=tmp_path / "run", progress=lambda step, _: steps.append(step))
    assert steps == [1, 2, 3, 4]
    (note,) = (note for note in load_run(tmp_path / "run").result.notes if "takes no part" in note)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["notes"].count(note) == 1


@pytest.mark.parametrize(
    "tables",
    [
        {"method": "xbm", "options": {"start_iteration": 2}},
        {"method": "contrastive", "model": {"dim": 8, "freeze": {"backbone": 3}}},
        {"method": "contrastive", "model": {"dim": 8, "freeze": ["backbone"]}},
        {"method": "contrastive", "optimizer": {"schedule": "step", "milestones": [3]}},
    ],
)
def test_a_part_that_begins_or_is_frozen_for_ever_needs_no_word(tables, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train({**TINY, **tables}, folder=tmp_path / "run")
    assert not [note for note in load_run(tmp_path / "run").result.notes if "takes no part" in note]


def test_a_memory_that_takes_part_in_one_batch_is_used(tmp_path):
    """The last batch of a run is compared with the one before it."""
    config = {**TINY, "method": "xbm", "options": {"start_iteration": 2, "size": 32}}
    trained = train(config, folder=tmp_path / "run")
    memory = trained.learner.objective.references
    assert int(memory.iteration) in (0, 2, 4), "of the best weights"
    what, first, option = memory.delayed_start()
    assert (what, first, option) == ("memory", 3, "start_iteration")


def test_a_study_says_so_once_for_each_method(tmp_path, in_process):
    study = {**TINY, "name": "late", "workers": 1, "baselines": [], "seeds": [0, 1], "methods": {"xbm": {}}}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = em.compare(study, output=tmp_path)
    said = [str(one.message) for one in caught if "takes no part" in str(one.message)]
    assert said.count("xbm: " + result.record.runs[0].notes[0]) >= 1
    assert all(any("takes no part" in note for note in run.notes) for run in result.record.runs)
