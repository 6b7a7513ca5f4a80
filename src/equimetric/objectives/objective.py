"""An objective: a geometry, references, a selection and a loss in one module. Objectives add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from equimetric.components import FunctionModule, Scheduled
from equimetric.errors import EquimetricError, not_a_tensor
from equimetric.geometry import Geometry
from equimetric.objectives.batch_warnings import BatchWarnings
from equimetric.objectives.foreign_calls import check_call
from equimetric.objectives.weights import check_weight, weigh_samples
from equimetric.ops.chunks import compute_chunked
from equimetric.ops.classification import collect_logits
from equimetric.ops.finite import nan_factor
from equimetric.ops.masks import has_any
from equimetric.ops.products import full_precision
from equimetric.ops.reductions import reduce_rows
from equimetric.ops.rows import separate_rows, weigh_rows
from equimetric.pairs import Pairs, Selected, Triplets, round_ties
from equimetric.references.all_gather import gather_batch
from equimetric.references.base import ObjectiveInputs, PairTerms, ProxySet, References
from equimetric.references.batch import BatchReferences
from equimetric.references.relation import Labels, check_index

__all__ = ["SELECTS_ITSELF", "Objective", "ObjectiveSum", "attach_zero_grad", "collect_proxies"]

SELECTS_ITSELF = "reads a batch as a whole and chooses its pairs itself"


def attach_zero_grad(value: Tensor, *tensors: Tensor) -> Tensor:
    """Give a value that depends on none of the tensors a gradient of 0, so that `backward` works."""
    if value.requires_grad or not torch.is_grad_enabled():
        return value
    for tensor in tensors:
        if tensor.requires_grad:
            value = torch.add(value, tensor.sum(dtype=value.dtype), alpha=0)
    return value


def has_terms(selected: Selected) -> Tensor:
    """(Q,) bool: the queries that have a pair, or are the anchor of a listed triple."""
    if not isinstance(selected, Triplets):
        return has_any((selected if isinstance(selected, Pairs) else selected.pairs).mask)
    queries = len(selected.pairs.similarity)
    return torch.zeros(queries, dtype=torch.bool, device=selected.anchor.device).index_fill(0, selected.anchor, True)


@runtime_checkable
class HasProxies(Protocol):
    """A loss that learns proxies of classes or of groups of classes itself."""

    def proxy_sets(self) -> Sequence[tuple[Tensor, Tensor]]:
        """(rows, D) vectors with the (rows,) class or group of each, one set for each space they are compared in."""


class BaseObjective(nn.Module):
    """Base of objectives and their sums: `a + b`, `2 * a`, and the value of each named term."""

    def terms(self, embeddings: Tensor, labels: Labels, *arguments: Any, **options: Any) -> dict[str, Tensor]:
        """The value of each named term, weighted as it enters the sum."""
        raise NotImplementedError

    def parts(self) -> list[tuple[float, Objective]]:
        """The objectives that are added up, each with its weight."""
        raise NotImplementedError

    if TYPE_CHECKING:
        # That of torch's modules gives anything.
        def __call__(self, embeddings: Tensor, labels: Labels, *arguments: Any, **options: Any) -> Tensor: ...

    def logits(self, embeddings: Tensor) -> Tensor:
        """(B, classes) what the softmax over the classes takes, without the margin that only a right class has.

        `softmax` of it gives the probabilities of the classes, `argmax` the class.
        """
        found = [logits for _, part in self.parts() if (logits := part.find_logits(embeddings)) is not None]
        if len(found) != 1:
            names = ", ".join(repr(part.name) for _, part in self.parts())
            raise EquimetricError(
                f"{names} has {len(found) or 'no'} softmax over proxies of classes, so no logits; "
                "objective.pairs(embeddings, labels).similarity holds what an objective compares"
            )
        return found[0]

    def set_step(self, step: int) -> None:
        """Set the training step, the first of which is 0, for all parts with values that depend on it."""
        for part in self.modules():
            if isinstance(part, Scheduled):
                part.set_step(step)

    def forward(self, embeddings: Tensor, labels: Labels, *arguments: Any, **options: Any) -> Tensor:
        """The scalar to minimise."""
        check_call(arguments, options)
        values = list(self.terms(embeddings, labels, *arguments, **options).values())
        if len(values) > 1 and any(value.ndim for value in values):
            raise EquimetricError(
                "a sum has no value where a term has reduction='none'; terms(…) gives them one by one"
            )
        total = values[0]
        for value in values[1:]:
            total = total + value
        return total

    def __add__(self, other: BaseObjective) -> ObjectiveSum:
        return ObjectiveSum([*self.parts(), *other.parts()])

    def __radd__(self, other: int) -> BaseObjective:
        """`sum` of a list of objectives starts with 0."""
        return self if other == 0 else NotImplemented

    def __mul__(self, weight: float) -> ObjectiveSum:
        return ObjectiveSum([(weight * part_weight, objective) for part_weight, objective in self.parts()])

    __rmul__ = __mul__


class Objective(BaseObjective):
    """geometry × references × selection × loss: `objective(embeddings, labels)` is the scalar to minimise.

    Optionally `objective(embeddings, labels, reference_embeddings, reference_labels, self_mask=…, index=…)`:
    `self_mask` (Q, R) marks references that are the query itself; `index` (Q,) is each query's position in the
    training set, for losses with a parameter per image. `triplets=` (T, 3), rows of anchor, positive and negative,
    replaces the selection. `sample_weight` (Q,) and `reference_weight` (R,) say how often samples count, times the
    `class_weight` of their class (see `objectives.weights`). With `gather=True` the batches of all ranks of
    torch.distributed are one batch. With `require_both=True` a batch without positives or without negatives has the
    value 0, also where the loss sums over either kind alone. A `reduction` is one of the queries' own losses.
    """

    def __init__(
        self,
        name: str,
        *,
        loss: nn.Module,
        geometry: Geometry,
        references: References,
        selection: nn.Module,
        takes: str = "pairs",
        normalize: bool | None = None,
        gather: bool = False,
        require_both: bool = False,
        separable: bool = False,
        class_weight: Tensor | None = None,
        no_weights_reason: str | None = None,
        reduction: str | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.loss = loss
        self.geometry = geometry
        self.references = references
        self.selection = selection
        self.selects_all = isinstance(selection, FunctionModule) and selection.name == "all"
        self.takes = takes
        self.normalize = geometry.normalize if normalize is None else normalize
        self.gather = gather
        self.require_both = require_both
        self.separable = separable
        # No buffer: half precision would round the weights.
        self.class_weight = class_weight
        self.no_weights_reason = no_weights_reason
        self.reduction = reduction
        self.batch_warnings = BatchWarnings()
        # A learned geometry is a part of the objective, with its parameters.
        self.measure = geometry.measure if isinstance(geometry.measure, nn.Module) else None

    def pair_terms(
        self,
        embeddings: Tensor,
        labels: Labels,
        reference_embeddings: Tensor | None = None,
        reference_labels: Labels | None = None,
        *,
        proxies: tuple[ProxySet, ...] = (),
        self_mask: Tensor | None = None,
        index: Tensor | None = None,
        sample_weight: Tensor | None = None,
        reference_weight: Tensor | None = None,
    ) -> PairTerms:
        """All sets of pairs that the references make, before selection, in full precision even under autocast."""
        if not isinstance(embeddings, Tensor):
            raise not_a_tensor(embeddings, "embeddings")
        check_index(index, embeddings)
        sample_weight = check_weight(sample_weight, embeddings)
        with full_precision(embeddings.device.type):
            if self.gather:
                if isinstance(labels, tuple):
                    raise EquimetricError("gather=True needs class ids or multi-hot labels, not masks of pairs")
                embeddings, labels, index, sample_weight = gather_batch(embeddings, labels, index, sample_weight)
            # Before the references: reading the embeddings here brings them into the cache.
            factor = nan_factor(embeddings, reference_embeddings)
            inputs = ObjectiveInputs(
                embeddings, labels, index, reference_embeddings, reference_labels, self_mask, proxies=proxies
            )
            if not (sample_weight is None and reference_weight is None and self.class_weight is None):
                inputs = self.weigh(inputs, sample_weight, reference_weight)
            terms: PairTerms = self.references(self.geometry, self.normalize, inputs)
            return terms if factor is None else PairTerms(terms.weighted_pairs, terms.penalty, factor)

    def weigh(
        self, inputs: ObjectiveInputs, sample_weight: Tensor | None, reference_weight: Tensor | None
    ) -> ObjectiveInputs:
        """The inputs with weights: those given, times those of the classes."""
        if self.no_weights_reason is not None:
            raise EquimetricError(f"{self.name!r} takes no weights: {self.no_weights_reason}; leave them out")
        samples, references = inputs.embeddings, inputs.reference_embeddings
        weight = weigh_samples(self.class_weight, inputs.labels, sample_weight, samples)
        if references is not None:
            reference_weight = check_weight(reference_weight, references, "reference_weight")
            reference_weight = weigh_samples(self.class_weight, inputs.reference_labels, reference_weight, references)
        return replace(inputs, sample_weight=weight, reference_weight=reference_weight)

    def pairs(self, embeddings: Tensor, labels: Labels, *arguments: Any, **options: Any) -> Pairs:
        """The first set of pairs: with a memory that of the batch, with most references the only one."""
        return self.pair_terms(embeddings, labels, *arguments, **options).weighted_pairs[0][1]

    def find_logits(self, embeddings: Tensor) -> Tensor | None:
        """The logits of the loss where no class is the right one; None where it has no softmax over proxies."""
        trains = self.training
        # What training alone needs is left out and left alone: classes that are sampled, means of lengths.
        self.eval()
        try:
            pairs = self.pairs(embeddings, torch.zeros(len(embeddings), dtype=torch.long, device=embeddings.device))
            if pairs.target is None:
                return None
            none = torch.zeros_like(pairs.positive)
            unlabelled = pairs.replace(positive=none, negative=~none)
            with full_precision(pairs.similarity.device.type), collect_logits() as found:
                self.loss(unlabelled)
        finally:
            self.train(trains)
        return found[0] if found else None

    def select(self, pairs: Pairs) -> Selected:
        """The pairs or triples that count, in the form that the loss takes."""
        if self.selects_all:
            return pairs
        with torch.no_grad():
            return self.to_loss_input(self.choose(pairs))

    def to_loss_input(self, selected: Selected) -> Selected:
        """The selection's result in the form that the loss takes."""
        return selected.as_pairs() if self.takes == "pairs" and not isinstance(selected, Pairs) else selected

    def choose(self, pairs: Pairs) -> Selected:
        """The selection's result, from similarities in which duplicates tie."""
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
        """The loss of these pairs, with a gradient of 0 where none of them counts."""
        return attach_zero_grad(self.compute(pairs), pairs.similarity)

    def compute(self, pairs: Pairs) -> Tensor:
        """The loss of these pairs, a few rows at a time where that is faster; no gradient where none of them counts."""
        if not pairs.similarity.shape[1]:
            return self.empty_value(pairs)
        with full_precision(pairs.similarity.device.type):
            if self.separable:
                generator = getattr(self.selection, "generator", None)
                value = compute_chunked(self.compute_rows, pairs, self.loss.parameters, generator)
            else:
                value = self.compute_rows(pairs)
        return value * (pairs.positive.any() & pairs.negative.any()) if self.require_both else value

    def compute_rows(self, pairs: Pairs) -> Tensor:
        """The loss of these pairs, all rows at once."""
        return self.reduce(self.select(pairs), pairs.query_weight)

    def reduce(self, selected: Selected, weight: Tensor | None) -> Tensor:
        """The loss of what counts, every query by its (Q,) weight; with a `reduction`, of the queries' own losses."""
        if self.reduction is None:
            if weight is None:
                return self.check_value(self.loss(selected))
            with weigh_rows(weight):
                return self.check_value(self.loss(selected))
        pairs = selected if isinstance(selected, Pairs) else selected.pairs
        with separate_rows(len(pairs.similarity)):
            values = self.check_value(self.loss(selected))
        with weigh_rows(weight):
            return reduce_rows(values, has_terms(selected), self.reduction)

    def compute_listed(self, pairs: Pairs, triplets: Tensor) -> Tensor:
        """The loss of these (T, 3) triples of the pairs, without the selection."""
        if self.takes == "batch":
            raise EquimetricError(f"{self.name!r} {SELECTS_ITSELF}; leave triplets=… out")
        if not isinstance(self.references, BatchReferences):
            raise EquimetricError("triplets=… name rows of a batch or of a reference set; they need references='batch'")
        with torch.no_grad():
            selected = self.to_loss_input(Triplets.from_rows(pairs, triplets))
        with full_precision(pairs.similarity.device.type):
            return self.reduce(selected, pairs.query_weight)

    def check_value(self, result: Any) -> Tensor:
        """The result of a loss, which must be a tensor."""
        if not isinstance(result, Tensor):
            raise EquimetricError(
                f"loss {self.name!r} returned {type(result).__name__}; it must return a scalar tensor of torch"
            )
        return result

    def empty_value(self, pairs: Pairs) -> Tensor:
        """The loss of queries without any reference: 0, or with reduction='none' a 0 for each term."""
        if self.reduction == "none":
            return torch.zeros_like(pairs.similarity[:, :0].sum(1))
        if not isinstance(self.loss, FunctionModule) or self.loss.options.get("reduction") != "none":
            return pairs.similarity.new_zeros(())
        # A reference that is neither positive nor negative counts for nothing, and leaves the loss no empty rows.
        similarity = pairs.similarity.new_zeros(len(pairs.similarity), 1)
        mask = torch.zeros_like(similarity, dtype=torch.bool)
        return self.compute_rows(Pairs(similarity, mask, mask, geometry=pairs.geometry, queries=pairs.queries))

    def terms(
        self,
        embeddings: Tensor,
        labels: Labels,
        *arguments: Any,
        triplets: Tensor | None = None,
        **options: Any,
    ) -> dict[str, Tensor]:
        """The one term of this objective, Σ weight · loss(pairs) + penalty, under its name."""
        if self.gather and triplets is not None:
            raise EquimetricError("triplets=… name rows of one process's batch; they cannot be used with gather=True")
        terms = self.pair_terms(embeddings, labels, *arguments, **options)
        if triplets is None:
            values = [self.compute(pairs) for _, pairs in terms.weighted_pairs]
        else:
            values = [self.compute_listed(pairs, triplets) for _, pairs in terms.weighted_pairs]
        value = terms.combine(values)
        self.references.after_loss(terms)
        if self.geometry.name != "none":
            self.batch_warnings.check(self.name, value, terms)
        return {self.name: value if value.requires_grad else attach_zero_grad(value, embeddings, *self.parameters())}

    def parts(self) -> list[tuple[float, Objective]]:
        """The objective itself, with weight 1."""
        return [(1.0, self)]

    def extra_repr(self) -> str:
        """Name and geometry, for `repr`."""
        return f"{self.name!r}, geometry={self.geometry.name!r}, normalize={self.normalize}"


