"""Random galleries out of labelled sets: the enrolled classes and the strangers.

Classes are drawn whole. A probe is *mated* if its class is enrolled by another image than itself, a *stranger* if its
class is left out of the gallery.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from equimetric.errors import EquimetricError
from equimetric.evaluation.engine.arrays import Integers
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.evaluation.identification.protocol import IdentificationProtocol
from equimetric.seeding import derive_seed

__all__ = ["GalleryDraw", "count_identities", "draw_galleries", "rank_in_class"]

DEFAULT_STRANGERS = 0.5


@dataclass(frozen=True, eq=False)
class GalleryDraw:
    """One gallery and its probes.

    items       (E,) enrolled gallery items, ascending
    identities  number of classes they are of
    mated       (N,) probes with a mate in the gallery
    stranger    (N,) probes without
    """

    items: Tensor
    identities: int
    mated: Tensor
    stranger: Tensor

    @property
    def probes(self) -> Tensor:
        """(N,) queries that are searched for in this gallery."""
        return self.mated | self.stranger


def draw_galleries(
    sets: LabelledSets,
    protocol: IdentificationProtocol,
    identities: int | None = None,
    held_out: Integers | None = None,
) -> list[GalleryDraw]:
    """One draw for each repeat; a single one where nothing is random.

    With a number of `identities`, smaller galleries are parts of the larger ones and have the same strangers. Classes
    that are `held_out` are strangers in every draw.
    """
    query_classes, gallery_classes = sets.query_classes.cpu().numpy(), sets.gallery_classes.cpu().numpy()
    pool = np.unique(gallery_classes)
    left_out = _count_left_out(sets, protocol, query_classes, pool)
    same = _same_images(sets)
    random = left_out or protocol.enrolled is not None or identities is not None
    draws = []
    for repeat in range(protocol.repeats if random else 1):
        generator = np.random.default_rng(derive_seed(protocol.seed, "identification", repeat))
        order = generator.permutation(pool)
        if held_out is not None:
            order = np.concatenate([held_out, order[~np.isin(order, held_out)]])
        chosen = order[left_out:][:identities]
        enrolled = np.isin(gallery_classes, chosen)
        if protocol.enrolled is not None:
            limit = np.bincount(gallery_classes, minlength=len(sets.class_labels)) - (len(same) > 0)
            enrolled &= (
                rank_in_class(gallery_classes, generator) < np.clip(limit, 1, protocol.enrolled)[gallery_classes]
            )
        mated = _find_mated(query_classes, gallery_classes, enrolled, same, protocol)
        stranger = np.isin(query_classes, order[:left_out]) | ~np.isin(query_classes, pool)
        device = sets.queries.device
        items, *rows = (torch.from_numpy(part).to(device) for part in (np.flatnonzero(enrolled), mated, stranger))
        draws.append(GalleryDraw(items, len(chosen), *rows))
    if not any(draw.mated.any() for draw in draws):
        raise EquimetricError(
            "no probe has a mate in the gallery; an identity needs at least two images, one to enrol and one to find"
        )
    return draws


def count_identities(sets: LabelledSets, protocol: IdentificationProtocol) -> int:
    """Number of identities in a full gallery."""
    pool = np.unique(sets.gallery_classes.cpu().numpy())
    return len(pool) - _count_left_out(sets, protocol, sets.query_classes.cpu().numpy(), pool)


def _count_left_out(
    sets: LabelledSets, protocol: IdentificationProtocol, query_classes: Integers, pool: Integers
) -> int:
    """Number of classes left out of the gallery."""
    unknown = bool((~np.isin(query_classes, pool)).any())
    share = protocol.strangers
    if share is None:
        share = 0.0 if unknown else DEFAULT_STRANGERS
    if not share and not unknown:
        raise EquimetricError(
            "every probe is of a class in the gallery, so there is no stranger; leave some out, such as strangers=0.5"
        )
    count = max(1, round(share * len(pool))) if share else 0
    if count >= len(pool):
        raise EquimetricError(
            f"with {count} of {len(sets.class_labels)} classes as strangers nobody is left to enrol; give more "
            "classes, or a smaller share"
        )
    return count


def _same_images(sets: LabelledSets) -> Integers:
    """(P, 2) queries and the gallery items of the same image."""
    pairs = np.empty((0, 2), np.int64) if sets.excluded is None else sets.excluded.cpu().numpy()
    if sets.gallery is not None:
        return pairs
    return np.concatenate([np.repeat(np.arange(len(sets.queries))[:, None], 2, axis=1), pairs])


def rank_in_class(classes: Integers, generator: np.random.Generator) -> Integers:
    """(G,) the position of each item among those of its class, in random order."""
    order = np.lexsort((generator.random(len(classes)), classes))
    sizes = np.bincount(classes)
    rank = np.empty(len(classes), np.int64)
    rank[order] = np.arange(len(classes)) - np.repeat(sizes.cumsum() - sizes, sizes)
    return rank


def _find_mated(
    query_classes: Integers,
    gallery_classes: Integers,
    enrolled: NDArray[np.bool_],
    same: Integers,
    protocol: IdentificationProtocol,
) -> NDArray[np.bool_]:
    """(N,) queries whose class another image enrols; with a number of images enrolled, without these themselves."""
    classes = max(query_classes.max(), gallery_classes.max()) + 1
    mates = np.bincount(gallery_classes[enrolled], minlength=classes)[query_classes]
    query, item = same[enrolled[same[:, 1]]].T
    same_class = query[query_classes[query] == gallery_classes[item]]
    mated = mates > np.bincount(same_class, minlength=len(query_classes))
    return mated if protocol.enrolled is None else mated & ~np.isin(np.arange(len(query_classes)), query)
