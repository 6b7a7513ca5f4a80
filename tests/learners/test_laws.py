"""What holds for every learner of the registry, and for one that uses every part of the protocol."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import example_learners  # noqa: F401  (registers a learner)
import pytest
import torch
from making import batch_for, configuration, make
from rounding import assert_same_digits

from equimetric.learners import LEARNERS
from equimetric.processes import SINGLE
from equimetric.runs.model import load_run, load_weights
from equimetric.stopping import Stopped
from equimetric.training import train
from equimetric.training.distributed import Trainable
from equimetric.training.gradients import backward
from equimetric.training.placement import Placement

NAMES = list(LEARNERS)
TRAINED = [name for name in NAMES if LEARNERS[name].trains]
CPU = Placement(torch.device("cpu"), "float64")


def log_of(folder):
    lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


class KilledError(Exception):
    pass


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_outputs_depend_on_their_own_image_alone(name):
    learner = make(name).eval()
    batch = batch_for(learner, learner.tasks()[0].name)
    whole = learner.outputs(batch)
    part = learner.outputs(batch.rows(slice(5, 9)))
    assert whole.keys() == part.keys()
    for key, rows in part.items():
        torch.testing.assert_close(rows, whole[key][5:9])


@pytest.mark.parametrize("name", NAMES)
def test_embeddings_have_unit_length_unless_raw_ones_are_evaluated(name):
    learner = make(name).eval()
    images = batch_for(learner, "").images
    torch.testing.assert_close(learner.embed(images).norm(dim=1), torch.ones(24, dtype=torch.float64))
    raw = make(name, evaluation={"geometry": "euclidean"}).eval()
    assert (raw.embed(images).norm(dim=1) - 1).abs().max() > 1e-3


@pytest.mark.parametrize("name", NAMES)
def test_state_dicts_round_trip(name):
    one, other = make(name), make(name).double()
    for tensor in one.state_dict().values():
        if tensor.is_floating_point():
            tensor += 0.5
    other.load_state_dict(one.state_dict())
    assert all(torch.equal(tensor, other.state_dict()[key]) for key, tensor in one.state_dict().items())


@pytest.mark.parametrize("name", TRAINED)
def test_every_trainable_parameter_is_in_one_group(name):
    learner = make(name)
    grouped = [id(parameter) for parameters in learner.parameter_groups().values() for parameter in parameters]
    assert len(grouped) == len(set(grouped))
    assert {id(parameter) for parameter in learner.parameters() if parameter.requires_grad} <= set(grouped)


@pytest.mark.parametrize("name", TRAINED)
def test_losses_leave_outputs_as_they_are(name):
    learner = make(name).train()
    batch = batch_for(learner, learner.tasks()[0].name)
    outputs = learner.outputs(batch)
    before = {key: rows.detach().clone() for key, rows in outputs.items()}
    learner.losses(outputs, batch)
    assert all(torch.equal(outputs[key], rows) for key, rows in before.items())


@pytest.mark.parametrize("name", TRAINED)
def test_a_batch_part_by_part_has_the_gradient_of_the_whole(name):
    gradients = []
    for at_once in (None, 7):
        learner = make(name).train()
        torch.manual_seed(1)
        backward(Trainable(learner), batch_for(learner, learner.tasks()[0].name), CPU, SINGLE, at_once=at_once)
        gradients.append({key: parameter.grad for key, parameter in learner.named_parameters()})
    # An untrained network puts images almost at the same place, and the direction between them has few digits.
    assert_same_digits(gradients[0], gradients[1], digits=7)


@pytest.mark.parametrize("name", NAMES)
def test_a_killed_run_resumes_to_the_same_bits(name, tmp_path):
    config = configuration(name)
    train(config, folder=tmp_path / "undisturbed")

    def kill(step, figures):
        if step == 5:
            raise KilledError

    if LEARNERS[name].trains:
        with pytest.raises(KilledError):
            train(config, folder=tmp_path / "killed", progress=kill)
    train(config, folder=tmp_path / "killed")
    assert log_of(tmp_path / "killed") == log_of(tmp_path / "undisturbed")
    one, other = (load_weights(tmp_path / run / "model.safetensors") for run in ("killed", "undisturbed"))
    assert all(torch.equal(one[key], other[key]) for key in one | other)
    steps = load_run(tmp_path / "killed").result.steps
    assert steps == (7 if LEARNERS[name].trains else 0)


@pytest.mark.parametrize("name", TRAINED)
def test_a_run_that_is_stopped_within_an_epoch_resumes_to_the_same_bits(name, tmp_path):
    config = configuration(name)
    train(config, folder=tmp_path / "undisturbed")

    def stop(step, figures):
        if step in (2, 5) and figures:
            signal.raise_signal(signal.SIGTERM)

    for _ in range(2):
        with pytest.raises(Stopped):
            train(config, folder=tmp_path / "stopped", progress=stop)
    train(config, folder=tmp_path / "stopped")
    assert log_of(tmp_path / "stopped") == log_of(tmp_path / "undisturbed")
    one, other = (load_weights(tmp_path / run / "model.safetensors") for run in ("stopped", "undisturbed"))
    assert all(torch.equal(one[key], other[key]) for key in one | other)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_killed_before_its_test_finishes_later(name, tmp_path, monkeypatch):
    config = configuration(name)
    train(config, folder=tmp_path / "undisturbed")
    with monkeypatch.context() as killed:
        killed.setattr("equimetric.training.completion.evaluate_test", Mock(side_effect=KilledError))
        with pytest.raises(KilledError):
            train(config, folder=tmp_path / "killed")
    resumed = train(config, folder=tmp_path / "killed")
    assert resumed.metrics == load_run(tmp_path / "undisturbed").metrics


@pytest.mark.parametrize("name", NAMES)
def test_frozen_features_equal_images_at_step_zero(name, tmp_path):
    if make(name).frozen_backbone() is None:
        return
    models = [{"frozen": frozen, "head_init": "random"} for frozen in (False, True)]
    runs = [configuration(name, data={"transform": "none"}, model=model) for model in models]
    for number, config in enumerate(runs):
        train(config, folder=tmp_path / str(number))
    first, second = (log_of(tmp_path / str(number))[0] for number in range(2))
    assert first == pytest.approx(second, abs=1e-4)


WORKER = """
import json, sys
from pathlib import Path
from unittest.mock import Mock
sys.path.insert(0, sys.argv[2])
import example_learners
from equimetric.processes import init_processes
from equimetric.training import train
folder = Path(sys.argv[1])
with init_processes("cpu") as processes:
    for name, config in json.loads((folder / "runs.json").read_text()).items():
        train(config, folder=folder / name)
