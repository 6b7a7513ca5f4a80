"""Deep spectral clustering: the embedding's column space must be that of the classes."""

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.pairs import Pairs


@loss(
    "spectral",
    title="Deep spectral",
    family="clustering",
    paper="Law, Urtasun, Zemel: Deep spectral clustering learning (2017)",
    geometry="none",
    references="batch",
    takes="batch",
    exempt={
        "monotone": "compares subspaces that the whole batch spans, not pairs",
        "multiplicity": "rows and columns are the same samples: columns cannot be repeated alone",
    },
    known_as=("DeepSpectralClustering",),
)
def spectral(pairs: Pairs) -> Tensor:
    """Minimize the distance between the projectors onto the span of the embeddings and of the class indicators.

    L = ½‖F F⁺ − Y Y⁺‖² = ½(rank F + rank Y) − tr(F F⁺ Y Y⁺), F (B, D) the embeddings, Y (B, K) one-hot labels. Meant
    for large batches with about as many classes as dimensions. The rank counts as constant; where F has less than
    full rank, F⁺ is its pseudo-inverse. Rows of weight w stand in F and Y times √w, which is as if they were repeated.
    """
    embeddings, labels = ops.require.whole_batch(pairs, "spectral")
    ops.require.finite(embeddings, "spectral")
    same = (labels[:, None] == labels[None, :]).to(embeddings.dtype)
    # Y Y⁺ averages over each class: 1/n_c inside a class of n_c samples, so its trace is the number of classes.
    if pairs.query_weight is None:
        class_projector = same / same.sum(1, keepdim=True)
    else:
        weight = pairs.query_weight.to(embeddings)
        embeddings = embeddings * weight.sqrt()[:, None]
        class_projector = ops.divide(same * (weight[:, None] * weight).sqrt(), (same @ weight)[:, None])
    inverse = torch.linalg.pinv(embeddings).T
    ranks: Tensor = (embeddings * inverse).sum().detach() + class_projector.trace()
    agreement: Tensor = (embeddings * (class_projector @ inverse)).sum()
    return ranks / 2 - agreement
