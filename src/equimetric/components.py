"""Losses, selections and references as records: name, paper, options, search ranges.

The command line, the documentation, the tuner's search spaces and the contract tests all read these records.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from equimetric.errors import EquimetricError, did_you_mean, unknown_name
from equimetric.families import FAMILIES
from equimetric.option_values import check_options
from equimetric.pairs import Selected
from equimetric.registry import Registry
from equimetric.search_space import SearchSpace

__all__ = [
    "FAMILIES",
    "LAWS",
    "LOSSES",
    "REFERENCES",
    "SELECTIONS",
    "Component",
    "FunctionModule",
    "Scheduled",
    "format_value",
    "loss",
    "record_of",
    "references",
    "selection",
]

LAWS = {
    "permutation": "the order of the batch changes nothing",
    "multiplicity": "a weight of 2 is as if a reference were present twice, a weight of 0 as if it were absent",
    "doubling": "a reference that is present twice counts twice",
    "sample weights": "a sample counts by its weight, as query and as reference",
    "repetition": "a sample of weight 2 is as if its row were present twice",
    "finite differences": "gradients of the embeddings agree with finite differences",
    "parameter differences": "gradients of the parameters agree with finite differences",
    "monotone": "no positive is pushed away, no negative pulled closer",
    "static shapes": "compiles as one graph",
    "large static shapes": "compiles as one graph for batches of any size",
    "alone": "is an objective without another term beside it",
    "any batch": "takes a batch of any size, with any labels in any order",
}
"""Laws that the contract tests check for every method, unless one of its parts is exempt."""

Definition = TypeVar("Definition", bound=Callable[..., Any])


@dataclass(frozen=True)
class Component:
    """A registered loss, selection or kind of references.

    Attributes:
        kind: "loss", "selection" or "references".
        name: the public name.
        other_names: further public names.
        known_as: names in other libraries and papers, for which an error suggests this one.
        definition: a function `(pairs, **options)` or an `nn.Module` class whose constructor takes the options.
        paper: authors, title, year.
        title: the name in tables.
        family: for losses, a key of `FAMILIES`.
        geometries: for losses, the geometries it is defined for, the default first.
        reference_kinds: for losses, the references it is defined for, the default first.
        takes: for losses, the form of selection it takes: "pairs" or "triplets", or "batch" where it takes a batch
            without selection.
        aliases: option names of the literature for a part of the objective, e.g. {"mining": "selection"}.
        implies: options that, when given, switch a selection on, e.g. {"epsilon": "multi_similarity"}.
        normalize: for losses, overrides the geometry's own default.
        search: the range of each tunable option.
        substitutes_for: for references, kinds that they can replace in losses that are defined for these.
        separable: for losses, whether the rows of the pairs meet only in the loss's final means; or the option values
            with which they do. For selections, whether each row is chosen from by itself, or the option values for it.
        per_query: for losses that are not separable, whether their final means still run over queries.
        exempt: law of `LAWS` → why the method breaks it.

    """

    kind: str
    name: str
    definition: Callable[..., Any]
    paper: str
    title: str = ""
    family: str = ""
    geometries: tuple[str, ...] = ("cosine",)
    reference_kinds: tuple[str, ...] = ("batch",)
    takes: str = "pairs"
    aliases: Mapping[str, str] = field(default_factory=dict)
    implies: Mapping[str, str] = field(default_factory=dict)
    normalize: bool | None = None
    search: Mapping[str, SearchSpace] = field(default_factory=dict)
    separable: bool | Mapping[str, object] = False
    per_query: bool = False
    exempt: Mapping[str, str] = field(default_factory=dict)
    other_names: tuple[str, ...] = ()
    known_as: tuple[str, ...] = ()
    substitutes_for: tuple[str, ...] = ()

    def is_separable(self, options: Mapping[str, Any]) -> bool:
        """Whether rows meet only in the final means of the loss with these options."""
        if isinstance(self.separable, bool):
            return self.separable
        settings = {**self.options, **options}
        return all(settings[name] is value or settings[name] == value for name, value in self.separable.items())

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(self.definition) or "").splitlines()[0].rstrip(".")

    @property
    def options(self) -> dict[str, Any]:
        """Option name → default; `inspect.Parameter.empty` for an option that must be given."""
        parameters = inspect.signature(self.definition).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def build(self, options: Mapping[str, Any]) -> nn.Module:
        """The component with these options; a misspelt or missing option raises an error that names it."""
        for name in options:
            if name not in self.options:
                raise EquimetricError(
                    f"{self.kind} {self.name!r} has no option {name!r}; {did_you_mean(name, self.options)}"
                )
        missing = [n for n, default in self.options.items() if default is inspect.Parameter.empty and n not in options]
        if missing:
            given = ", ".join(f"{name}=…" for name in missing)
            raise EquimetricError(f"{self.kind} {self.name!r} needs {given}")
        options = check_options(f"{self.kind} {self.name!r}", self.definition, options)
        if inspect.isclass(self.definition):
            module = self.definition(**options)
            assert isinstance(module, nn.Module)
            return module
        return FunctionModule(self.name, self.definition, {**self.options, **options})


def format_value(value: Any) -> str:
    """An option's value as text; a function by its name."""
    return getattr(value, "__name__", None) or str(value)


