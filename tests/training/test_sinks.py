"""TensorBoard and MLflow beside the log, with stand-ins for the packages."""

import json
import sys
from types import ModuleType, SimpleNamespace

import pytest

from equimetric.errors import EquimetricError
from equimetric.training import train
from equimetric.training.sinks import scalars_of

CONFIG = {
    "method": "contrastive",
    "data": {"name": "digits"},
    "model": {"dim": 8},
    "batch": {"classes": 2, "samples": 4},
    "training": {"steps": 4, "validate_every": 2, "log_every": 1, "checkpoint_seconds": 0},
}


class KilledError(Exception):
    pass


class RefusedError(Exception):
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
    """Keeps what is logged, as a server would: a run that is started again knows its metrics."""
    module = ModuleType("mlflow")
    module.calls, history = [], {}

    def start_run(**given):
        module.calls.append(("start", given))
        metrics = {name: values[-1] for name, values in history.items()}
        return SimpleNamespace(info=SimpleNamespace(run_id="abc"), data=SimpleNamespace(metrics=metrics))

    def log_metrics(values, step):
        module.calls.append(("metrics", step, values))
        for name, value in values.items():
            history.setdefault(name, []).append(SimpleNamespace(step=step, value=value))

    module.start_run = start_run
    module.set_experiment = lambda name: module.calls.append(("experiment", name))
    module.log_params = lambda values: module.calls.append(("params", values))
    module.log_metrics = log_metrics
    module.MlflowClient = lambda: SimpleNamespace(get_metric_history=lambda run_id, name: history[name])
    module.end_run = lambda status: module.calls.append(("end", status))
    module.exceptions = SimpleNamespace(MlflowException=RefusedError)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    return module


def test_tensorboard_gets_every_figure_of_the_log(tmp_path, tensorboard):
    train({**CONFIG, "logging": {"tensorboard": True}}, folder=tmp_path)
    (writer,) = tensorboard
    assert writer.folder == str(tmp_path / "tensorboard")
    assert writer.closed
    lines = logged(tmp_path)
    expected = [(name, value, line["step"]) for line in lines for name, value in scalars_of(line).items()]
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
    calls = mlflow.calls
    assert [call[1] for call in calls if call[0] == "experiment"] == ["birds", "birds"]
    assert [call[1] for call in calls if call[0] == "start"] == [{"run_name": "contrastive-0"}, {"run_id": "abc"}]
    (parameters,) = [call[1] for call in calls if call[0] == "params"]
    assert parameters["optimizer.lr"] == 3e-3
    assert parameters["method"] == "contrastive"
    assert None not in parameters.values()
    assert [call[1] for call in calls if call[0] == "end"] == ["FAILED", "FINISHED"]
    # Step 3 was logged before the kill and taken again after it.
    metrics = [call[1:] for call in calls if call[0] == "metrics"]
    assert [step for step, values in metrics if "train/loss" in values] == [1, 2, 3, 4]
    assert metrics[-1] == (4, scalars_of(logged(tmp_path)[-1]))


def test_what_mlflow_refuses_is_one_sentence(tmp_path, mlflow):
    def refuse(name):
        raise RefusedError("The backend is in maintenance mode. Please migrate.\nAt length.")

    mlflow.set_experiment = refuse
    with pytest.raises(EquimetricError, match=r"^logging.mlflow: The backend is in maintenance mode; set the .*sqlite"):
        train({**CONFIG, "logging": {"mlflow": "birds"}}, folder=tmp_path)


@pytest.mark.parametrize(
    ("logging", "package"), [({"tensorboard": True}, "tensorboard"), ({"mlflow": "birds"}, "mlflow")]
)
def test_a_missing_package_is_a_message(tmp_path, monkeypatch, logging, package):
    for module in ("torch.utils.tensorboard", "mlflow"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        EquimetricError, match=rf"logging.{package} needs the package '{package}'.*pip install 'equimetric\[tracking\]'"
    ):
        train({**CONFIG, "logging": logging}, folder=tmp_path)


def test_where_figures_go_is_no_part_of_what_a_run_is(tmp_path, tensorboard):
    with pytest.raises(KilledError):
        train(CONFIG, folder=tmp_path, progress=kill)
    train({**CONFIG, "logging": {"tensorboard": True}}, folder=tmp_path)
    assert [line["step"] for line in logged(tmp_path) if line["kind"] == "train"] == [1, 2, 3, 4]
    assert {step for _, _, step in tensorboard[0].scalars} == {3, 4}
