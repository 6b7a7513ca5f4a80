"""TensorBoard and MLflow beside the log, with stand-ins for the packages."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from equimetric.errors import EquimetricError
from equimetric.training import train
from equimetric.training.sinks import figures_of

CONFIG = {
    "method": "contrastive",
    "data": {"name": "digits"},
    "model": {"dim": 8},
    "batch": {"classes": 2, "samples": 4},
    "training": {"steps": 4, "validate_every": 2, "log_every": 1},
}


class KilledError(Exception):
    pass


def kill(step, figures):
    if step == 3:
        raise KilledError


def logged(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def tensorboard(monkeypatch):
    writers = []

    class SummaryWriter:
        def __init__(self, folder, purge_step):
            self.folder, self.purge_step, self.scalars, self.closed = folder, purge_step, [], False
            writers.append(self)

        def add_scalar(self, name, value, step):
            self.scalars.append((name, value, step))

        def close(self):
            self.closed = True

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    return writers


@pytest.fixture
def mlflow(monkeypatch):
    module = ModuleType("mlflow")
    module.calls = []

    def start_run(**given):
        module.calls.append(("start", given))
        return SimpleNamespace(info=SimpleNamespace(run_id="abc"))

    module.start_run = start_run
    module.set_experiment = lambda name: module.calls.append(("experiment", name))
    module.log_params = lambda values: module.calls.append(("params", values))
    module.log_metrics = lambda values, step: module.calls.append(("metrics", step, values))
    module.end_run = lambda: module.calls.append(("end",))
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return module.calls


def test_tensorboard_gets_every_figure_of_the_log(tmp_path, tensorboard):
    train({**CONFIG, "logging": {"tensorboard": True}}, folder=tmp_path)
    (writer,) = tensorboard
    assert writer.folder == str(tmp_path / "tensorboard")
    assert writer.closed
    lines = logged(tmp_path)
    expected = [(name, value, line["step"]) for line in lines for name, value in figures_of(line).items()]
    assert writer.scalars == expected
    assert {"train/loss", "train/terms/contrastive", "validation/map_at_r"} <= {name for name, _, _ in expected}


def test_a_resumed_run_purges_what_came_after_its_checkpoint(tmp_path, tensorboard):
    config = {**CONFIG, "logging": {"tensorboard": True}}
    with pytest.raises(KilledError):
        train(config, folder=tmp_path, progress=kill)
    assert tensorboard[0].closed
    train(config, folder=tmp_path)
    assert [writer.purge_step for writer in tensorboard] == [0, 3]
    assert {step for _, _, step in tensorboard[1].scalars} == {3, 4}


def test_mlflow_goes_on_with_the_same_run(tmp_path, mlflow):
    config = {**CONFIG, "logging": {"mlflow": "birds"}}
    with pytest.raises(KilledError):
        train(config, folder=tmp_path, progress=kill)
    train(config, folder=tmp_path)
    assert [call[1] for call in mlflow if call[0] == "experiment"] == ["birds", "birds"]
    assert [call[1] for call in mlflow if call[0] == "start"] == [{"run_name": "contrastive-0"}, {"run_id": "abc"}]
    (parameters,) = [call[1] for call in mlflow if call[0] == "params"]
    assert parameters["optimizer.lr"] == 3e-3
    assert parameters["method"] == "contrastive"
    assert sum(call[0] == "end" for call in mlflow) == 2
    last = [call for call in mlflow if call[0] == "metrics"][-1]
    assert last[1] == 4
    assert last[2] == figures_of(logged(tmp_path)[-1])


@pytest.mark.parametrize(
    ("logging", "package"), [({"tensorboard": True}, "tensorboard"), ({"mlflow": "birds"}, "mlflow")]
)
def test_a_missing_package_is_a_message(tmp_path, monkeypatch, logging, package):
    for module in ("torch.utils.tensorboard", "mlflow"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        EquimetricError, match=f"logging.{package} needs the package '{package}'.*pip install {package}"
    ):
        train({**CONFIG, "logging": logging}, folder=tmp_path)


def test_where_figures_go_is_no_part_of_what_a_run_is(tmp_path, tensorboard):
    with pytest.raises(KilledError):
        train(CONFIG, folder=tmp_path, progress=kill)
    train({**CONFIG, "logging": {"tensorboard": True}}, folder=tmp_path)
    assert [line["step"] for line in logged(tmp_path) if line["kind"] == "train"] == [1, 2, 3, 4]
    assert {step for _, _, step in tensorboard[0].scalars} == {3, 4}
