"""`equimetric.load`: a model from its folder, exported or of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load as parse_safetensors

from equimetric.calibration.cohort import CertifiedCohort
from equimetric.configuration import load_config
from equimetric.deployment.embedder import AnyCertificate, Embedder
from equimetric.deployment.folder import COHORT, CONFIG, WEIGHTS, ModelFolder, is_model_folder
from equimetric.deployment.network import DeployedNetwork
from equimetric.deployment.runtimes import OnnxRuntime, Runtime, RuntimeName, TorchRuntime
from equimetric.deployment.state import load_deployed_state
from equimetric.errors import DamagedFileError, EquimetricError, unknown_name
from equimetric.evaluation import Cohort
from equimetric.runs.building import build_learner
from equimetric.runs.configuration import RunConfig
from equimetric.runs.model import TrainedModel, load_run, parse_weights
from equimetric.runs.result import DataShape

__all__ = ["load", "load_exported"]

RUNTIMES = ("torch", "onnx")


def load(folder: str | Path, *, runtime: RuntimeName | None = None, task: str | None = None) -> Embedder | TrainedModel:
    """The model in a folder: an `Embedder` of an exported one, a `TrainedModel` of a finished run.

    runtime  runtime of an exported model: 'torch', or 'onnx' for ONNX Runtime; by default torch, for int8 onnx
    task     'verification' or 'identification', where the certificate must be of this task

    The certificate is checked against model, preprocessing, dimension and arithmetic; anything that differs is an error
    that says what.
    """
    path = Path(folder)
    if is_model_folder(path):
        return load_exported(path, runtime=runtime, task=task)
    if runtime is not None or task is not None:
        raise EquimetricError(
            f"{str(folder)!r} holds no exported model; write one with equimetric export, or load the "
            "run without runtime and task"
        )
    return load_run(path)


def load_exported(folder: str | Path, *, runtime: RuntimeName | None = None, task: str | None = None) -> Embedder:
    """An exported model, with its certificate checked."""
    opened = ModelFolder.open(Path(folder))
    preprocessing = opened.preprocessing()
    certificate = opened.certificate(preprocessing)
    cohort = read_model_cohort(opened, certificate)
    model = Embedder(
        preprocessing=preprocessing,
        runtime=open_runtime(opened, runtime, cohort),
        arithmetic=opened.arithmetic,
        dim=int(opened.config["dim"]),
        model=opened.model,
        certificate=certificate,
        cohort=cohort,
    )
    if task is not None:
        model.require_certificate(task)
    return model


def open_runtime(opened: ModelFolder, runtime: RuntimeName | None, cohort: Cohort | None) -> Runtime:
    """The network in one of the runtimes."""
    if runtime is not None and runtime not in RUNTIMES:
        raise unknown_name("runtime", runtime, RUNTIMES)
    if runtime == "torch" and opened.arithmetic == "int8":
        raise EquimetricError("an int8 model runs in ONNX Runtime alone; choose the runtime 'onnx'")
    if runtime == "onnx" or opened.arithmetic == "int8":
        return OnnxRuntime(opened.read(opened.onnx))
    return TorchRuntime(build_deployed_network(opened, cohort), opened.outputs)


def build_deployed_network(opened: ModelFolder, cohort: Cohort | None) -> DeployedNetwork:
    """The network of an exported model in PyTorch."""
    try:
        shape = DataShape.model_validate(opened.config["data_shape"])
        learner = build_learner(load_config(dict(opened.config["run"]), RunConfig), shape, pretrained=False).float()
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedFileError(f"{opened.path / CONFIG} is damaged ({error})", "export the run again") from None
    load_deployed_state(learner, parse_weights(opened.path / WEIGHTS, opened.read(WEIGHTS)))
    return DeployedNetwork(learner, cohort).eval()


def read_model_cohort(opened: ModelFolder, certificate: AnyCertificate | None) -> Cohort | None:
    """The cohort of an exported model; one that the certificate is not for is refused."""
    setting: Mapping[str, Any] | None = opened.config.get("cohort")
    if setting is None:
        return None
    embeddings = parse_safetensors(opened.read(COHORT))["embeddings"]
    cohort = Cohort(embeddings, None, setting["strength"], setting["nearest"], setting["form"])
    certified: CertifiedCohort | None = None if certificate is None else certificate.cohort
    return cohort if certified is None else certified.require(cohort)
