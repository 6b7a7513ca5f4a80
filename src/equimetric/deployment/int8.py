"""An ONNX graph in int8: weights and activations of convolutions and attention in 8 bits, heads in float32.

Ranges of activations are those seen on training images, none of them from the classes that the threshold is calibrated
on. Weights have a scale of their own per output channel. The first convolution, heads and the cohort stay in float32:
they cost little and matter much. Processors without 8-bit dot products (VNNI) may saturate and compute something else,
which the canaries show.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.data import Images
from equimetric.deployment.graphs import write_cohort_graph
from equimetric.deployment.network import CohortLayer
from equimetric.errors import EquimetricError
from equimetric.evaluation import Cohort
from equimetric.extras import import_extra

__all__ = ["append_cohort", "quantize_graph"]

RANGE_IMAGES = 256
"""Number of training images that determine the ranges of activations."""
IMAGES_PER_BATCH = 16
LAYERS = ["Conv", "MatMul", "Clip", "Relu", "Add"]
"""Activations too, or their inputs would take up the range. Heads are linear layers of single vectors: Gemm."""


class RangeImages:
    """Batches of training images, as ONNX Runtime asks for them."""

    def __init__(self, images: Images) -> None:
        chosen = torch.linspace(0, len(images) - 1, min(RANGE_IMAGES, len(images))).long()
        self.batches: Iterator[Tensor] = (images[rows] for rows in torch.split(chosen, IMAGES_PER_BATCH))

    def get_next(self) -> dict[str, NDArray[np.uint8]] | None:
        """The inputs of the next batch; None after the last."""
        batch = next(self.batches, None)
        return None if batch is None else {"images": np.ascontiguousarray(batch.numpy())}


def quantize_graph(source: Path, target: Path, images: Images) -> None:
    """Write the int8 form of a graph; `images` are training images (N, C, S, S)."""
    quantization: Any = import_extra("onnxruntime.quantization", "--int8", "onnxruntime", "onnx")
    preprocess: Any = import_extra("onnxruntime.quantization.shape_inference", "--int8", "onnxruntime", "onnx")
    onnx: Any = import_extra("onnx", "--int8", "onnx", "onnx")
    prepared = target.with_suffix(".prepared.onnx")
    with quiet_quantizer():
        preprocess.quant_pre_process(source, prepared, skip_symbolic_shape=True)
        quantization.quantize_static(
            prepared,
            target,
            RangeImages(images),
            op_types_to_quantize=LAYERS,
            nodes_to_exclude=first_convolution(onnx.load(prepared).graph.node),
            per_channel=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
        quantized = any(node.op_type == "QuantizeLinear" for node in onnx.load(target).graph.node)
    prepared.unlink()
    if not quantized:
        raise EquimetricError("this model has no convolution and no attention to quantise; export it without --int8")


def first_convolution(nodes: Iterable[Any]) -> list[str]:
    """The first convolution, where there are others: it is cheap, and its errors propagate to all layers."""
    names = [node.name for node in nodes if node.op_type == "Conv"]
    return names[:1] if len(names) > 1 else []


def append_cohort(file: Path, cohort: Cohort, dim: int) -> None:
    """Extend a graph of plain embeddings by those normalised by a cohort, `query` and `gallery`."""
    onnx: Any = import_extra("onnx", "--int8", "onnx", "onnx")
    tail = file.with_suffix(".cohort.onnx")
    write_cohort_graph(CohortLayer(cohort), dim, tail)
    network, extension = onnx.load(file), onnx.load(tail)
    extension = onnx.compose.add_prefix(extension, "cohort.", rename_inputs=False, rename_outputs=False)
    extension.ir_version = network.ir_version
    merged = onnx.compose.merge_models(
        network, extension, io_map=[("embedding", "unit")], outputs=["embedding", "query", "gallery"]
    )
    file.write_bytes(merged.SerializeToString())
    tail.unlink()


@contextmanager
def quiet_quantizer() -> Iterator[None]:
    """Silence advice of the quantiser that is already followed."""
    previous_level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(previous_level)
