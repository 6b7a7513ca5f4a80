"""The network as files that need no Equimetric: a program of torch.export, and a graph of ONNX."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.export import ExportedProgram

from equimetric.deployment.network import CohortLayer, DeployedNetwork
from equimetric.errors import EquimetricError
from equimetric.extras import import_extra

__all__ = ["export_program", "require_onnx", "write_cohort_graph", "write_onnx", "write_program"]

BATCH = "batch"
EXAMPLES = 3
"""Images that a network is traced with; the graph takes any number."""
LOGGER = "torch.onnx"


def require_onnx(otherwise: str) -> None:
    """Raise an error where a package that writing or running ONNX needs is not installed."""
    for package in ("onnx", "onnxscript", "onnxruntime"):
        import_extra(package, "the ONNX file of an export", package, "onnx", otherwise)


def export_program(network: DeployedNetwork, channels: int, size: int, subject: str) -> ExportedProgram:
    """The network as one traced program, for any number of uint8 images (B, C, S, S)."""
    images = torch.zeros(EXAMPLES, channels, size, size, dtype=torch.uint8)
    shapes = {"images": {0: torch.export.Dim(BATCH, min=1)}}
    try:
        with quiet_exporter():
            return torch.export.export(network, (images,), dynamic_shapes=shapes)
    except Exception as error:  # what a learner does with its tensors decides what the tracer raises
        reason = str(error).partition("\n")[0]
        raise EquimetricError(
            f"{subject} cannot be exported, because torch.export cannot trace it ({reason}); embed with "
            "equimetric.load(RUN), or choose another learner"
        ) from None


def write_program(program: ExportedProgram, file: Path) -> None:
    """Write a program for `torch.export.load`."""
    with quiet_exporter():
        torch.export.save(program, file)


def write_onnx(program: ExportedProgram, file: Path, outputs: Sequence[str], input_name: str = "images") -> None:
    """Write a program as an ONNX graph with one input and these outputs; the number of rows is free."""
    onnx: Any = import_extra("onnx", "the ONNX file of an export", "onnx", "onnx", "give --no-onnx")
    with quiet_exporter():
        exported = torch.onnx.export(
            program, (), input_names=[input_name], output_names=list(outputs), dynamo=True, verbose=False
        )
    assert exported is not None
    graph = exported.model_proto
    batch_param = graph.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*graph.graph.input, *graph.graph.output, *graph.graph.value_info):
        for dimension in value.type.tensor_type.shape.dim:
            if dimension.dim_param == batch_param:
                dimension.dim_param = BATCH
    onnx.checker.check_model(graph)
    file.write_bytes(graph.SerializeToString())


def write_cohort_graph(layer: CohortLayer, dim: int, file: Path) -> None:
    """Write a cohort as an ONNX graph of its own: `unit` (B, D) → `query` and `gallery` (B, E)."""
    shapes = {"unit": {0: torch.export.Dim(BATCH, min=1)}}
    with quiet_exporter():
        program = torch.export.export(layer, (torch.zeros(EXAMPLES, dim),), dynamic_shapes=shapes)
    write_onnx(program, file, ("query", "gallery"), input_name="unit")


@contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silence log messages of PyTorch's exporters about their own internals."""
    logger = logging.getLogger(LOGGER)
    previous_level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(previous_level)
