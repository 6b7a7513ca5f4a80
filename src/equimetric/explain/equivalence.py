"""Whether two objectives are gradient equivalent: whether they train every network alike (definition 3.1)."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.objectives import Objective, ObjectiveSum

__all__ = ["BatchComparison", "GradientEquivalence", "example_batches", "gradient_equivalent"]

CLASSES, SAMPLES, DIM = 8, 4, 16
SPREADS = (0.5, 1.0, 1.5, 2.5)
"""Spread of the classes of each example batch, in distances of their centres: from easy pairs to hard ones."""

TOLERANCE = 1e-9


@dataclass(frozen=True)
class BatchComparison:
    """Two objectives on one batch.

    Attributes:
        deviation: largest difference of an entry of ∂A/∂X and ∂B/∂X, as a share of the largest entry of both.
        factor: the c > 0 with ∂A/∂X = c ∂B/∂X; None where there is none, or where both are 0.
        largest: the largest entry of both gradients, without its sign.

    """

    deviation: float
    factor: float | None
    largest: float


@dataclass(frozen=True)
class GradientEquivalence:
    """Whether two objectives are gradient equivalent on some batches; true as a condition where they are.

    Attributes:
        first, second: the names of both objectives.
        batches: the comparison on every batch.
        tolerance: the largest deviation that counts as equal.

    """

    first: str
    second: str
    batches: tuple[BatchComparison, ...]
    tolerance: float

    @property
    def equal(self) -> bool:
        """Whether both gradients are equal on every batch."""
        return self.deviation <= self.tolerance

    @property
    def deviation(self) -> float:
        """The largest deviation over all batches."""
        return max(batch.deviation for batch in self.batches)

    @property
    def worst(self) -> int:
        """The batch with the largest deviation."""
        return max(range(len(self.batches)), key=lambda number: self.batches[number].deviation)

    @property
    def factor(self) -> float | None:
        """The one c > 0 with ∂A/∂X = c ∂B/∂X on every batch: another learning rate, the same method; else None."""
        compared = [batch for batch in self.batches if batch.largest > 0]
        if not compared:
            return 1.0
        first = compared[0].factor
        if first is None or any(
            batch.factor is None or abs(batch.factor - first) > self.tolerance * first for batch in compared
        ):
            return None
        return 1.0 if self.equal else first

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        return {
            "first": self.first,
            "second": self.second,
            "equal": self.equal,
            "factor": self.factor,
            "deviation": self.deviation,
            "worst": self.worst,
            "tolerance": self.tolerance,
            "batches": [asdict(batch) for batch in self.batches],
        }

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        names, count = f"{self.first} and {self.second}", f"{len(self.batches)} batch{'es' * (len(self.batches) > 1)}"
        if all(batch.largest == 0 for batch in self.batches):
            return f"{names} have no gradient on {count}, which tells nothing; give batches on which they have one"
        if self.equal:
            return f"{names} are gradient equivalent on {count}: gradients differ by at most {self.deviation:.1e}"
        if self.factor is not None:
            return (
                f"{names} are gradient equivalent on {count} up to a factor: the gradient of {self.first} is "
                f"{self.factor:.6g} times that of {self.second}"
            )
        equal = [number for number, batch in enumerate(self.batches) if batch.deviation <= self.tolerance]
        same = f"; equal on batch {', '.join(map(str, equal))}" if equal else ""
        return (
            f"{names} are not gradient equivalent: on batch {self.worst} gradients differ by "
            f"{self.deviation:.2g} of the largest entry{same}"
        )


def gradient_equivalent(
    first: Objective | ObjectiveSum,
    second: Objective | ObjectiveSum,
    batches: Sequence[Sequence[Any]] | None = None,
    *,
    tolerance: float = TOLERANCE,
    **options: Any,
) -> GradientEquivalence:
    """Whether two objectives have the same gradient on these batches, whatever their values are.

    Gradient equivalence (Unified View, definition 3.1): at the current point the gradients by the parameters of the
    network are equal. They are ∂L/∂X · ∂X/∂θ, with X the embeddings, so equal ∂L/∂X train every network alike; these
    are compared, in double precision. Losses with the same symmetric `pair_weights` are equivalent.
    A batch holds the arguments of an objective: embeddings, labels, and references where there are some; `options` are
    those of all calls. Without batches there are four random ones, of eight classes from well apart to mixed, in 16
    dimensions. Equivalence on some batches proves none on others: a margin that no pair reaches changes nothing.
    Parameters of the objectives, such as proxies, are as they are; both draw the same random numbers. The objectives
    stay as they were, memories included.
    """
    for given in (first, second):
        if not isinstance(given, Objective | ObjectiveSum):
            raise EquimetricError(f"gradients are compared of objectives, such as em.objective({given!r})")
    chosen = list(example_batches() if batches is None else batches)
    if not chosen or any(len(batch) < 2 for batch in chosen):
        raise EquimetricError("gradient equivalence needs one batch or more, each of embeddings and labels")
    compared = tuple(
        compare_gradients(
            embedding_gradient(first, batch, options), embedding_gradient(second, batch, options), tolerance
        )
        for batch in chosen
    )
    return GradientEquivalence(first.name, second.name, compared, tolerance)


def example_batches() -> Iterator[tuple[Tensor, Tensor]]:
    """Batches with easy and with hard pairs: (32, 16) embeddings of any length, and their class ids."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(CLASSES).repeat_interleave(SAMPLES)
    for spread in SPREADS:
        centres = torch.randn(CLASSES, DIM, dtype=torch.float64, generator=generator)
        noise = torch.randn(len(labels), DIM, dtype=torch.float64, generator=generator)
        length = 0.5 + torch.rand(len(labels), 1, dtype=torch.float64, generator=generator)
        yield length * (centres[labels] + spread * noise), labels


def embedding_gradient(objective: Objective | ObjectiveSum, batch: Sequence[Any], options: Mapping[str, Any]) -> Tensor:
    """∂L/∂X of a batch in double precision, by a copy of the objective: a memory is not filled twice."""
    embeddings, labels, *references = batch
    if not isinstance(embeddings, Tensor) or not embeddings.is_floating_point():
        raise EquimetricError("the first of a batch are its embeddings, a tensor of floating-point numbers")
    points = embeddings.detach().double().requires_grad_()
    others = [
        other.double() if isinstance(other, Tensor) and other.is_floating_point() else other for other in references
    ]
    with torch.enable_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        value = deepcopy(objective).double()(points, labels, *others, **options)
        if value.ndim:
            raise EquimetricError(f"{objective.name!r} has no gradient with reduction='none'; give another reduction")
        (gradient,) = torch.autograd.grad(value, points, materialize_grads=True)
    if not gradient.isfinite().all():
        raise EquimetricError(f"the gradient of {objective.name!r} is not finite on a batch; leave this batch out")
    return gradient


def compare_gradients(first: Tensor, second: Tensor, tolerance: float) -> BatchComparison:
    """The deviation of two gradients, and the factor between them."""
    scales = [float(gradient.abs().max()) for gradient in (first, second)]
    largest = max(scales)
    if largest == 0:
        return BatchComparison(0.0, None, 0.0)
    deviation = float((first - second).abs().max()) / largest
    square = float(second.square().sum())
    factor = float((first * second).sum()) / square if square else 0.0
    if factor <= 0 or float((first - factor * second).abs().max()) > tolerance * scales[0]:
        return BatchComparison(deviation, None, largest)
    return BatchComparison(deviation, factor, largest)
