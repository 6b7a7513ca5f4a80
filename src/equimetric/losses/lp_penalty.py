"""A penalty on the length of embeddings or proxies."""

from typing import Annotated

import torch
from torch import Tensor

from equimetric import ops
from equimetric.components import loss
from equimetric.option_values import Range
from equimetric.pairs import Pairs
from equimetric.search_space import Choice


@loss(
    "lp",
    title="Lp penalty",
    family="regulariser",
    paper="Sohn: Improved deep metric learning with multi-class N-pair loss objective (2016)",
    geometry="none",
    references=("batch", "proxy_set"),
    takes="batch",
    search={"power": Choice((1, 2))},
)
def lp(pairs: Pairs, *, p: Annotated[float, Range(1.0)] = 2.0, power: Annotated[float, Range(1.0)] = 1.0) -> Tensor:
    """Penalize the Lp norm of embeddings or proxies; add it to any objective, with a small weight.

    L = mean_i ‖x_i‖_p^power of the embeddings as the network gives them; of the proxies of the other terms with
    references='proxy_set'.
    """
    vectors = ops.require.queries(pairs, "lp").embeddings
    norms: Tensor = torch.linalg.vector_norm(vectors, ord=p, dim=1)
    return ops.mean(norms if power == 1 else norms**power)
