"""Representatives of the classes, learned or fixed, as references."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from equimetric.components import references
from equimetric.errors import EquimetricError, unknown_name
from equimetric.geometry import Geometry, unit
from equimetric.option_values import NotNegative, Positive
from equimetric.pairs import Pairs, Queries
from equimetric.references.centres import centre_similarity, centre_spread, check_pool
from equimetric.references.kind import Given, References
from equimetric.references.relation import Labels, check_class_ids, check_embeddings, relation
from equimetric.references.sharding import Shard
from equimetric.search_space import Choice, Uniform
from equimetric.seeding import derive_seed

__all__ = ["ProxyReferences", "StaticProxy", "sample_classes"]

ASSIGNMENTS = ("static", "dynamic")


def sample_classes(labels: Tensor, classes: int, number: int, generator: torch.Generator) -> Tensor:
    """Ascending ids of all classes of the batch and, up to `number` in all, of others drawn without replacement."""
    chosen = torch.zeros(classes, dtype=torch.bool)
    chosen[labels.cpu()] = True
    shuffled = torch.randperm(classes, generator=generator)
    others = shuffled[~chosen[shuffled]]
    chosen[others[: max(0, number - (classes - len(others)))]] = True
    return chosen.nonzero()[:, 0].to(labels.device)


def spread_of(initial: str, rows: int, dim: int) -> float:
    """Standard deviation of the entries that proxies start with; `rows` = classes · per_class."""
    variances = {
        "normal": 1 / dim,
        "uniform": 1 / (3 * dim),
        "xavier": 2 / (rows + dim),
        "kaiming_normal": 2 / rows,
        "kaiming_uniform": 1 / (3 * rows),
    }
    if initial not in variances:
        raise unknown_name("start of proxies", initial, variances)
    return math.sqrt(variances[initial])


def initial_proxies(initial: str, rows: int, dim: int, shard: Shard) -> Tensor:
    """(rows, dim) whose entries have mean 0 and variance 1; no two processes that share the classes draw the same.

    All of them leave torch's global generator in the same state.
    """
    generator = None
    if shard.shared:
        seed = derive_seed(int(torch.randint(2**31, ())), "proxies", shard.rank)
        generator = torch.Generator().manual_seed(seed)
    if initial.endswith("normal"):
        return torch.randn(rows, dim, generator=generator)
    return (2 * torch.rand(rows, dim, generator=generator) - 1) * math.sqrt(3)


@references(
    "proxies",
    paper="Movshovitz-Attias et al.: No fuss distance metric learning using proxies (2017)",
    # With divisor='ordered' the published range of the regulariser's weight, 0 … 1, is that of tau / 2.
    search={"per_class": Choice((2, 3, 5, 10)), "gamma": Uniform(0.01, 100.0), "tau": Uniform(0.0, 2.0)},
)
class ProxyReferences(References):
    """Learned vectors that stand for the classes; class ids must run from 0 to classes − 1.

    The effective learning rate of a normalised proxy p is lr/‖p‖², so its initial length matters. `initial` names the
    distribution of the entries that n rows start with: 'normal' N(0, 1/dim), of length about 1; 'uniform'
    U(−1/√dim, 1/√dim) (normalised softmax); 'xavier' U(±√(6/(n + dim))) (Proxy-Triplet); 'kaiming_normal' N(0, 2/n)
    (Proxy-Anchor); 'kaiming_uniform' U(±1/√n) (SoftTriple). `initial_length` stretches them to about that length.

    `per_class` = K vectors stand for each class (rows c·K … c·K + K − 1 for class c) and are pooled to one similarity:
    `pool` = 'max' takes the nearest, 'soft' a mean weighted by softmax(s / gamma). `tau` times the spread of the
    centres of a class, over all classes compared with, is added to the loss, which draws them together (see
    `centre_spread`).
    `bias` adds a learned offset per class to the similarity. `sample_rate` < 1 compares, in training, only with the
    classes of the batch and random others, that share of all in total (Partial FC): similarities have as many columns,
    and the other rows get no gradient from them, but an optimiser with momentum or weight decay still moves them. Which
    classes a step draws follows from a seed, taken from torch's generator at the beginning, and the number of steps
    before it, both part of the state. `sharded` shares the classes out among the processes of
    torch.distributed, each of which keeps and learns the rows of its own; it needs `gather=True` beside it, and the
    rows' gradients, unlike the network's, must not be averaged over processes. `static` makes the proxies the fixed
    one-hot vectors, which needs dim = classes. `normalize_embeddings=False` leaves embeddings as they are where both
    would be scaled to unit length, `normalize_proxies=True` scales the proxies where neither would be.

    `assignment` = 'dynamic' takes the nearest proxy, p(x) = argmin_p d(x, p), as the one that stands for a sample,
    instead of that of its class. Labels then play no part and may be any; `classes` is the number of proxies.
    """

    sampling_seed: Tensor
    sampled_steps: Tensor

    def __init__(
        self,
        *,
        classes: int,
        dim: int,
        per_class: int = 1,
        pool: str = "max",
        gamma: Positive = 0.1,
        tau: NotNegative = 0.0,
        divisor: str = "ordered",
        bias: bool = False,
        sample_rate: float = 1.0,
        static: bool = False,
        normalize_embeddings: bool = True,
        normalize_proxies: bool = False,
        sharded: bool = False,
        assignment: str = "static",
        initial: str = "normal",
        initial_length: float | None = None,
    ) -> None:
        super().__init__()
        if classes < 2:
            raise EquimetricError(f"proxies need at least two classes, got classes={classes}")
        if dim < 1:
            raise EquimetricError(f"proxies need a positive dimension, got dim={dim}")
        if per_class < 1:
            raise EquimetricError(f"every class needs a proxy, got per_class={per_class}")
        if initial_length is not None and not initial_length > 0:
            raise EquimetricError(f"proxies need a length to be turned, got initial_length={initial_length}")
        if not 0 < sample_rate <= 1:
            raise EquimetricError(f"sample_rate must lie above 0 and not above 1, got {sample_rate}")
        if static and (dim != classes or per_class != 1):
            raise EquimetricError(f"static proxies are one-hot and need dim = classes = {classes}, per_class=1")
        if static and sharded:
            raise EquimetricError("static proxies are not learned, so there is nothing to share out; set sharded=False")
        if assignment not in ASSIGNMENTS:
            raise unknown_name("assignment", assignment, ASSIGNMENTS)
        if assignment == "dynamic" and sample_rate < 1:
            raise EquimetricError("the nearest proxy is sought among all of them; set sample_rate=1 beside 'dynamic'")
        check_pool(pool, divisor)
        self.classes, self.per_class, self.pool, self.gamma = classes, per_class, pool, gamma
        self.tau, self.divisor, self.sample_rate = tau, divisor, sample_rate
        self.normalize_embeddings, self.normalize_proxies = normalize_embeddings, normalize_proxies
        self.assignment = assignment
        self.shard = Shard.of_this_process(classes) if sharded else Shard.whole(classes)
        if sample_rate < 1:
            # Before the rows, of which processes with other classes draw others: the seed is that of all.
            self.register_buffer("sampling_seed", torch.randint(2**31, ()))
            self.register_buffer("sampled_steps", torch.zeros((), dtype=torch.int64))
        self.weight: Tensor
        if static:
            self.register_buffer("weight", torch.eye(classes))
        else:
            rows = initial_proxies(initial, self.shard.own * per_class, dim, self.shard)
            natural = spread_of(initial, classes * per_class, dim)
            self.weight = nn.Parameter(rows * (natural if initial_length is None else initial_length / math.sqrt(dim)))
        self.bias = nn.Parameter(torch.zeros(self.shard.own)) if bias else None

    def forward(self, geometry: Geometry, normalize: bool, given: Given) -> Pairs:
        """Make the (B, classes) pairs, or fewer columns where classes are sampled."""
        given.refuse_references("learned proxies")
        embeddings = check_embeddings(given.embeddings)
        labels = self.checked_classes(given.labels, embeddings)
        if self.bias is not None and geometry.name != "dot":
            raise EquimetricError(f"a bias means nothing in the {geometry.name} geometry; use geometry='dot'")
        seed = self.step_seed()
        self.shard.require_same_batch(labels, seed)
        ids = None if seed is None else self.drawn_classes(labels, seed)
        proxies, bias, counts = self.compared_rows(ids)
        # Proxies may be float32 while float64 embeddings are passed, or the reverse: compare in the finer of the two.
        finer = torch.promote_types(proxies.dtype, embeddings.dtype)
        embeddings, proxies = embeddings.to(finer), proxies.to(finer)
        if normalize and self.normalize_embeddings:
            embeddings = unit(embeddings)
        scaled = normalize or self.normalize_proxies
        if scaled:
            proxies = unit(proxies)
        queries_here = self.shard.spread(embeddings)
        if self.per_class == 1:
            similarity = geometry.measure(queries_here, proxies)
        else:
            similarity = centre_similarity(
                geometry.measure, queries_here, proxies, self.per_class, self.pool, self.gamma
            )
        if bias is not None:
            similarity = similarity + bias.to(finer)
        similarity = self.shard.join_columns(similarity, counts)
        target = labels if ids is None else torch.searchsorted(ids, labels)
        if self.assignment == "dynamic":
            target = similarity.argmax(1)
        columns = torch.arange(similarity.shape[1], device=labels.device)
        positive, negative = relation(target, columns, (len(labels), len(columns)), None)
        lengths = self.lengths(proxies, scaled, counts)
        target_length = lengths[target] if isinstance(lengths, Tensor) else lengths
        centres = None
        if self.tau and self.per_class > 1:
            centres = proxies if scaled else unit(proxies)
        queries = Queries(embeddings, labels, given.index, target_length, centres)
        return Pairs(similarity, positive, negative, geometry=geometry, queries=queries, target=target)

    def step_seed(self) -> int | None:
        """What the classes of this step of training are drawn by; None where all are compared with."""
        if self.sample_rate == 1 or not self.training:
            return None
        seed = derive_seed(int(self.sampling_seed), "sampled classes", int(self.sampled_steps))
        self.sampled_steps += 1
        return seed

    def drawn_classes(self, labels: Tensor, seed: int) -> Tensor:
        """Ascending ids of the classes that a step compares with: those of the batch and ⌊rate · classes⌋ in all."""
        # 0.29 · 100 is a trifle below 29.
        number = int(self.sample_rate * self.classes + 1e-9)
        return sample_classes(labels, self.classes, number, torch.Generator().manual_seed(seed))

    def compared_rows(self, ids: Tensor | None) -> tuple[Tensor, Tensor | None, list[int]]:
        """The rows and biases of the classes with these ids, or of all, that are here; how many each process has.

        Rows are taken out before anything is computed from them, so that time and memory follow their number.
        """
        if ids is None:
            return self.weight, self.bias, list(self.shard.sizes)
        here, counts = self.shard.places(ids)
        rows = torch.nn.functional.embedding(here, self.weight.view(self.shard.own, -1))
        return rows.view(-1, self.weight.shape[1]), None if self.bias is None else self.bias[here], counts

    def checked_classes(self, labels: Labels, embeddings: Tensor) -> Tensor:
        """Class ids, each of which has a proxy of the embeddings' dimension, unless proxies are assigned otherwise."""
        labels = check_class_ids(labels, embeddings)
        dim = self.weight.shape[1]
        if embeddings.shape[1] != dim:
            raise EquimetricError(f"embeddings have dimension {embeddings.shape[1]}, the proxies {dim}; give dim=…")
        # A compiled graph cannot branch on data.
        if self.assignment != "static" or not len(labels) or torch.compiler.is_compiling():
            return labels
        lowest, highest = map(int, labels.aminmax())
        if lowest < 0 or highest >= self.classes:
            raise EquimetricError(
                f"class ids must lie in 0 … {self.classes - 1} for {self.classes} proxies, got {lowest} … {highest}; "
                "renumber the labels or raise classes=…"
            )
        return labels

    def by_class(self, proxies: Tensor) -> Tensor:
        """(C·K, D) rows as (C, K, D), of the classes of this process."""
        return proxies.view(self.shard.own, self.per_class, -1)

    def lengths(self, proxies: Tensor, scaled: bool, counts: list[int]) -> Tensor | float | None:
        """(columns,) length of the proxy of each class; unknown where several are pooled, or a bias is added."""
        if self.bias is not None:
            return None
        if scaled:
            return 1.0
        if self.per_class > 1:
            return None
        return self.shard.join(torch.linalg.vector_norm(proxies, dim=1), counts)

    def adds(self) -> str:
        """The regulariser of several centres per class."""
        return "the regulariser of the centres" if self.tau and self.per_class > 1 else ""

    def objective_value(self, loss: Callable[[Pairs], Tensor], pairs: Pairs) -> Tensor:
        """The loss of the pairs + tau · spread of the centres of a class, over the classes compared with."""
        value = loss(pairs)
        centres = None if pairs.queries is None else pairs.queries.references
        if centres is None:
            return value
        by_class = centres.view(-1, self.per_class, centres.shape[1])
        own = centre_spread(by_class, self.divisor) * (len(by_class) / pairs.similarity.shape[1])
        spread = self.shard.join(own[None], [1] * len(self.shard.sizes)).sum()
        return value + self.tau * spread.to(value)

    def extra_repr(self) -> str:
        """Shape, for `repr`."""
        return f"classes={self.classes}, dim={self.weight.shape[1]}, per_class={self.per_class}"


class StaticProxy(ProxyReferences):
    """One-hot proxies of `dim` classes in as many dimensions: with softmax, cross-entropy on the outputs themselves."""

    def __init__(self, dim: int) -> None:
        super().__init__(classes=dim, dim=dim, static=True)
