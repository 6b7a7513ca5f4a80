"""The rows of a study's table, and the configuration of any of their runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from equimetric.dotted import flatten, set_dotted
from equimetric.objectives import Context, build_objective
from equimetric.objectives.grammar import parse_method
from equimetric.runs.configuration import RunConfig
from equimetric.search_space import SearchSpace
from equimetric.studies.configuration import ArmConfig, MethodConfig, StudyConfig, is_condition

__all__ = ["BASE", "RowSpec", "find_points", "list_rows", "run_config", "tuned_conditions"]

BASE = ""
"""The point of a study itself, beside those of its sweeps."""

DETERMINISTIC = ("raw_pixels", "raw_features", "pretrained")
"""Baselines without randomness, where features come from fixed weights."""


@dataclass(frozen=True)
class RowSpec:
    """The definition of a row of the table.

    Attributes:
        name: name of the row.
        kind: 'trained' or 'baseline'.
        method, options, learner: settings of its runs.
        conditions: dotted keys in which it differs from the study.
        kinds: kind of its batches and family of its method, for sweeps that have points by kind.
        space: ranges to tune; empty where nothing is tuned.
        base: for an arm, the row whose tuned options it takes.
        seeds, folds: seeds and folds of its runs.
    """

    name: str
    kind: Literal["trained", "baseline"]
    method: str
    options: Mapping[str, Any]
    learner: Mapping[str, Any]
    conditions: Mapping[str, Any]
    seeds: tuple[int, ...]
    folds: tuple[int, ...]
    kinds: tuple[str, ...]
    space: Mapping[str, SearchSpace] = field(default_factory=dict)
    base: str | None = None

    def tuned_options(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters that were tuned for the row's base, as this row takes them."""
        if self.base is None:
            return dict(params)
        # In a sum an option names its term.
        qualified = "+" in self.method
        first_term = parse_method(self.method)[0][1].name if qualified else ""
        return {
            key if is_condition(key) or not qualified else f"{first_term}.{key}": value for key, value in params.items()
        }


def list_rows(study: StudyConfig) -> dict[str, RowSpec]:
    """All rows by name: baselines, methods, arms."""
    rows = [baseline_row(study, name) for name in study.baselines or ()]
    methods = [method_row(study, name, method) for name, method in study.methods.items()]
    arms = [
        arm_row(row, name, arm)
        for name, arm in study.arms.items()
        for row in methods
        if arm.of is None or row.name in arm.of
    ]
    return {row.name: row for row in (*rows, *methods, *arms)}


def baseline_row(study: StudyConfig, name: str) -> RowSpec:
    """A row of untrained networks: one run where it is deterministic, one fold where it does not depend on the fold."""
    fixed_features = study.model.pretrained is not None or study.data.name in ("features", "pairs")
    fixed = name == "raw_pixels" or (name in DETERMINISTIC and fixed_features)
    by_fold = name == "untrained" and study.model.head_init == "pca"
    return RowSpec(
        name,
        "baseline",
        method=name,
        options={},
        learner={"name": name},
        conditions={"model.head_init": "pca"} if name == "pretrained" else {},
        seeds=tuple(study.seeds[:1] if fixed else study.seeds),
        folds=tuple(study.folds() if by_fold else study.folds()[:1]),
        kinds=(study.batch.kind,),
    )


def method_row(study: StudyConfig, name: str, config: MethodConfig) -> RowSpec:
    """A row of a method, with the conditions of its family and its own."""
    method = config.method or name
    # A stored study is read without its plug-ins where nothing depends on the family of a method.
    by_family = study.families or any(sweep.kinds for sweep in study.sweeps.values())
    family = parse_method(method)[0][1].family if by_family else ""
    conditions = {**study.families.get(family, {}), **config.conditions}
    if config.objective_lr is not None:
        conditions["optimizer.objective_lr"] = config.objective_lr
    return RowSpec(
        name,
        "trained",
        method=method,
        options=dict(config.options),
        learner=config.learner.model_dump(),
        conditions=conditions,
        seeds=tuple(study.seeds),
        folds=tuple(study.folds()),
        kinds=(conditions.get("batch.kind", study.batch.kind), family),
        space=tuned_space(study, method, config),
    )


