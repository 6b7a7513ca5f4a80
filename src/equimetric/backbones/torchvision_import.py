"""Import torchvision and timm, even with a PyTorch that torchvision's compiled operators were not built for."""

from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from equimetric.errors import EquimetricError

__all__ = ["import_vision_library"]

_declarations: list[Any] = []
"""Keeps the declarations alive."""


def import_vision_library(name: str) -> ModuleType:
    """The module `timm` or `torchvision.models`, or an error that says how to install it.

    The torchvision of the package index is compiled for the PyTorch of the package index. With a CPU-only PyTorch its
    compiled operators (box suppression and others that no classifier uses) do not load. torchvision tolerates that
    except in one place, where it describes two operators that are then undeclared. Declaring them here makes
    everything but the compiled operators work.
    """
    try:
        try:
            return import_module(name)
        except RuntimeError as error:
            if "torchvision::nms does not exist" not in str(error):
                raise
            operators: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
            for operator in ("nms", "qnms"):
                operators.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _declarations.append(operators)
            return import_module(name)
    except ImportError as error:
        library = name.partition(".")[0]
        raise EquimetricError(
            f"models of {library} need the package {library} ({error}): pip install 'equimetric[vision]'"
        ) from error
    except RuntimeError as error:
        raise EquimetricError(
            f"torch {torch.__version__} and the installed torchvision do not go together ({error}); install both again "
            "from one package index, in versions that belong together: pip install --force-reinstall torch torchvision"
        ) from error