"""


@pytest.fixture(scope="module")
def of_two_processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    runs = {name: configuration(name, data={"transform": "none"}) for name in NAMES}
    (folder / "runs.json").write_text(json.dumps(runs))
    (folder / "worker.py").write_text(WORKER)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    arguments = [str(folder / "worker.py"), str(folder), str(Path(__file__).parent)]
    subprocess.run([*torchrun, *arguments], check=True, timeout=300, capture_output=True)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_two_processes_equal_one(name, of_two_processes, tmp_path):
    train(configuration(name, data={"transform": "none"}), folder=tmp_path)
    weights, expected = (
        load_weights(of_two_processes / name / "model.safetensors"),
        load_weights(tmp_path / "model.safetensors"),
    )
    assert weights.keys() == expected.keys()
    if expected:  # raw pixels have none
        assert_same_digits(weights, expected, digits=8)
    for line, expected in zip(log_of(of_two_processes / name), log_of(tmp_path), strict=True):
        figures = {key: value for key, value in line.items() if key not in ("kind", "terms", "learner")}
        tolerance = {"rel": 1e-8} if line["kind"] == "train" else {"abs": 1e-5}
        assert figures == pytest.approx({key: expected[key] for key in figures}, **tolerance)
        assert line.get("learner", {}) == pytest.approx(expected.get("learner", {}), rel=1e-8)