def arm_row(row: RowSpec, name: str, arm: ArmConfig) -> RowSpec:
    """The row of a method with an arm's term, learner and conditions; it takes the options tuned for the method."""
    method = f"{row.method}+{arm.add}" if arm.add else row.method
    spec = RowSpec(
        f"{row.name}+{name}",
        "trained",
        method=method,
        options={},
        learner=arm.learner.model_dump() if arm.learner else row.learner,
        conditions={**row.conditions, **arm.conditions},
        seeds=row.seeds,
        folds=row.folds,
        kinds=(arm.conditions.get("batch.kind", row.kinds[0]), *row.kinds[1:]),
        base=row.name,
    )
    options = {**spec.tuned_options(dict(flatten(row.options))), **dict(flatten(arm.options))}
    return RowSpec(**{**vars(spec), "options": options})


def tuned_space(study: StudyConfig, method: str, config: MethodConfig) -> dict[str, SearchSpace]:
    """The ranges tuned for a method: its options, the study's ranges, and the learning rate of its own parameters."""
    if study.search is None:
        return {}
    explicit = {key: table.space() for key, table in (config.search or {}).items()}
    ranges = explicit if config.search is not None else default_space(method)
    space = {**{key: table.space() for key, table in study.search.ranges.items()}, **ranges}
    if study.search.objective_lr is not None and config.objective_lr is None and has_parameters(method, config.options):
        space.setdefault("optimizer.objective_lr", study.search.objective_lr.space())
    return space


def default_space(method: str) -> dict[str, SearchSpace]:
    """The registered ranges of a method's options; in a sum each option names its term."""
    terms = parse_method(method)
    return {
        f"{recipe.name}.{option}" if len(terms) > 1 else option: space
        for _, recipe in terms
        for option, space in recipe.search.items()
    }


def has_parameters(method: str, options: Mapping[str, Any]) -> bool:
    """Whether an objective has parameters of its own, such as proxies."""
    objective = build_objective(method, options, Context(classes=4, dim=4, images=16))
    return any(parameter.numel() for parameter in objective.parameters())


def find_points(study: StudyConfig, row: RowSpec | None = None) -> dict[str, dict[str, Any]]:
    """Label → conditions of every point, the study itself and those of its sweeps: of a row, or of all rows together.

    Of all rows together a point has the conditions that tell its data, which no kind of rows changes.
    """
    points: dict[str, dict[str, Any]] = {BASE: {}}
    for name in study.sweep:
        sweep = study.sweeps[name]
        if row is not None:
            points |= sweep.settings(*row.kinds)
        else:
            points |= {label: sweep.settings().get(label, {}) for label in sweep.labels()}
    return points


def tuned_conditions(rows: Iterable[RowSpec]) -> list[str]:
    """Dotted keys of the conditions that the search of any row tunes."""
    return list(dict.fromkeys(key for row in rows for key in row.space if is_condition(key)))


def run_config(
    study: StudyConfig,
    row: RowSpec,
    *,
    seed: int,
    fold: int,
    params: Mapping[str, Any] | None = None,
    point: Mapping[str, Any] | None = None,
) -> RunConfig:
    """The configuration of one run of a row, with tuned parameters, at a point of a sweep."""
    values = study.conditions()
    options = dict(row.options)
    for key, value in {**row.conditions, **(params or {}), **(point or {})}.items():
        if is_condition(key):
            set_dotted(values, key, value)
        else:
            options[key] = value
    values["data"]["fold"] = fold
    values |= {"method": row.method, "options": options, "learner": dict(row.learner), "seed": seed}
    values["plugins"] = study.plugins
    return RunConfig.model_validate(values)
