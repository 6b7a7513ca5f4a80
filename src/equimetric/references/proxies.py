"""Learned representatives of the classes as references."""

import math

import torch
from torch import Tensor, nn

from equimetric.errors import EquimetricError
from equimetric.geometry import Geometry, unit
from equimetric.pairs import Pairs, Queries
from equimetric.references.batch import compare
from equimetric.references.relation import check_embeddings, check_labels
from equimetric.registry import references

__all__ = ["ProxyReferences"]


@references("proxies", paper="Movshovitz-Attias et al.: No fuss distance metric learning using proxies (2017)")
class ProxyReferences(nn.Module):
    """One learned vector per class; class ids must run from 0 to classes − 1.

    The effective learning rate of a normalised proxy p is lr/‖p‖², so its initial length matters: rows start with
    entries from N(0, 1/dim), i.e. with a length of about 1. `normalize_embeddings=False` scales only the proxies to
    unit length and leaves the embeddings as they are.
    """

    def __init__(self, *, classes: int, dim: int, normalize_embeddings: bool = True) -> None:
        super().__init__()
        if classes < 2:
            raise EquimetricError(f"proxies need at least two classes, got classes={classes}")
        if dim < 1:
            raise EquimetricError(f"proxies need a positive dimension, got dim={dim}")
        self.normalize_embeddings = normalize_embeddings
        self.weight = nn.Parameter(torch.randn(classes, dim) / math.sqrt(dim))

    def forward(
        self,
        geometry: Geometry,
        normalize: bool,
        embeddings: Tensor,
        labels: Tensor,
        *,
        index: Tensor | None = None,
        reference_embeddings: Tensor | None = None,
        reference_labels: Tensor | None = None,
        self_mask: Tensor | None = None,
    ) -> Pairs:
        """Make the (B, classes) pairs."""
        if reference_embeddings is not None or reference_labels is not None or self_mask is not None:
            raise EquimetricError(
                "this objective compares with learned proxies and takes no reference_embeddings; "
                "choose references='batch' to compare with a set of your own"
            )
        embeddings = check_embeddings(embeddings)
        labels = check_labels(labels, embeddings)
        classes, dim = self.weight.shape
        if embeddings.shape[1] != dim:
            raise EquimetricError(f"embeddings have dimension {embeddings.shape[1]}, the proxies {dim}; give dim=…")
        if len(labels) and not (int(labels.min()) >= 0 and int(labels.max()) < classes):
            raise EquimetricError(
                f"class ids must lie in 0 … {classes - 1} for {classes} proxies, got {int(labels.min())} … "
                f"{int(labels.max())}; renumber the labels or raise classes=…"
            )
        # Proxies may be float32 while float64 embeddings are passed, or the reverse: compare in the finer of the two.
        finer = torch.promote_types(self.weight.dtype, embeddings.dtype)
        embeddings, proxies = embeddings.to(finer), self.weight.to(finer)
        if normalize:
            proxies = unit(proxies)
            embeddings = unit(embeddings) if self.normalize_embeddings else embeddings
        queries = Queries(embeddings, labels, index)
        return compare(geometry, queries, labels, proxies, torch.arange(classes, device=labels.device))

    def extra_repr(self) -> str:
        """Shape, for `repr`."""
        return f"classes={self.weight.shape[0]}, dim={self.weight.shape[1]}"
