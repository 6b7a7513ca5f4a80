"""The configuration of a study: methods × seeds under equal conditions."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, get_args

from pydantic import Field, field_validator

from equimetric.configuration import Options, Strict
from equimetric.runs.configuration import Conditions, LearnerConfig

__all__ = ["Baseline", "MethodConfig", "StudyConfig"]

Baseline: TypeAlias = Literal["raw_pixels", "raw_features", "untrained"]

OF_THE_STUDY = ("study.toml", "data.json", "index.json", "report")
"""Files and folders of a study beside the folders of its rows."""

OF_THE_SYSTEM = {"con", "prn", "aux", "nul", *(f"{device}{n}" for device in ("com", "lpt") for n in range(1, 10))}
"""Names that some systems keep for devices, with any ending."""

LONGEST_NAME = 200
"""Bytes; file systems take 255, and files beside the folder have longer names."""


class MethodConfig(Strict):
    """What may differ between the methods of a study."""

    method: str = Field("", description="name of the method; default: the name of the table")
    options: Options = Field(default_factory=dict, description="options of the method")
    learner: LearnerConfig = Field(default_factory=LearnerConfig)
    objective_lr: float | None = Field(None, gt=0, description="learning rate of the objective's own parameters")

    @classmethod
    def explain_unknown(cls, path: str, key: str) -> str:
        """Point a condition to the tables of the whole study."""
        if key in Conditions.model_fields:
            return (
                f"{path}: {key!r} may not differ between methods, because the comparison would be unfair; "
                f"set it once for the whole study as [{key}]"
            )
        return super().explain_unknown(path, key)


class StudyConfig(Conditions):
    """A fair comparison: methods × seeds under equal conditions."""

    name: str = Field(description="name of the study and of its folder under the output folder")
    title: str = Field("", description="title of the report")
    seeds: list[int] = Field(default=[0, 1, 2], min_length=1, description="one run of every method for each seed")
    baselines: list[Baseline] | None = Field(
        None,
        description="untrained rows: raw_pixels, raw_features, untrained; default: those the data allow",
    )
    methods: dict[str, MethodConfig] = Field(min_length=1, description="one table for each method")
    workers: int = Field(2, ge=1, description="runs in parallel, each in its own process")

    @field_validator("name")
    @classmethod
    def _name_is_a_folder(cls, name: str) -> str:
        return check_folder_name(name)

    @field_validator("methods")
    @classmethod
    def _methods_are_folders(cls, methods: dict[str, MethodConfig]) -> dict[str, MethodConfig]:
        for name in methods:
            # Some file systems do not tell capitals from small letters.
            if check_folder_name(name).casefold() in (*get_args(Baseline), *OF_THE_STUDY):
                raise ValueError(f"{name!r} names a baseline or a file of the study; choose another name")
        return methods

    @field_validator("seeds")
    @classmethod
    def _seeds_differ(cls, seeds: list[int]) -> list[int]:
        if len(set(seeds)) < len(seeds) or min(seeds) < 0:
            raise ValueError("seeds must be different integers, 0 or larger")
        return seeds

    def conditions(self) -> dict[str, Any]:
        """The part that all runs share."""
        return self.model_dump(include=set(Conditions.model_fields))


def check_folder_name(name: str) -> str:
    """The name, if it can be a folder inside the run tree, on any system."""
    spelt = all(c.isalnum() or c in "._-+ " for c in name) and name == name.strip()
    if not name or name.startswith(".") or name.endswith(".") or not spelt:
        raise ValueError(f"{name!r} cannot be a folder name; use letters, digits and . _ - +")
    if len(name.encode()) > LONGEST_NAME:
        raise ValueError(f"{name[:20] + '…'!r} is too long for a folder name; use at most {LONGEST_NAME} letters")
    if name.casefold().partition(".")[0] in OF_THE_SYSTEM:
        raise ValueError(f"{name!r} is a device on some systems and cannot be a folder name; choose another")
    return name
