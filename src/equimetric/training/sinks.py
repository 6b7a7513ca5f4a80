"""Destinations of a run's metrics: its own log, and on request TensorBoard and MLflow."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol

from equimetric.checksums import json_document, read_document, read_json
from equimetric.dotted import flatten
from equimetric.errors import DamagedFileError, EquimetricError
from equimetric.extras import import_extra
from equimetric.runs.configuration import RunConfig
from equimetric.runs.folder import RunFolder

__all__ = ["Log", "Sink", "open_log"]


class Sink(Protocol):
    """A destination of a run's metrics."""

    def write(self, scalars: Mapping[str, float], step: int) -> None:
        """Write the values of one step, by names such as 'validation/map_at_r'."""

    def close(self, *, finished: bool) -> None:
        """Close after the last values of a finished or failed run."""


class Log:
    """Writes each record as a line of the run's metrics.jsonl and passes its numbers to the sinks."""

    def __init__(self, run: RunFolder, sinks: list[Sink]) -> None:
        self.run = run
        self.sinks = sinks

    def write(self, record: Mapping[str, Any]) -> None:
        """Log a record with a kind and a step."""
        self.run.log(record)
        for sink in self.sinks:
            sink.write(scalars_of(record), record["step"])


def scalars_of(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a record under names that both services take: {'train/loss': …, 'train/terms/margin': …}."""
    scalars: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, Mapping):
            scalars |= {f"{record['kind']}/{name}/{inner}": number for inner, number in value.items()}
        elif name not in ("kind", "step"):
            scalars[f"{record['kind']}/{name}"] = value
    return {
        "".join(c if c.isalnum() or c in "/_-." else "_" for c in name.replace("@", "_at_")): value
        for name, value in scalars.items()
    }


class TensorBoardSink:
    """Event files in the folder `tensorboard` of the run."""

    def __init__(self, run: RunFolder, first_step: int) -> None:
        module = import_extra("torch.utils.tensorboard", "logging.tensorboard", "tensorboard", "tracking")
        self.run = run
        with run.explain_write_errors():
            # Purge what was written after the checkpoint that the run resumes from.
            self.writer = module.SummaryWriter(
                str(run.path / "tensorboard"), purge_step=first_step + 1 if first_step else 0
            )

    def write(self, scalars: Mapping[str, float], step: int) -> None:
        """Write scalars."""
        with self.run.explain_write_errors():
            for name, value in scalars.items():
                self.writer.add_scalar(name, value, step)

    def close(self, *, finished: bool) -> None:  # noqa: ARG002  (as every sink)
        """Close the event file."""
        self.writer.close()


class MLflowSink:
    """A run of an MLflow experiment; its id is kept in the run's folder, so that a resumed run continues it.

    MLflow deletes nothing: steps after the checkpoint that a run resumes from are logged already, with the same
    values, and are not logged again.
    """

    def __init__(self, run: RunFolder, config: RunConfig) -> None:
        self.mlflow = import_extra("mlflow", "logging.mlflow", "mlflow", "tracking")
        self.last_steps: dict[str, int] = {}
        id_file = run.path / "mlflow_run"
        with self.explain_errors():
            self.mlflow.set_experiment(config.logging.mlflow)
            run_id = read_mlflow_run_id(id_file)
            if run_id is not None:
                mlflow_run = self.mlflow.start_run(run_id=run_id)
                self.last_steps = self.logged_before(mlflow_run)
                return
            mlflow_run = self.mlflow.start_run(run_name=f"{config.method}-{config.seed}")
            run.write("mlflow_run", json_document({"run_id": mlflow_run.info.run_id}))
            # Keys without a value are left out.
            values = flatten(config.model_dump())
            self.mlflow.log_params({name: value for name, value in values if value is not None})

    def logged_before(self, mlflow_run: Any) -> dict[str, int]:
        """The last step of every figure of a run."""
        history = self.mlflow.MlflowClient().get_metric_history
        run_id = mlflow_run.info.run_id
        return {name: max(entry.step for entry in history(run_id, name)) for name in mlflow_run.data.metrics}

    def write(self, scalars: Mapping[str, float], step: int) -> None:
        """Log metrics."""
        new = {name: value for name, value in scalars.items() if step > self.last_steps.get(name, -1)}
        if new:
            with self.explain_errors():
                self.mlflow.log_metrics(new, step=step)

    def close(self, *, finished: bool) -> None:
        """End the run."""
        self.mlflow.end_run("FINISHED" if finished else "FAILED")

    @contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Turn an error of MLflow into one sentence."""
        try:
            yield
        except self.mlflow.exceptions.MlflowException as error:
            reason = str(error).partition("\n")[0].partition(". ")[0]
            raise EquimetricError(
                f"logging.mlflow: {reason}; set the environment variable MLFLOW_TRACKING_URI to a server, or to a file "
                "such as sqlite:///mlflow.db, or leave it out"
            ) from error


def read_mlflow_run_id(file: Path) -> str | None:
    """The id of the MLflow run that a run has begun; None without one, or, with a warning, if the file is damaged."""
    if not file.exists():
        return None
    try:
        text = read_document(file, "")
        if text.isalnum():  # as older versions wrote it
            return text
        return str(read_json(file, dict, "")["run_id"])
    except (DamagedFileError, KeyError):
        warnings.warn(f"{file} is damaged; the figures go to a new run of MLflow from here on", stacklevel=2)
        return None


@contextmanager
def open_log(run: RunFolder, config: RunConfig, first_step: int) -> Iterator[Log]:
    """The log of a run from `first_step` on; sinks are closed at the end, also after an error."""
    with ExitStack() as stack:
        sinks: list[Sink] = []
        if run.writes and config.logging.tensorboard:
            sinks.append(stack.enter_context(closing(TensorBoardSink(run, first_step))))
        if run.writes and config.logging.mlflow is not None:
            sinks.append(stack.enter_context(closing(MLflowSink(run, config))))
        yield Log(run, sinks)


@contextmanager
def closing(sink: Sink) -> Iterator[Sink]:
    """Close a sink after the block, as finished or failed."""
    finished = False
    try:
        yield sink
        finished = True
    finally:
        sink.close(finished=finished)
