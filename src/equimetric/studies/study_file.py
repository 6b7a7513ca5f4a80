"""Read a study file and complete it by its protocol."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from equimetric.protocols import apply_protocol, find_protocol
from equimetric.runs.configuration import DataConfig
from equimetric.runs.plugin_config import load_with_plugins
from equimetric.studies.configuration import StudyConfig

__all__ = ["load_study_config"]


def load_study_config(
    study: StudyConfig | Mapping[str, Any] | str | Path, overrides: Mapping[str, Any] | None = None
) -> StudyConfig:
    """The study of a TOML file, a mapping or a model, with dotted keys overridden and completed by its protocol.

    A protocol file is looked for beside the study file first.
    """
    folder = Path() if isinstance(study, (Mapping, StudyConfig)) else Path(study).parent

    def complete(values: dict[str, Any]) -> dict[str, Any]:
        name = str(values.get("protocol", "quick"))
        candidate = folder / name
        protocol = find_protocol(candidate if name.endswith(".toml") and candidate.exists() else name)
        return apply_protocol(values, protocol, data=DataConfig.model_fields["name"].default)

    return load_with_plugins(study, StudyConfig, overrides, complete=complete)
