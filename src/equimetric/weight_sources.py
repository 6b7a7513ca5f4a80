"""The sources of pretrained backbone weights, in words; without torch."""

from importlib.util import find_spec

__all__ = ["LIBRARY_MODELS", "describe_library_weights", "describe_weights"]

LIBRARY_MODELS = {
    "timm:<model>": "any classification model of timm, such as timm:resnet50 or timm:vit_base_patch16_224",
    "torchvision:<model>": "any classification model of torchvision, such as torchvision:resnet50",
}
"""Name patterns of library models and their descriptions."""


def describe_weights(package: str | None, public_file: str | None) -> str:
    """Values of `pretrained` for a backbone with weights in a Python package, or in a file in common use."""
    if package is not None:
        return f"'package' ({package} of equimetric[pretrained], {_installed(package)}), or a file"
    return "a file" if public_file is None else f"a file, such as {public_file}"


def describe_library_weights(library: str) -> str:
    """Values of `pretrained` for the models of a library."""
    return f"'{library}' (downloads; equimetric[vision], {_installed(library)}), or a file"


def _installed(package: str) -> str:
    return "installed" if find_spec(package) else "not installed"
