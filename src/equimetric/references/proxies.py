"""Proxies, vectors that represent the classes, learned or fixed, as references."""

import math
from typing import Literal

import torch
from torch import Tensor, nn

from equimetric.components import references
from equimetric.errors import EquimetricError, unknown_name
from equimetric.geometry import Geometry, unit
from equimetric.option_values import NonNegativeFloat, PositiveFloat
from equimetric.pairs import Pairs, Queries
from equimetric.references.base import ObjectiveInputs, PairTerms, ProxySet, References
from equimetric.references.centres import centre_similarity, centre_spread, check_pool
from equimetric.references.relation import Labels, check_class_ids, check_embeddings, label_masks
from equimetric.references.sharding import Shard
from equimetric.search_space import Choice, Uniform
from equimetric.seeding import derive_seed

__all__ = ["ProxyReferences", "StaticProxy", "sample_classes"]

ASSIGNMENTS = ("static", "dynamic")


def sample_classes(labels: Tensor, classes: int, num_sampled: int, generator: torch.Generator) -> Tensor:
    """Ascending ids of the classes of the batch and, up to `num_sampled` in all, others drawn without replacement."""
    is_sampled = torch.zeros(classes, dtype=torch.bool)
    is_sampled[labels.cpu()] = True
    shuffled = torch.randperm(classes, generator=generator)
    others = shuffled[~is_sampled[shuffled]]
    is_sampled[others[: max(0, num_sampled - (classes - len(others)))]] = True
    return is_sampled.nonzero()[:, 0].to(labels.device)


def initial_deviation(initial: str, rows: int, dim: int) -> float:
    """Standard deviation of the initial entries of proxies; `rows` = classes · per_class."""
    variances = {
        "normal": 1 / dim,
        "uniform": 1 / (3 * dim),
        "xavier": 2 / (rows + dim),
        "kaiming_normal": 2 / rows,
        "kaiming_uniform": 1 / (3 * rows),
    }
    if initial not in variances:
        raise unknown_name("init", initial, variances)
    return math.sqrt(variances[initial])


def initial_proxies(initial: str, rows: int, dim: int, shard: Shard) -> Tensor:
    """(rows, dim) entries of mean 0 and variance 1; with sharded classes every rank draws different ones.

    All ranks leave torch's global generator in the same state.
    """
    generator = None
    if shard.is_sharded:
        seed = derive_seed(int(torch.randint(2**31, ())), "proxies", shard.rank)
        generator = torch.Generator().manual_seed(seed)
    if initial.endswith("normal"):
        return torch.randn(rows, dim, generator=generator)
    return (2 * torch.rand(rows, dim, generator=generator) - 1) * math.sqrt(3)


def check_sizes(classes: int, dim: int, per_class: int, sample_rate: float, initial_length: float | None) -> None:
    """Raise an error for invalid sizes."""
    if classes < 2:
        raise EquimetricError(f"proxies need at least two classes, got classes={classes}")
    if dim < 1:
        raise EquimetricError(f"proxies need a positive dimension, got dim={dim}")
    if per_class < 1:
        raise EquimetricError(f"every class needs a proxy, got per_class={per_class}")
    if initial_length is not None and not initial_length > 0:
        raise EquimetricError(f"initial_length must be positive, got initial_length={initial_length}")
    if not 0 < sample_rate <= 1:
        raise EquimetricError(f"sample_rate must lie above 0 and not above 1, got {sample_rate}")


def check_modes(
    *, classes: int, dim: int, per_class: int, sample_rate: float, static: bool, sharded: bool, assignment: str
) -> None:
    """Raise an error for options that exclude one another."""
    if static and (dim != classes or per_class != 1):
        raise EquimetricError(f"static proxies are one-hot and need dim = classes = {classes}, per_class=1")
    if static and sharded:
        raise EquimetricError("static proxies are not learned, so there is nothing to shard; set sharded=False")
    if assignment not in ASSIGNMENTS:
        raise unknown_name("assignment", assignment, ASSIGNMENTS)
    if assignment == "dynamic" and sample_rate < 1:
        raise EquimetricError("the nearest proxy is searched among all; set sample_rate=1 with 'dynamic'")


