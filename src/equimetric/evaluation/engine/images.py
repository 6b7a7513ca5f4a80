"""The images behind queries and gallery items: what sampling noise leaves out one at a time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from equimetric.evaluation.engine.arrays import Integers
from equimetric.evaluation.engine.label_sets import MultiLabelSets
from equimetric.evaluation.engine.pair_counts import PairCounts
from equimetric.evaluation.engine.sets import LabelledSets
from equimetric.seeding import derive_seed

__all__ = ["Images", "draw_images", "images_by_class", "number_images", "pairs_by_image"]

DRAWN_PAIRS = 2**23
DRAWN_IMAGES = (64, 512)


@dataclass(frozen=True)
class Images:
    """Images of a labelled set, numbered class by class.

    classes   (I,) class numbers, ascending; of several labels the numbers of the groups with the same labels
    query_images  (N,) and item_images (G,): image of every query and gallery item
    start     (C + 1,): class c has the images start[c] … start[c + 1], where images have one class
    orders    2 where every image is both query and gallery item, so that two images make two pairs; else 1
    """

    classes: NDArray[np.int32]
    query_images: NDArray[np.int32]
    item_images: NDArray[np.int32]
    start: Integers
    orders: int = 1

    def __len__(self) -> int:
        return len(self.classes)


def number_images(sets: LabelledSets) -> Images:
    """One image per query and per gallery item; those of one class that are never compared are the same image."""
    queries, items = (classes.cpu().numpy() for classes in (sets.query_classes, sets.gallery_classes))
    one_set = sets.gallery is None
    classes = queries if one_set else np.concatenate([queries, items])
    image = np.arange(len(classes))
    if sets.excluded is not None and len(sets.excluded):
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        first, second = sets.excluded.cpu().numpy().T
        second = second + (0 if one_set else len(queries))
        same = classes[first] == classes[second]
        links = coo_array((np.ones(same.sum()), (first[same], second[same])), shape=(len(classes),) * 2)
        _, image = connected_components(links, directed=False)
    _, first_row, image = np.unique(image, return_index=True, return_inverse=True)
    order = np.argsort(classes[first_row], kind="stable")
    index = np.empty_like(order)
    index[order] = np.arange(len(order))
    ids = index[image].astype(np.int32)
    query_images, item_images = (ids, ids) if one_set else (ids[: len(queries)], ids[len(queries) :])
    on_both_sides = not one_set and len(np.unique(query_images)) == len(np.unique(item_images)) == len(order)
    image_classes = classes[first_row][order].astype(np.int32)
    start = np.searchsorted(image_classes, np.arange(len(sets.class_labels) + 1))
    return Images(image_classes, query_images, item_images, start, 2 if on_both_sides else 1)


def images_by_class(sets: LabelledSets, images: Images) -> Integers:
    """Number of images of each class, (C,); one with several labels is one of each."""
    if isinstance(sets, MultiLabelSets):
        return np.asarray(sets.group_labels.cpu().numpy()[images.classes].sum(axis=0))
    return np.diff(images.start)


def pairs_by_image(sets: LabelledSets, images: Images) -> PairCounts:
    """All positive and negative pairs with each image at one end, (I,)."""
    queries, items = (classes.cpu().numpy() for classes in (sets.query_classes, sets.gallery_classes))
    one_set = sets.gallery is None
    excluded = np.empty((0, 2), np.int64) if sets.excluded is None else sets.excluded.cpu().numpy()
    if one_set:
        excluded = np.concatenate([np.arange(len(queries))[:, None].repeat(2, axis=1), excluded])
    same_class = queries[excluded[:, 0]] == items[excluded[:, 1]]
    positive, negative = np.zeros(len(images)), np.zeros(len(images))
    sides = [(0, queries, items, images.query_images), (1, items, queries, images.item_images)]
    for side, side_classes, opposite_classes, image in sides[:1] if one_set else sides:
        relevant = np.bincount(opposite_classes, minlength=len(sets.class_labels))[side_classes]
        num_compared = np.full(len(side_classes), len(opposite_classes))
        if sets.parents is not None:
            parents, others = sets.parents[side].cpu().numpy(), sets.parents[1 - side].cpu().numpy()
            num_compared = np.bincount(others, minlength=int(parents.max()) + 1)[parents]
        excluded_positive = np.bincount(excluded[same_class, side], minlength=len(side_classes))
        excluded_negative = np.bincount(excluded[~same_class, side], minlength=len(side_classes))
        np.add.at(positive, image, relevant - excluded_positive)
        np.add.at(negative, image, num_compared - relevant - excluded_negative)
    return PairCounts(positive, negative)


def draw_images(sets: LabelledSets, images: Images) -> NDArray[np.int32]:
    """Query images of whole classes of at least two, drawn at random: all of them where there are few, ascending."""
    min_images, max_images = DRAWN_IMAGES
    limit = max(min_images, min(max_images, DRAWN_PAIRS // len(sets.gallery_classes)))
    queries = np.unique(images.query_images)
    classes, sizes = np.unique(images.classes[queries], return_counts=True)
    classes, sizes = classes[sizes > 1], sizes[sizes > 1]
    order = np.random.default_rng(derive_seed(0, "images of the noise")).permutation(len(classes))
    # At least two classes, so that there is another one.
    drawn = order[: max(2, int(np.searchsorted(np.cumsum(sizes[order]), limit, "right")))]
    return queries[np.isin(images.classes[queries], classes[drawn])]
