"""An objective joins a geometry, references, a selection and a loss; objectives add up."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from equimetric.components import LOSSES, REFERENCES, SELECTIONS, Component, FunctionModule
from equimetric.errors import EquimetricError, did_you_mean, no_tensor
from equimetric.geometry import Geometry, find_geometry
from equimetric.ops.chunks import compute_chunked
from equimetric.ops.products import full_precision
from equimetric.option_values import checked_options
from equimetric.pairs import Pairs, Selected, Triplets, round_ties
from equimetric.references.batch import BatchReferences
from equimetric.references.gathered import gather_batch
from equimetric.references.kind import Given, References
from equimetric.references.relation import Labels, check_index

__all__ = ["Objective", "ObjectiveSum", "compose", "owned_options"]

CHOOSES_ITSELF = "looks at a batch as a whole and chooses its pairs itself"


def connected(value: Tensor, *tensors: Tensor) -> Tensor:
    """A value with a gradient, if only one of 0: where nothing counts, there is no way back to spend time on."""
    if value.requires_grad or not torch.is_grad_enabled():
        return value
    for tensor in tensors:
        if tensor.requires_grad:
            value = torch.add(value, tensor.sum(dtype=value.dtype), alpha=0)
    return value


class Summable(nn.Module):
    """What objectives and their sums share: `a + b`, `2 * a`, and the value of each named term."""

    def terms(self, embeddings: Tensor, labels: Labels, *arguments: Any, **options: Any) -> dict[str, Tensor]:
        """The value of each named term, weighted as it enters the sum."""
        raise NotImplementedError

    def parts(self) -> list[tuple[float, Objective]]:
        """The objectives that are added up, each with its weight."""
        raise NotImplementedError

    def forward(self, embeddings: Tensor, labels: Labels, *arguments: Any, **options: Any) -> Tensor:
        """The scalar to minimise."""
        values = list(self.terms(embeddings, labels, *arguments, **options).values())
        if len(values) > 1 and any(value.ndim for value in values):
            raise EquimetricError(
                "a sum has no value where a term has reduction='none'; look at them one by one in terms(…)"
            )
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total

    def __add__(self, other: Summable) -> ObjectiveSum:
        return ObjectiveSum([*self.parts(), *other.parts()])

    def __radd__(self, other: int) -> Summable:
        """So that `sum` adds up a list of objectives, which it starts with 0."""
        return self if other == 0 else NotImplemented

    def __mul__(self, weight: float) -> ObjectiveSum:
        return ObjectiveSum([(weight * own, objective) for own, objective in self.parts()])

    __rmul__ = __mul__


class Objective(Summable):
    """geometry × references × selection × loss: `objective(embeddings, labels)` is the scalar to minimise.

    Optionally `objective(embeddings, labels, reference_embeddings, reference_labels, self_mask=…, index=…)`:
    `self_mask` (Q, R) marks references that are the query itself; `index` (Q,) gives each query's place in the
    training set, for losses that keep something per image. `triplets=` (T, 3), rows of anchor, positive and negative,
    takes the place of what the selection would choose. With `gather=True` the batches of all processes of
    torch.distributed are one batch. With `require_both=True` a batch without positives or without negatives has the
    value 0 also where a loss sums up what it finds of either.
    """

    def __init__(
        self,
        name: str,
        *,
        loss: nn.Module,
        geometry: Geometry,
        references: nn.Module,
        selection: nn.Module,
        takes: str = "pairs",
        normalize: bool | None = None,
        gather: bool = False,
        require_both: bool = False,
        separable: bool = False,
    ) -> None:
        super().__init__()
        self.name = name
        self.loss = loss
        self.geometry = geometry
        self.references = references
        self.selection = selection
        self.takes = takes
        self.normalize = geometry.normalize if normalize is None else normalize
        self.gather = gather
        self.require_both = require_both
        self.separable = separable

    def pairs(
        self,
        embeddings: Tensor,
        labels: Labels,
        reference_embeddings: Tensor | None = None,
        reference_labels: Labels | None = None,
        *,
        self_mask: Tensor | None = None,
        index: Tensor | None = None,
    ) -> Pairs:
        """All pairs of queries and references, before selection, in full precision even under autocast."""
        if not isinstance(embeddings, Tensor):
            raise no_tensor(embeddings, "embeddings")
        check_index(index, embeddings)
        with full_precision(embeddings.device.type):
            if self.gather:
                if isinstance(labels, tuple):
                    raise EquimetricError("gather=True needs class ids or multi-hot labels, not masks of pairs")
                embeddings, labels, index = gather_batch(embeddings, labels, index)
            given = Given(embeddings, labels, index, reference_embeddings, reference_labels, self_mask)
            pairs: Pairs = self.references(self.geometry, self.normalize, given)
            return pairs

    def select(self, pairs: Pairs) -> Selected:
        """The pairs or triples that count, in the form that the loss reads."""
        with torch.no_grad():
            return self.as_read(self.choose(pairs))

    def as_read(self, selected: Selected) -> Selected:
        """What was chosen, in the form that the loss reads."""
        return selected.as_pairs() if self.takes == "pairs" and not isinstance(selected, Pairs) else selected

    def choose(self, pairs: Pairs) -> Selected:
        """What the selection chooses, by similarities in which duplicates tie."""
        selected: Selected
        if pairs.similarity.dtype != torch.float64:
            selected = self.selection(pairs)
            return selected
        selected = self.selection(pairs.replace(similarity=round_ties(pairs.similarity)))
        if isinstance(selected, Pairs):
            return selected.replace(similarity=pairs.similarity)
        selected.pairs = pairs
        return selected

    def value(self, pairs: Pairs) -> Tensor:
        """The loss of these pairs."""
        return connected(self.bare_value(pairs), pairs.similarity)

    def bare_value(self, pairs: Pairs) -> Tensor:
        """The loss of these pairs, without a gradient where nothing of them counts."""
        if not pairs.similarity.shape[1]:
            return self.value_of_nothing(pairs)
        if self.require_both:
            both = pairs.positive.any() & pairs.negative.any()
            return self.value_of_either(pairs) * both
        return self.value_of_either(pairs)

    def value_of_either(self, pairs: Pairs) -> Tensor:
        """The loss of these pairs, though there may be positives or negatives alone."""
        with full_precision(pairs.similarity.device.type):
            if self.separable:
                drawn_from = getattr(self.selection, "generator", None)
                return compute_chunked(self.value_at_once, pairs, self.loss.parameters, drawn_from)
            return self.value_at_once(pairs)

    def value_at_once(self, pairs: Pairs) -> Tensor:
        """The loss of these pairs, all rows together."""
        return self.checked_value(self.loss(self.select(pairs)))

    def checked_value(self, result: Any) -> Tensor:
        """What a loss returns, which must be a tensor."""
        if not isinstance(result, Tensor):
            raise EquimetricError(
                f"loss {self.name!r} returned {type(result).__name__}; it must return a scalar tensor of torch"
            )
        return result

    def value_of_nothing(self, pairs: Pairs) -> Tensor:
        """The loss of queries that have no reference at all: 0, or with reduction='none' a 0 for each term."""
        if not isinstance(self.loss, FunctionModule) or self.loss.options.get("reduction") != "none":
            return pairs.similarity.new_zeros(())
        # A reference that is neither positive nor negative is as good as none, and leaves a loss no empty rows.
        absent = pairs.similarity.new_zeros(len(pairs.similarity), 1)
        neither = torch.zeros_like(absent, dtype=torch.bool)
        return self.value_at_once(Pairs(absent, neither, neither, geometry=pairs.geometry, queries=pairs.queries))

    def value_of_listed(self, pairs: Pairs, triplets: Tensor) -> Tensor:
        """The loss of these (T, 3) triples of the pairs, whatever the selection would choose."""
        if self.takes == "batch":
            raise EquimetricError(f"{self.name!r} {CHOOSES_ITSELF}; leave triplets=… out")
        if not isinstance(self.references, BatchReferences):
            raise EquimetricError("triplets=… name rows of a batch or of a reference set; they need references='batch'")
        with torch.no_grad():
            selected = self.as_read(Triplets.listed(pairs, triplets))
        return self.checked_value(self.loss(selected))

    def terms(
        self,
        embeddings: Tensor,
        labels: Labels,
        *arguments: Any,
        triplets: Tensor | None = None,
        **options: Any,
    ) -> dict[str, Tensor]:
        """The one term of this objective, under its name."""
        if self.gather and triplets is not None:
            raise EquimetricError("triplets=… name rows of one process's batch; they cannot be used with gather=True")
        pairs = self.pairs(embeddings, labels, *arguments, **options)
        loss = self.bare_value if triplets is None else partial(self.value_of_listed, triplets=triplets)
        if isinstance(self.references, References):
            with full_precision(pairs.similarity.device.type):
                value = self.references.objective_value(loss, pairs)
        else:
            value = loss(pairs)
        return {self.name: value if value.requires_grad else connected(value, embeddings, *self.parameters())}

    def parts(self) -> list[tuple[float, Objective]]:
        """The objective itself, with weight 1."""
        return [(1.0, self)]

    def extra_repr(self) -> str:
        """Name and geometry, for `repr`."""
        return f"{self.name!r}, geometry={self.geometry.name!r}, normalize={self.normalize}"


class ObjectiveSum(Summable):
    """A weighted sum of objectives, each term under its own name."""

    def __init__(self, parts: list[tuple[float, Objective]]) -> None:
        super().__init__()
        names: list[str] = []
        for _, objective in parts:
            taken = names.count(objective.name) + sum(name.startswith(f"{objective.name} ") for name in names)
            names.append(f"{objective.name} {taken + 1}" if taken else objective.name)
        self.names = names
        self.weights = [weight for weight, _ in parts]
        self.objectives = nn.ModuleList(objective for _, objective in parts)

    def terms(self, embeddings: Tensor, labels: Labels, *arguments: Any, **options: Any) -> dict[str, Tensor]:
        """The value of each term, times its weight."""
        return {
            name: weight * objective(embeddings, labels, *arguments, **options)
            for name, (weight, objective) in zip(self.names, self.parts(), strict=True)
        }

    def parts(self) -> list[tuple[float, Objective]]:
        """The objectives with their weights."""
        return [(w, o) for w, o in zip(self.weights, self.objectives, strict=True) if isinstance(o, Objective)]

    @property
    def name(self) -> str:
        """The terms' names, joined."""
        return "+".join(self.names)


