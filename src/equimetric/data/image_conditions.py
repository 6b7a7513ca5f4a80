"""Conditions of test images, such as "blur:2": what a camera, a codec or a change of place does to a picture.

A condition changes an image after the test view, at three levels, and keeps its size. What is random follows from the
pixels themselves, so an image looks the same at any position in a data set; all levels share their draws, so that a
higher one goes farther in the same direction.
"""

import hashlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError
from equimetric.registry import Registry
from equimetric.seeding import derive_seed

__all__ = [
    "IMAGE_CONDITIONS",
    "ConditionKind",
    "ConditionRecord",
    "ImageCondition",
    "image_condition",
    "list_conditions",
    "parse_condition",
]

Pixels: TypeAlias = NDArray[np.uint8]
ConditionKind: TypeAlias = Literal["corruption", "viewpoint"]
Change: TypeAlias = Callable[[Pixels, Any, np.random.Generator], Pixels]
"""(pixels (H, W, C), strength, random numbers) → pixels (H, W, C); the first are left as they are."""

LEVELS = (1, 2, 3)


@dataclass(frozen=True)
class ConditionRecord:
    """A kind of change with the strength of each level."""

    name: str
    kind: ConditionKind
    description: str
    strengths: tuple[float, float, float]
    change: Change


IMAGE_CONDITIONS: Registry[ConditionRecord] = Registry("image condition", "equimetric.data")


def image_condition(
    name: str, *, kind: ConditionKind, strengths: tuple[float, float, float]
) -> Callable[[Change], Change]:
    """Register a change of images; the first line of its docstring is the description."""

    def decorate(change: Change) -> Change:
        description = (inspect.getdoc(change) or "").partition("\n")[0].rstrip(".")
        record = ConditionRecord(name, kind, description, strengths, change)
        IMAGE_CONDITIONS.add(name, record, module=change.__module__)
        return change

    return decorate


@dataclass(frozen=True)
class ImageCondition:
    """One condition at one level; `str` gives its name, such as "blur:2"."""

    name: str
    level: int

    def __post_init__(self) -> None:
        IMAGE_CONDITIONS.find(self.name)
        if self.level not in LEVELS:
            raise EquimetricError(f"{self.name} has the levels 1, 2 and 3, not {self.level}; write {self.name}:2, say")

    def __str__(self) -> str:
        return f"{self.name}:{self.level}"

    @property
    def record(self) -> ConditionRecord:
        """Its registry entry."""
        return IMAGE_CONDITIONS[self.name]

    @property
    def fingerprint(self) -> str:
        """Name, level and strength, which distinguish changed images from unchanged ones."""
        return f"{self} {self.record.strengths[self.level - 1]!r}"

    def __call__(self, pixels: Pixels) -> Pixels:
        """(H, W, C) uint8, grey or RGB → the same shape."""
        content = hashlib.sha256(f"{pixels.shape}".encode() + np.ascontiguousarray(pixels).tobytes()).hexdigest()
        random = np.random.default_rng(derive_seed(content, self.name))
        return self.record.change(pixels, self.record.strengths[self.level - 1], random)


def parse_condition(text: str) -> ImageCondition:
    """'blur:2' → the second level of blur."""
    name, colon, level = text.partition(":")
    if colon and not level.isdecimal():
        raise EquimetricError(f"a condition is a name and a level from 1 to 3, such as 'blur:2', not {text!r}")
    if not colon:
        IMAGE_CONDITIONS.find(name)
        raise EquimetricError(f"give the condition {name!r} a level from 1 to 3, such as '{name}:2'")
    return ImageCondition(name, int(level))


def list_conditions(kind: ConditionKind | None = None) -> list[ImageCondition]:
    """All conditions of a kind, or of every kind, at all levels: corruptions first, by name."""
    records = sorted(IMAGE_CONDITIONS.values(), key=lambda record: (record.kind, record.name))
    return [ImageCondition(record.name, level) for record in records if kind in (None, record.kind) for level in LEVELS]