class FunctionModule(nn.Module):
    """A loss or selection that is a plain function of pairs, with its options fixed."""

    def __init__(self, name: str, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        super().__init__()
        self.name = name
        self.function = function
        self.options = dict(options)

    @property
    def generator(self) -> torch.Generator | None:
        """The random generator among the options, where there is one."""
        return self.options.get("generator")

    def forward(self, selected: Selected) -> Any:
        """Apply the function."""
        return self.function(selected, **self.options)

    def extra_repr(self) -> str:
        """The options, for `repr`."""
        return ", ".join([self.name, *(f"{name}={value!r}" for name, value in self.options.items())])


class Scheduled(nn.Module):
    """A loss, selection or kind of references with values that are a function of the training step.

    Training sets the step, and `Objective.set_step` does in a loop of one's own; it is in the state dict unless nothing
    depends on it.
    """

    step: Tensor

    def __init__(self, *, persistent: bool = True) -> None:
        super().__init__()
        self.register_buffer("step", torch.zeros((), dtype=torch.int64), persistent=persistent)

    def set_step(self, step: int) -> None:
        """Set the number of training steps before this one."""
        self.step.fill_(step)


LOSSES: Registry[Component] = Registry("loss", "equimetric.losses")
SELECTIONS: Registry[Component] = Registry("selection", "equimetric.selection")
REFERENCES: Registry[Component] = Registry("references", "equimetric.references")


def record_of(registry: Registry[Component], module: nn.Module) -> Component | None:
    """Find the record that a module was built from, if possible; None for a module of the user's own.

    Its options are fixed, so the record takes none; it is separable only where it is for these options.
    """
    if isinstance(module, FunctionModule):
        component = registry.get(module.name)
        if component is None or component.definition is not module.function:
            return None
        separable = component.is_separable(module.options)
    else:
        component = next((record for record in registry.values() if record.definition is type(module)), None)
        if component is None:
            return None
        separable = component.separable is True
    return replace(component, definition=lambda: module, separable=separable, search={})


def _register(registry: Registry[Component], **record: Any) -> Callable[[Definition], Definition]:
    def decorate(definition: Definition) -> Definition:
        component = Component(kind=registry.kind, definition=definition, **record)
        for law in component.exempt:
            if law not in LAWS:
                raise unknown_name("law", law, LAWS)
        unknown = set(component.search) - set(component.options)
        if unknown:
            raise EquimetricError(f"{component.name!r} has a search range for {unknown}, which it does not take")
        names = {"other_names": component.other_names, "known_as": component.known_as}
        registry.add(component.name, component, module=definition.__module__, **names)
        return definition

    return decorate


def loss(
    name: str,
    *,
    title: str,
    family: str,
    paper: str,
    geometry: str | tuple[str, ...] = "cosine",
    references: str | tuple[str, ...] = ("batch", "memory", "proxies"),
    takes: str = "pairs",
    aliases: Mapping[str, str] | None = None,
    implies: Mapping[str, str] | None = None,
    normalize: bool | None = None,
    search: Mapping[str, SearchSpace] | None = None,
    separable: bool | Mapping[str, object] = False,
    per_query: bool = False,
    exempt: Mapping[str, str] | None = None,
    known_as: tuple[str, ...] = (),
) -> Callable[[Definition], Definition]:
    """Register a loss: a function `(pairs, *, options) -> scalar` or an `nn.Module` class of such functions."""
    if family not in FAMILIES:
        raise unknown_name("family", family, FAMILIES)
    return _register(
        LOSSES,
        name=name,
        title=title,
        family=family,
        paper=paper,
        geometries=_tuple(geometry),
        reference_kinds=_tuple(references),
        takes=takes,
        aliases=aliases or {},
        implies=implies or {},
        normalize=normalize,
        search=search or {},
        separable=separable,
        per_query=per_query,
        exempt=exempt or {},
        known_as=known_as,
    )


def selection(
    name: str,
    *,
    paper: str,
    search: Mapping[str, SearchSpace] | None = None,
    exempt: Mapping[str, str] | None = None,
    other_names: tuple[str, ...] = (),
    separable: bool | Mapping[str, object] = True,
    known_as: tuple[str, ...] = (),
) -> Callable[[Definition], Definition]:
    """Register a selection: a function `(pairs, *, options) -> Pairs | Triplets | TripletBand`."""
    return _register(
        SELECTIONS,
        name=name,
        paper=paper,
        search=search or {},
        exempt=exempt or {},
        other_names=other_names,
        separable=separable,
        known_as=known_as,
    )


def references(
    name: str,
    *,
    paper: str = "",
    search: Mapping[str, SearchSpace] | None = None,
    exempt: Mapping[str, str] | None = None,
    substitutes_for: str | tuple[str, ...] = (),
    known_as: tuple[str, ...] = (),
) -> Callable[[Definition], Definition]:
    """Register a kind of references: a subclass of `equimetric.references.base.References`."""
    return _register(
        REFERENCES,
        name=name,
        paper=paper,
        search=search or {},
        exempt=exempt or {},
        substitutes_for=_tuple(substitutes_for),
        known_as=known_as,
    )


def _tuple(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value
