"""Hinges between the common ancestors of triples, which are drawn among proxies with Gumbel noise."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from equimetric.ops.gradients import with_gradient
from equimetric.ops.products import is_tracing
from equimetric.ops.sampling import GumbelNoise

__all__ = ["ancestor_hinges"]

TILE, ACCELERATOR_TILE = 2**17, 2**20
"""Distances of triples to proxies that are compared together: in the cache of a CPU, or enough for an accelerator."""

BUFFERS = 8
"""Number of work matrices of a tile."""


class Ancestors(NamedTuple):
    """Parameters for drawing ρ and ϱ: the closer to the samples, the more likely, at temperature tau."""

    tau: float
    margin: float
    lower: GumbelNoise
    """Noise for ρ, the common ancestor of i and j."""
    upper: GumbelNoise
    """Noise for ϱ, the common ancestor of i, j and k."""


def ancestor_hinges(
    to_proxies: Tensor,
    triples: Tensor,
    counts: Tensor,
    *,
    margin: float,
    tau: float,
    generator: torch.Generator | None,
) -> Tensor:
    """Σ_t counts_t 1[ρ ≠ ϱ] ([d_iρ − d_iϱ + m]₊ + [d_jρ − d_jϱ + m]₊ + [d_kϱ − d_kρ + m]₊) of (3, T) triples (i, j, k).

    d are (N, M) distances to proxies. ρ is the proxy with the largest −max(d_i, d_j)/tau + noise, ϱ that with the
    largest −max(d_i, d_j, d_k)/tau + noise. Gradients pass as if each choice were the softmax of these numbers.
    """
    shape = triples.shape[1], to_proxies.shape[1]
    lower, upper = (GumbelNoise.draw(shape, to_proxies, generator) for _ in range(2))
    ancestors = Ancestors(tau, margin, lower, upper)
    if is_tracing() or shape[0] * shape[1] <= TILE:
        return sum_ancestor_hinges(to_proxies, triples, counts, ancestors)
    with torch.no_grad():
        value, gradient = sum_tiles(
            to_proxies.detach(), triples, counts, ancestors, differentiate=to_proxies.requires_grad
        )
    return value if gradient is None else with_gradient(value, to_proxies, gradient)


def sum_ancestor_hinges(to_proxies: Tensor, triples: Tensor, counts: Tensor, ancestors: Ancestors) -> Tensor:
    """Sum over all triples at once."""
    i, j, k = (to_proxies[rows] for rows in triples)
    nearer = torch.maximum(i, j)
    probs = [
        (noise.rows(slice(None)) - far / ancestors.tau).softmax(1)
        for noise, far in ((ancestors.lower, nearer), (ancestors.upper, torch.maximum(nearer, k)))
    ]
    indices = [prob.argmax(1) for prob in probs]
    # 1 for the proxy that is drawn, 0 for all others, with the gradient of a softmax.
    lower, upper = (
        one_hot(index, prob.shape[1]) + (prob - prob.detach()) for prob, index in zip(probs, indices, strict=True)
    )
    i, j, k = ((to * (lower - upper)).sum(1) for to in (i, j, k))
    margin = ancestors.margin
    value = (i + margin).relu() + (j + margin).relu() + (margin - k).relu()
    return torch.dot(counts * (indices[0] != indices[1]), value)


def sum_tiles(
    to_proxies: Tensor, triples: Tensor, counts: Tensor, ancestors: Ancestors, *, differentiate: bool
) -> tuple[Tensor, Tensor | None]:
    """The sum and its (N, M) gradient, of a few triples at a time, whose distances stay in the cache."""
    size = max(1, (TILE if to_proxies.is_cpu else ACCELERATOR_TILE) // to_proxies.shape[1])
    tile, gradient = TripleTile(to_proxies, size, ancestors), torch.zeros_like(to_proxies) if differentiate else None
    sums: list[Tensor] = []
    hinge_gradients: list[Tensor] = []
    indices: list[Tensor] = []
    for start in range(0, triples.shape[1], size):
        part = slice(start, start + size)
        tile.fill(triples[:, part], part)
        for results, result in zip((sums, hinge_gradients, indices), tile.hinges(counts[part]), strict=True):
            results.append(result)
        if gradient is not None:
            tile.add_softmax_gradient(hinge_gradients[-1], gradient)
    if gradient is not None:
        # The gradient by the distances to ρ and to ϱ themselves.
        by_distance = torch.cat(hinge_gradients, 1)
        flat_indices = triples * to_proxies.shape[1] + torch.cat(indices, 1)[:, None]
        gradient.view(-1).index_add_(0, flat_indices.flatten(), torch.stack([by_distance, -by_distance]).flatten())
    return torch.stack(sums).sum(), gradient


class TripleTile:
    """(T, M) distances of the samples of a few triples and softmax probabilities, in memory that is used again."""

    def __init__(self, to_proxies: Tensor, size: int, ancestors: Ancestors) -> None:
        self.to_proxies, self.ancestors = to_proxies, ancestors
        self.memory = to_proxies.new_empty(BUFFERS, size, to_proxies.shape[1])
        self.sign = to_proxies.new_tensor([1.0, 1.0, -1.0])[:, None]

    def fill(self, triples: Tensor, part: slice) -> None:
        """Read the distances of (3, T) triples, those of this part, and compute the probabilities."""
        self.triples = triples
        self.i, self.j, self.k, self.nearer, self.lower, self.upper, *self.spare = self.memory[:, : triples.shape[1]]
        for to, rows in zip((self.i, self.j, self.k), triples, strict=True):
            torch.index_select(self.to_proxies, 0, rows, out=to)
        torch.maximum(self.i, self.j, out=self.nearer)
        far = torch.maximum(self.nearer, self.k, out=self.spare[0])
        for noise, distance, prob in (
            (self.ancestors.lower, self.nearer, self.lower),
            (self.ancestors.upper, far, self.upper),
        ):
            logits = noise.rows(part, out=self.spare[1]).sub_(distance, alpha=1 / self.ancestors.tau)
            torch.softmax(logits, 1, out=prob)

    def hinges(self, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of the hinges, (3, T) its gradient by d(·, ρ) − d(·, ϱ), and (2, T) proxies ρ and ϱ."""
        indices = torch.stack([argmax_rows(prob) for prob in (self.lower, self.upper)])
        distances = torch.stack([to.gather(1, indices.T) for to in (self.i, self.j, self.k)])
        hinges = (self.sign * (distances[..., 0] - distances[..., 1])).add_(self.ancestors.margin).relu_()
        active_counts = counts * (indices[0] != indices[1])
        return torch.dot(active_counts, hinges.sum(0)), hinges.sign() * self.sign * active_counts, indices

    def add_softmax_gradient(self, hinge_gradients: Tensor, gradient: Tensor) -> None:
        """Add the gradient by the distances that the softmaxes are made of; their memory is overwritten.

        It goes to the largest of the distances of a triple, of equals to k, then to i.
        """
        by_probs, spare = self.spare
        torch.mul(self.i, hinge_gradients[0, :, None], out=by_probs)
        by_probs.addcmul_(self.j, hinge_gradients[1, :, None]).addcmul_(self.k, hinge_gradients[2, :, None])
        upper = softmax_backward(by_probs, self.upper, spare)
        farthest = self.k.ge_(self.nearer).mul_(upper)
        below = torch.sub(upper, farthest, out=self.upper)
        below.sub_(softmax_backward(by_probs, self.lower, spare))
        first = self.i.ge_(self.j).mul_(below)
        for rows, part in zip(self.triples, (first, below.sub_(first), farthest), strict=True):
            gradient.index_add_(0, rows, part, alpha=1 / self.ancestors.tau)


def softmax_backward(grad_output: Tensor, probs: Tensor, out: Tensor) -> Tensor:
    """`probs` · (g − Σ probs · g)."""
    result: Tensor = torch._softmax_backward_data(grad_output, probs, 1, probs.dtype, grad_input=out)
    return result


def argmax_rows(values: Tensor) -> Tensor:
    """(T,) column of the largest entry; NumPy finds it several times faster."""
    return torch.from_numpy(values.numpy().argmax(1)) if values.is_cpu else values.argmax(1)
