"""What a metric is: a parsed name, and the registered family that knows how to score it.

A family is one function under `@metric(...)` in a file of `evaluation/metrics`: the pattern of its names, the
collectors it reads, its score, and how it is resampled. Names are parsed without embeddings, so a configuration can be
checked before anything is computed.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from equimetric.errors import EquimetricError, unknown_name
from equimetric.registry import Registry

if TYPE_CHECKING:
    from equimetric.evaluation.engine.collector import Collector
    from equimetric.evaluation.evidence import Evidence, Score
    from equimetric.evaluation.resampling.class_statistics import ClassStatistic
    from equimetric.evaluation.result import Evaluation

__all__ = [
    "MACRO",
    "METRICS",
    "Metric",
    "MetricFamily",
    "check_metric_options",
    "check_multi_label_metrics",
    "check_one_class_metrics",
    "format_score",
    "list_metrics",
    "metric",
    "parse_metrics",
]

METRICS: "Registry[MetricFamily]" = Registry("metric", "equimetric.evaluation.metrics")
"""Every metric family by name, such as `recall@K`."""
MACRO = "macro:"
"""Prefix of a metric that is averaged over classes."""


@dataclass(frozen=True)
class Metric:
    """One metric as its name says it: `recall@10` is of the family `recall@K` with k = 10.

    name        as the user wrote it
    family      key in `METRICS`
    parameters  the typed parameters in the name, defaults filled in
    macro       the mean over classes of the means of each class: `macro:recall@10`
    """

    name: str
    family: str
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    macro: bool = False

    @classmethod
    def parse(cls, name: str) -> "Metric":
        """The metric of this name; a misspelt name raises an error that gives the nearest."""
        return _parse(name, tuple(METRICS))

    def __getitem__(self, parameter: str) -> Any:
        return self.parameters[parameter]


@lru_cache(maxsize=256)
def _parse(name: str, families: tuple[str, ...]) -> Metric:
    """The metric of this name among these families; cached, because every evaluation parses the same few names."""
    plain = name.removeprefix(MACRO)
    for family in map(METRICS.__getitem__, families):
        match = re.fullmatch(family.pattern, plain)
        if match is not None:
            if plain != name and not family.macro:
                raise EquimetricError(
                    f"{plain!r} is no mean over queries or pairs of single classes, so it has no macro average; "
                    f"write it without {MACRO!r}"
                )
            return Metric(name, family.name, family.read_parameters(match), plain != name)
    raise unknown_name("metric", plain, [example for family in METRICS.values() for example in family.examples])


ScoreFunction = Callable[[Metric, "Evidence"], "Score"]
Resample = Callable[[Metric, "Evaluation"], "ClassStatistic | None"]


@dataclass(frozen=True)
class MetricFamily:
    """All metrics of one pattern of names.

    name        how lists show it: `recall@K`, `tar@far=F`
    pattern     regular expression of a whole name; its named groups are the parameters
    examples    names to suggest for a misspelt one
    summary     one line
    collectors  classes of the collectors that `score` reads
    score       pure function of the metric and the finished collectors
    resample    the metric as a function of class weights; None where the evaluation does not hold what that needs
    parameters  name of a parameter → conversion of its text
    defaults    values of parameters that the name leaves out
    options     keyword options of `evaluate` that the family reads, with their defaults
    percent     shown as a percentage
    higher_is_better  whether the largest value is the best; False for rates of errors and for descriptions of a space
    macro       whether it is a mean over queries, or over pairs of a class, that `macro:` can average by class
    multi_label  whether it is defined for samples with several labels each
    needs_negatives  whether it is not defined where all samples are of one class
    """

    name: str
    pattern: str
    examples: tuple[str, ...]
    summary: str
    collectors: "tuple[type[Collector], ...]"
    score: ScoreFunction
    resample: Resample | None = None
    parameters: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    percent: bool = True
    higher_is_better: bool = True
    macro: bool = False
    multi_label: bool = False
    needs_negatives: bool = False

    def read_parameters(self, match: re.Match[str]) -> dict[str, Any]:
        """The typed parameters of a name that the pattern matches."""
        texts = {name: text for name, text in match.groupdict().items() if text is not None}
        return {**self.defaults, **{name: self.parameters[name](text) for name, text in texts.items()}}


def metric(
    name: str,
    *,
    examples: tuple[str, ...],
    pattern: str | None = None,
    collectors: "tuple[type[Collector], ...]" = (),
    resample: Resample | None = None,
    parameters: Mapping[str, Callable[[str], Any]] | None = None,
    defaults: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    percent: bool = True,
    higher_is_better: bool = True,
    macro: bool = False,
    multi_label: bool = False,
    needs_negatives: bool = False,
) -> Callable[[ScoreFunction], ScoreFunction]:
    """Register a score function as a metric family: see `MetricFamily`.

    The first line of the docstring is the summary. Without a pattern, the family is the one metric `name`. Metrics that
    score single queries need no `resample`: they are means over queries.
    """

    def register(score: ScoreFunction) -> ScoreFunction:
        family = MetricFamily(
            name,
            re.escape(name) if pattern is None else pattern,
            examples,
            (score.__doc__ or "").partition("\n")[0].rstrip("."),
            collectors,
            score,
            resample,
            parameters or {},
            defaults or {},
            options or {},
            percent,
            higher_is_better,
            macro,
            multi_label,
            needs_negatives,
        )
        METRICS.add(name, family, module=score.__module__)
        return score

    return register


def parse_metrics(names: str | Iterable[str]) -> tuple[Metric, ...]:
    """Parse one name or several, each once, in their order; a name that no family knows raises an error."""
    names = [names] if isinstance(names, str) else list(names)
    if not names:
        raise EquimetricError("metrics is empty; name at least one, or leave it out for the default")
    return tuple(Metric.parse(name) for name in dict.fromkeys(names))


def check_one_class_metrics(metrics: Sequence[Metric], label: object) -> None:
    """Raise an error that names the metrics that compare classes, where all samples are of the one with this label."""
    undefined = [metric.name for metric in metrics if METRICS[metric.family].needs_negatives]
    if undefined:
        raise EquimetricError(
            f"all labels are the same class ({label}), and {', '.join(undefined)} "
            f"{'is' if len(undefined) == 1 else 'are'} defined for two classes or more; leave "
            f"{'it' if len(undefined) == 1 else 'them'} out"
        )


def check_multi_label_metrics(metrics: Iterable[Metric]) -> None:
    """Raise an error for a metric that needs one class for each sample."""
    for metric in metrics:
        if not METRICS[metric.family].multi_label:
            raise EquimetricError(
                f"{metric.name!r} needs classes that share no sample; leave it out where samples have several labels"
            )


def format_score(name: str, value: float) -> str:
    """A score as it is shown: most metrics are percentages."""
    return f"{value:7.2%}" if METRICS[Metric.parse(name).family].percent else f"{value:8.5g}"


def list_metrics() -> tuple[MetricFamily, ...]:
    """All metric families, by name."""
    return tuple(METRICS[name] for name in sorted(METRICS))


def check_metric_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of all metric families, with defaults for those that `options` leaves out."""
    defaults = {name: default for family in METRICS.values() for name, default in family.options.items()}
    for name in options:
        if name not in defaults:
            raise unknown_name("option of evaluate", name, defaults)
    return {**defaults, **options}
