"""Runtimes of a deployed network: PyTorch, ONNX Runtime, or an exported program of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from equimetric.data.decoding import available_cores
from equimetric.extras import import_extra

__all__ = ["Arithmetic", "OnnxRuntime", "Runtime", "RuntimeName", "TorchRuntime", "load_program"]

RuntimeName: TypeAlias = Literal["torch", "onnx"]
Arithmetic: TypeAlias = Literal["float32", "int8"]
"""The `runtime` of a certificate: PyTorch and ONNX Runtime agree in float32 to 1e-5, int8 is another model."""

Arrays: TypeAlias = Mapping[str, NDArray[Any]]


class Runtime(Protocol):
    """Computes the outputs of a network."""

    @property
    def title(self) -> str:
        """Name and version."""

    def run(self, images: NDArray[np.uint8]) -> Arrays:
        """(B, C, S, S) → outputs by name, each (B, …) float32."""


class TorchRuntime:
    """A module in this process."""

    title = f"torch {torch.__version__}"

    def __init__(self, network: nn.Module, outputs: Sequence[str]) -> None:
        self.network = network
        self.outputs = tuple(outputs)

    def run(self, images: NDArray[np.uint8]) -> Arrays:
        """The outputs of the module."""
        with torch.inference_mode():
            results = self.network(torch.from_numpy(images))
        return {name: rows.float().numpy() for name, rows in zip(self.outputs, results, strict=True)}


class OnnxRuntime:
    """A session of ONNX Runtime on the processor."""

    def __init__(self, content: bytes) -> None:
        package = import_extra("onnxruntime", "the runtime 'onnx'", "onnxruntime", "onnx", "use the runtime 'torch'")
        self.title = f"onnxruntime {package.__version__}"
        options = package.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = min(torch.get_num_threads(), available_cores())
        self.session = package.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        self.outputs = tuple(output.name for output in self.session.get_outputs())

    def run(self, images: NDArray[np.uint8]) -> Arrays:
        """The outputs of the graph."""
        (name,) = (graph_input.name for graph_input in self.session.get_inputs())
        results = self.session.run(None, {name: np.ascontiguousarray(images)})
        return dict(zip(self.outputs, results, strict=True))


def load_program(content: bytes, outputs: Sequence[str]) -> TorchRuntime:
    """The program of a .pt2 file, read by PyTorch's own loader: only on request, and where the file is trusted."""
    runtime = TorchRuntime(torch.export.load(BytesIO(content)).module(), outputs)
    runtime.title = f"torch.export program, torch {torch.__version__}"
    return runtime