def user_component(kind: str, function: Callable[..., Any] | nn.Module) -> Component:
    """A record for a user's own loss or selection, so that it is composed as the registered ones are."""
    if not callable(function):
        raise EquimetricError(
            f"a {kind} is a name, a function of Pairs or a module, not {type(function).__name__} {function!r}"
        )

    # A module has its options already, and takes no more of them.
    definition = (lambda: function) if isinstance(function, nn.Module) else function
    # A partial function goes by the name of the whole one, an object that can be called by that of its class.
    bare = getattr(function, "func", function)
    name = (
        type(function).__name__ if isinstance(function, nn.Module) else getattr(bare, "__name__", type(bare).__name__)
    )
    every_geometry = ("cosine", "euclidean", "sqeuclidean", "dot")
    return Component(kind, name, definition, "", geometries=every_geometry, reference_kinds=tuple(REFERENCES))


def found_references(references: str | References) -> Component:
    """The record of a kind of references, given by name or as an object of that kind."""
    if isinstance(references, str):
        return REFERENCES.find(references)
    for component in REFERENCES.values():
        if isinstance(component.definition, type) and isinstance(references, component.definition):
            return component
    raise EquimetricError(f"references are a name or an object of a registered kind, not {type(references).__name__}")


def owned_options(loss: Component, selection: Component, references: Component) -> dict[str, list[Component]]:
    """Option name → the parts that take it. An option two parts share, such as a margin, goes to both."""
    owners: dict[str, list[Component]] = {}
    for component in (loss, selection, references):
        for option in component.options:
            owners.setdefault(option, []).append(component)
    return owners