@references(
    "proxies",
    paper="Movshovitz-Attias et al.: No fuss distance metric learning using proxies (2017)",
    # With divisor='ordered' the published range of the regulariser's weight, 0 … 1, is that of tau / 2.
    search={"per_class": Choice((2, 3, 5, 10)), "gamma": Uniform(0.01, 100.0), "tau": Uniform(0.0, 2.0)},
)
class ProxyReferences(References):
    """Learned vectors that represent the classes; class ids must run from 0 to classes − 1.

    The effective learning rate of a normalised proxy p is lr/‖p‖², so its initial length matters. `initial` names the
    initial distribution of the entries of n rows: 'normal' N(0, 1/dim), of length about 1; 'uniform'
    U(−1/√dim, 1/√dim) (normalised softmax); 'xavier' U(±√(6/(n + dim))) (Proxy-Triplet); 'kaiming_normal' N(0, 2/n)
    (Proxy-Anchor); 'kaiming_uniform' U(±1/√n) (SoftTriple). `initial_length` scales them to about that length.

    `per_class` = K vectors represent each class (rows c·K … c·K + K − 1 for class c) and are pooled to one similarity:
    `pool` = 'max' takes the nearest, 'soft' a mean weighted by softmax(s / gamma). `tau` times the spread of the
    centres of a class, over all classes compared with, is a penalty that draws them together (see `centre_spread`).
    `bias` adds a learned offset per class to the similarity.

    `sample_rate` < 1 compares, in training, only with the classes of the batch and random others, in total that
    fraction of all classes (Partial FC). The similarities have as many columns, and the other rows get no gradient, but
    an optimiser with momentum or weight decay still moves them. The sampled classes follow from a seed, drawn from
    torch's generator at construction, and the number of steps so far, both part of the state. `sharded` splits the
    classes over the ranks of torch.distributed, each of which stores and trains its own rows; it needs `gather=True`,
    and the gradients of the rows, unlike the network's, must not be averaged over ranks.

    `static` makes the proxies fixed one-hot vectors, which needs dim = classes. `normalize_embeddings=False` leaves
    embeddings as they are where both would be scaled to unit length, `normalize_proxies=True` scales the proxies where
    neither would be. `assignment` = 'dynamic' takes the nearest proxy, p(x) = argmin_p d(x, p), as a sample's positive
    instead of that of its class. Labels are then ignored; `classes` is the number of proxies.
    """

    sampling_seed: Tensor
    sampled_steps: Tensor

    def __init__(
        self,
        *,
        classes: int,
        dim: int,
        per_class: int = 1,
        pool: Literal["max", "soft"] = "max",
        gamma: PositiveFloat = 0.1,
        tau: NonNegativeFloat = 0.0,
        divisor: Literal["ordered", "unordered"] = "ordered",
        bias: bool = False,
        sample_rate: float = 1.0,
        static: bool = False,
        normalize_embeddings: bool = True,
        normalize_proxies: bool = False,
        sharded: bool = False,
        assignment: Literal["static", "dynamic"] = "static",
        initial: Literal["normal", "uniform", "xavier", "kaiming_normal", "kaiming_uniform"] = "normal",
        initial_length: float | None = None,
    ) -> None:
        super().__init__()
        check_sizes(classes, dim, per_class, sample_rate, initial_length)
        check_modes(
            classes=classes,
            dim=dim,
            per_class=per_class,
            sample_rate=sample_rate,
            static=static,
            sharded=sharded,
            assignment=assignment,
        )
        check_pool(pool, divisor)
        self.classes, self.per_class, self.pool, self.gamma = classes, per_class, pool, gamma
        self.tau, self.divisor, self.sample_rate = tau, divisor, sample_rate
        self.normalize_embeddings, self.normalize_proxies = normalize_embeddings, normalize_proxies
        self.assignment = assignment
        self.shard = Shard.current(classes) if sharded else Shard.unsharded(classes)
        if sample_rate < 1:
            # Before the rows: all ranks must draw the same seed, but different rows.
            self.register_buffer("sampling_seed", torch.randint(2**31, ()))
            self.register_buffer("sampled_steps", torch.zeros((), dtype=torch.int64))
        self.weight: Tensor
        if static:
            self.register_buffer("weight", torch.eye(classes))
        else:
            self.weight = nn.Parameter(self.draw_proxies(dim, initial, initial_length))
        self.bias = nn.Parameter(torch.zeros(self.shard.size)) if bias else None

    def draw_proxies(self, dim: int, initial: str, initial_length: float | None) -> Tensor:
        """Draw the initial proxies of the classes of this rank."""
        rows = initial_proxies(initial, self.shard.size * self.per_class, dim, self.shard)
        std = initial_deviation(initial, self.classes * self.per_class, dim)
        if initial_length is not None:
            std = initial_length / math.sqrt(dim)
        return rows * std

    def forward(self, geometry: Geometry, normalize: bool, inputs: ObjectiveInputs) -> PairTerms:
        """Make the (B, classes) pairs, or fewer columns where classes are sampled."""
        inputs.reject_reference_set("learned proxies")
        embeddings = check_embeddings(inputs.embeddings)
        labels = self.check_classes(inputs.labels, embeddings)
        if self.bias is not None and (geometry.bounded or not geometry.inner_product):
            raise EquimetricError(f"a bias means nothing in the {geometry.name} geometry; use geometry='dot'")
        seed = self.next_seed()
        self.shard.require_same_batch(labels, seed)
        ids = None if seed is None else self.sample(labels, seed)
        proxies, bias, counts = self.local_rows(ids)
        # Proxies may be float32 while float64 embeddings are passed, or the reverse: compare in the finer of the two.
        dtype = torch.promote_types(proxies.dtype, embeddings.dtype)
        embeddings, proxies = embeddings.to(dtype), proxies.to(dtype)
        if normalize and self.normalize_embeddings:
            embeddings = unit(embeddings)
        is_unit = normalize or self.normalize_proxies
        if is_unit:
            proxies = unit(proxies)
        similarity = self.shard.gather_columns(self.compare(geometry, embeddings, proxies, bias), counts)
        target = labels if ids is None else torch.searchsorted(ids, labels)
        if self.assignment == "dynamic":
            target = similarity.argmax(1)
        columns = torch.arange(similarity.shape[1], device=labels.device)
        positive, negative = label_masks(target, columns, (labels.shape[0], columns.shape[0]), None)
        norms = self.proxy_norms(proxies, is_unit, counts)
        target_length = norms[target] if isinstance(norms, Tensor) else norms
        queries = Queries(embeddings, labels, inputs.index, target_length, weight=inputs.sample_weight)
        pairs = Pairs(similarity, positive, negative, geometry=geometry, queries=queries, target=target)
        if not self.tau or self.per_class == 1:
            return PairTerms([(1.0, pairs)])
        return PairTerms([(1.0, pairs)], self.penalty(proxies if is_unit else unit(proxies), len(columns)))

    def compare(self, geometry: Geometry, embeddings: Tensor, proxies: Tensor, bias: Tensor | None) -> Tensor:
        """(B, classes of this rank) one similarity per class."""
        queries = self.shard.scale_gradient(embeddings)
        if self.per_class == 1:
            similarity = geometry.measure(queries, proxies)
        else:
            similarity = centre_similarity(geometry.measure, queries, proxies, self.per_class, self.pool, self.gamma)
        return similarity if bias is None else similarity + bias.to(similarity.dtype)

    def next_seed(self) -> int | None:
        """The seed of this training step's sampled classes; None where all classes are compared with."""
        if self.sample_rate == 1 or not self.training:
            return None
        seed = derive_seed(int(self.sampling_seed), "sampled classes", int(self.sampled_steps))
        self.sampled_steps += 1
        return seed

    def sample(self, labels: Tensor, seed: int) -> Tensor:
        """Ascending ids of the classes to compare with: those of the batch and others, ⌊rate · classes⌋ in all."""
        # 0.29 · 100 is slightly below 29.
        num_sampled = int(self.sample_rate * self.classes + 1e-9)
        return sample_classes(labels, self.classes, num_sampled, torch.Generator().manual_seed(seed))

    def local_rows(self, ids: Tensor | None) -> tuple[Tensor, Tensor | None, list[int]]:
        """Rows and biases on this rank of the classes with these ids, or of all; the number of classes of each rank.

        Rows are selected before anything is computed from them, so time and memory grow with their number.
        """
        if ids is None:
            return self.weight, self.bias, list(self.shard.sizes)
        local, counts = self.shard.local_ids(ids)
        rows = torch.nn.functional.embedding(local, self.weight.view(self.shard.size, -1))
        return rows.view(-1, self.weight.shape[1]), None if self.bias is None else self.bias[local], counts

    def check_classes(self, labels: Labels, embeddings: Tensor) -> Tensor:
        """Class ids, each of which must have a proxy of the embeddings' dimension unless the assignment is dynamic."""
        labels = check_class_ids(labels, embeddings)
        dim = self.weight.shape[1]
        if embeddings.shape[1] != dim:
            raise EquimetricError(f"embeddings have dimension {embeddings.shape[1]}, the proxies {dim}; give dim=…")
        # A compiled graph cannot branch on data.
        if self.assignment != "static" or not labels.shape[0] or torch.compiler.is_compiling():
            return labels
        low, high = map(int, labels.aminmax())
        if low < 0 or high >= self.classes:
            raise EquimetricError(
                f"class ids must lie in 0 … {self.classes - 1} for {self.classes} proxies, got {low} … {high}; "
                "renumber the labels or raise classes=…"
            )
        return labels

    def by_class(self, proxies: Tensor) -> Tensor:
        """(C·K, D) rows as (C, K, D), of the classes of this rank."""
        return proxies.view(self.shard.size, self.per_class, -1)

    def proxy_norms(self, proxies: Tensor, is_unit: bool, counts: list[int]) -> Tensor | float | None:
        """(columns,) norm of the proxy of each class; None where several are pooled or a bias is added."""
        if self.bias is not None:
            return None
        if is_unit:
            return 1.0
        if self.per_class > 1:
            return None
        return self.shard.gather(torch.linalg.vector_norm(proxies, dim=1), counts)

    def penalty(self, centres: Tensor, classes: int) -> Tensor:
        """Tau · spread of these unit centres within their class, over all classes compared with."""
        by_class = centres.view(-1, self.per_class, centres.shape[1])
        local = centre_spread(by_class, self.divisor) * (len(by_class) / classes)
        return self.tau * self.shard.gather(local[None], [1] * len(self.shard.sizes)).sum()

    def proxy_set(self) -> ProxySet | None:
        """The learned rows and their classes; None where they are fixed."""
        if self.shard.is_sharded:
            raise EquimetricError(
                "proxies of different processes cannot be compared; set sharded=False to add this term"
            )
        if not isinstance(self.weight, nn.Parameter):
            return None
        classes = torch.arange(self.classes, device=self.weight.device)
        return ProxySet(self.weight, classes.repeat_interleave(self.per_class))

    def extra_repr(self) -> str:
        """Shape, for `repr`."""
        return f"classes={self.classes}, dim={self.weight.shape[1]}, per_class={self.per_class}"


class StaticProxy(ProxyReferences):
    """One-hot proxies of `dim` classes in `dim` dimensions: with softmax, cross-entropy on the outputs themselves."""

    def __init__(self, dim: int) -> None:
        super().__init__(classes=dim, dim=dim, static=True)
