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
"""Matrices in which a tile computes."""


class Ancestors(NamedTuple):
    """How ρ and ϱ are drawn: the closer to the samples, the more likely, at temperature tau."""

    tau: float
    margin: float
    lower: GumbelNoise
    """Of ρ, the common ancestor of i and j."""
    upper: GumbelNoise
    """Of ϱ, the common ancestor of i, j and k."""


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
    """The sum over all triples at once."""
    i, j, k = (to_proxies[rows] for rows in triples)
    nearer = torch.maximum(i, j)
    shares = [
        (noise.rows(slice(None)) - far / ancestors.tau).softmax(1)
        for noise, far in ((ancestors.lower, nearer), (ancestors.upper, torch.maximum(nearer, k)))
    ]
    indices = [share.argmax(1) for share in shares]
    # 1 for the proxy that is drawn, 0 for all others, with the gradient of a softmax.
    lower, upper = (
        one_hot(index, share.shape[1]) + (share - share.detach()) for share, index in zip(shares, indices, strict=True)
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
        for kept, one in zip((sums, hinge_gradients, indices), tile.hinges(counts[part]), strict=True):
            kept.append(one)
        if gradient is not None:
            tile.add_shares(hinge_gradients[-1], gradient)
    if gradient is not None:
        # The gradient by the distances to ρ and to ϱ themselves.
        by_distance = torch.cat(hinge_gradients, 1)
        where = triples * to_proxies.shape[1] + torch.cat(indices, 1)[:, None]
        gradient.view(-1).index_add_(0, where.flatten(), torch.stack([by_distance, -by_distance]).flatten())
    return torch.stack(sums).sum(), gradient


class TripleTile:
    """(T, M) distances of the samples of a few triples and shares of the softmaxes, in memory that is used again."""

    def __init__(self, to_proxies: Tensor, size: int, ancestors: Ancestors) -> None:
        self.to_proxies, self.ancestors = to_proxies, ancestors
        self.memory = to_proxies.new_empty(BUFFERS, size, to_proxies.shape[1])
        self.sign = to_proxies.new_tensor([1.0, 1.0, -1.0])[:, None]

    def fill(self, triples: Tensor, part: slice) -> None:
        """Read the distances of (3, T) triples, those of this part, and compute the shares."""
        self.triples = triples
        self.i, self.j, self.k, self.nearer, self.lower, self.upper, *self.spare = self.memory[:, : triples.shape[1]]
        for to, rows in zip((self.i, self.j, self.k), triples, strict=True):
            torch.index_select(self.to_proxies, 0, rows, out=to)
        torch.maximum(self.i, self.j, out=self.nearer)
        far = torch.maximum(self.nearer, self.k, out=self.spare[0])
        for noise, distance, share in (
            (self.ancestors.lower, self.nearer, self.lower),
            (self.ancestors.upper, far, self.upper),
        ):
            drawn = noise.rows(part, out=self.spare[1]).sub_(distance, alpha=1 / self.ancestors.tau)
            torch.softmax(drawn, 1, out=share)

    def hinges(self, counts: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The sum of the hinges, (3, T) its gradient by d(·, ρ) − d(·, ϱ), and (2, T) proxies ρ and ϱ."""
        indices = torch.stack([largest(share) for share in (self.lower, self.upper)])
        at = torch.stack([to.gather(1, indices.T) for to in (self.i, self.j, self.k)])
        each = (self.sign * (at[..., 0] - at[..., 1])).add_(self.ancestors.margin).relu_()
        counted = counts * (indices[0] != indices[1])
        return torch.dot(counted, each.sum(0)), each.sign() * self.sign * counted, indices

    def add_shares(self, hinge_gradients: Tensor, gradient: Tensor) -> None:
        """Add the gradient by the distances that the softmaxes are made of; their memory is overwritten.

        It goes to the largest of the distances of a triple, of equals to k, then to i.
        """
        by_share, spare = self.spare
        torch.mul(self.i, hinge_gradients[0, :, None], out=by_share)
        by_share.addcmul_(self.j, hinge_gradients[1, :, None]).addcmul_(self.k, hinge_gradients[2, :, None])
        upper = softmax_backward(by_share, self.upper, spare)
        farthest = self.k.ge_(self.nearer).mul_(upper)
        below = torch.sub(upper, farthest, out=self.upper)
        below.sub_(softmax_backward(by_share, self.lower, spare))
        first = self.i.ge_(self.j).mul_(below)
        for rows, part in zip(self.triples, (first, below.sub_(first), farthest), strict=True):
            gradient.index_add_(0, rows, part, alpha=1 / self.ancestors.tau)


def softmax_backward(grad_output: Tensor, share: Tensor, out: Tensor) -> Tensor:
    """Share · (g − Σ share · g)."""
    found: Tensor = torch._softmax_backward_data(grad_output, share, 1, share.dtype, grad_input=out)
    return found


def largest(values: Tensor) -> Tensor:
    """(T,) column of the largest entry; NumPy finds it several times faster."""
    return torch.from_numpy(values.numpy().argmax(1)) if values.is_cpu else values.argmax(1)