class ObjectiveSum(BaseObjective):
    """A weighted sum of objectives, each term under its own name."""

    def __init__(self, parts: list[tuple[float, Objective]]) -> None:
        super().__init__()
        names: list[str] = []
        for _, objective in parts:
            count = names.count(objective.name) + sum(name.startswith(f"{objective.name} ") for name in names)
            names.append(f"{objective.name} {count + 1}" if count else objective.name)
        self.names = names
        self.weights = [weight for weight, _ in parts]
        self.objectives = nn.ModuleList(objective for _, objective in parts)

    def terms(self, embeddings: Tensor, labels: Labels, *arguments: Any, **options: Any) -> dict[str, Tensor]:
        """The value of each term, times its weight."""
        parts = self.parts()
        if any(objective.references.needs_proxies for _, objective in parts):
            options["proxies"] = collect_proxies([objective for _, objective in parts])
        return {
            name: weight * objective(embeddings, labels, *arguments, **options)
            for name, (weight, objective) in zip(self.names, parts, strict=True)
        }

    def parts(self) -> list[tuple[float, Objective]]:
        """The objectives with their weights."""
        return [(w, o) for w, o in zip(self.weights, self.objectives, strict=True) if isinstance(o, Objective)]

    @property
    def name(self) -> str:
        """The terms' names, joined."""
        return "+".join(self.names)


def collect_proxies(objectives: list[Objective]) -> tuple[ProxySet, ...]:
    """Collect the proxies of classes, or of groups of classes, that references and losses learn."""
    proxy_sets: list[ProxySet] = []
    for objective in objectives:
        learned = objective.references.proxy_set()
        proxy_sets += [] if learned is None else [learned]
        if isinstance(objective.loss, HasProxies):
            proxy_sets += [ProxySet(*vectors_and_classes) for vectors_and_classes in objective.loss.proxy_sets()]
    return tuple(proxy_sets)