def made_references(asked: str | References, component: Component, options: dict[str, Any]) -> nn.Module:
    """The references themselves, made with the options or given as they are."""
    if isinstance(asked, str):
        return component.build(options)
    if options:
        raise EquimetricError(f"the references are made already, so {', '.join(options)} cannot be set; set them there")
    return asked


def compose(
    loss: str | Callable[..., Any] | nn.Module,
    *,
    name: str | None = None,
    geometry: str | None = None,
    references: str | References | None = None,
    selection: str | Callable[..., Any] | nn.Module | None = None,
    normalize: bool | None = None,
    gather: bool = False,
    require_both: bool = False,
    **options: Any,
) -> Objective:
    """An objective from named parts; each further option goes to the part or parts that own it.

    `loss` is a registered name, a function of `Pairs`, or a module, and so is `selection`; `references` are a name or
    an object such as `StaticProxy(dim)`. A combination that makes no sense, an option that no part takes, and a
    misspelt name are refused with the reason.
    """
    switches = {"normalize": normalize, "gather": gather, "require_both": require_both}
    checked_options("objective", compose, switches)
    component = LOSSES.find(loss) if isinstance(loss, str) else user_component("loss", loss)
    chosen: dict[str, Any] = {"geometry": geometry, "references": references, "selection": selection}
    for alias, part in component.aliases.items():
        if alias in options:
            if chosen[part] is not None:
                raise EquimetricError(f"{alias!r} is another name for {part!r}; give one of them, not both")
            chosen[part] = options.pop(alias)
    for option, implied in component.implies.items():
        if option in options and chosen["selection"] is None:
            if options[option] is None:
                del options[option]
            else:
                chosen["selection"] = implied

    geometry_name = chosen["geometry"] or component.geometries[0]
    found_geometry = find_geometry(geometry_name)
    if geometry_name not in component.geometries:
        raise EquimetricError(
            f"loss {component.name!r} makes no sense in the {geometry_name} geometry; "
            f"it is defined for: {', '.join(component.geometries)}"
        )
    asked_references = chosen["references"] or component.reference_kinds[0]
    reference_component = found_references(asked_references)
    if reference_component.name not in component.reference_kinds:
        raise EquimetricError(
            f"loss {component.name!r} makes no sense with references {reference_component.name!r}; "
            f"it is defined for: {', '.join(component.reference_kinds)}"
        )
    asked_selection = chosen["selection"] or "all"
    if component.takes == "batch" and asked_selection != "all":
        raise EquimetricError(f"loss {component.name!r} {CHOOSES_ITSELF}; use selection='all'")
    if isinstance(asked_selection, str):
        selection_component = SELECTIONS.find(asked_selection)
    else:
        selection_component = user_component("selection", asked_selection)

    owners = owned_options(component, selection_component, reference_component)
    routed: dict[int, dict[str, Any]] = {id(c): {} for c in (component, selection_component, reference_component)}
    for option, value in options.items():
        if option not in owners:
            known = [*owners, *chosen, *switches, *component.aliases]
            raise EquimetricError(
                f"objective {name or component.name!r} has no option {option!r}; {did_you_mean(option, known)}"
            )
        for owner in owners[option]:
            routed[id(owner)][option] = value
    return Objective(
        name or component.name,
        loss=loss if isinstance(loss, nn.Module) else component.build(routed[id(component)]),
        geometry=found_geometry,
        references=made_references(asked_references, reference_component, routed[id(reference_component)]),
        selection=selection_component.build(routed[id(selection_component)]),
        takes=component.takes,
        normalize=component.normalize if normalize is None else normalize,
        gather=gather,
        require_both=require_both,
        # Without a final reduction there is no ratio to sum up.
        separable=component.is_separable(routed[id(component)]) and options.get("reduction") != "none",
    )
