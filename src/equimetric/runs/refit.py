"""The table [refit] of a configuration: a final model of a finished run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from equimetric.configuration import Strict
from equimetric.errors import EquimetricError

__all__ = ["RefitConfig"]

FINAL_MODEL_PARTS = {"training": ("validation",), "all": ("validation", "test")}
"""Parts that a final model trains on in addition to the training classes of its source."""


class RefitConfig(Strict):
    """A final model: a finished run, its source, repeated on more classes for the steps that its validation chose."""

    classes: Literal["training", "all"] = Field(
        description="train on the 'training' classes, validation included, or on 'all', test included, for deployment"
    )
    steps: int = Field(ge=1, description="the best step of the source; its schedule is kept up to there")
    lowered_at: list[int] = Field(
        default_factory=list, description="steps at which the source lowered its rates, of schedule 'plateau'"
    )
    source: str = Field(description="hash of the source, as in the name of its folder")
    folder: str = Field("", description="folder of the source")

    @property
    def added_parts(self) -> tuple[str, ...]:
        """Parts of the source's split that train, too."""
        return FINAL_MODEL_PARTS[self.classes]

    def require_unseen(self, part: str) -> None:
        """Raise an error where a part of the split has been trained on."""
        if part in self.added_parts:
            source = f", {self.folder!r}" if self.folder else ""
            raise EquimetricError(
                f"this final model was trained on its {part} classes, so they cannot measure it; "
                f"evaluate the run that it repeats{source}, or other images"
            )
