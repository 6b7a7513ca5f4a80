import math

import numpy as np
import pytest
import torch
from PIL import Image

from equimetric.data import (
    TRANSFORMS,
    CenterCrop,
    Dataset,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    View,
    fit_view,
    transform,
)
from equimetric.data.views import batch_streams
from equimetric.errors import EquimetricError


def draws_of(seed, step, position):
    return batch_streams(seed, step, position + 1)[position]


def noise(width, height, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(256, size=(height, width, 3), dtype=np.uint8))


def pixels(image):
    return np.asarray(image).transpose(2, 0, 1)


@pytest.mark.parametrize(
    ("size", "resized"),
    [((500, 375), (341, 256)), ((375, 500), (256, 341)), ((100, 100), (256, 256)), ((1, 3), (256, 768))],
)
def test_the_shorter_side_is_resized_and_proportions_kept(size, resized):
    assert Resize(256, "shorter")(Image.new("RGB", size)).size == resized


def test_square_ignores_proportions():
    image = noise(40, 30)
    expected = image.resize((16, 16), Image.Resampling.BILINEAR)
    assert np.array_equal(Resize(16, "square")(image), expected)


def test_protocol_test_views_are_resize_and_centre_crop():
    image = noise(400, 300)
    shorter = image.resize((341, 256), Image.Resampling.BILINEAR)
    square = image.resize((256, 256), Image.Resampling.BILINEAR)

    def seen(name):
        view = transform(name).test
        return view.finish(view.resize(image), None).transpose(2, 0, 1)

    assert np.array_equal(seen("reality_check"), pixels(shorter)[:, 14:241, 57:284])  # (256−227)/2 = 14.5 → 14 (even)
    assert np.array_equal(seen("unbiased"), pixels(square)[:, 16:240, 16:240])
    assert np.array_equal(seen("unified_view"), pixels(square)[:, 14:241, 14:241])
    assert np.array_equal(seen("imagenet"), pixels(shorter)[:, 16:240, 58:282])


def test_training_views_of_the_protocols():
    kinds = {name: entry.train for name, entry in TRANSFORMS.items() if entry.train}
    assert {name: (view.crop.side, view.flip) for name, view in kinds.items()} == {
        "reality_check": (227, True),
        "reality_check_slides": (227, True),
        "unbiased": (224, True),
        "unified_view": (227, True),
        "imagenet": (224, True),
        "enlarge": (128, False),
    }
    assert kinds["reality_check"].crop.scale == (0.16, 1.0)
    assert math.sqrt(kinds["reality_check_slides"].crop.scale[0]) * 256 == pytest.approx(40)
    assert kinds["imagenet"].resize is None
    assert all(kinds[name].resize == Resize(256, "square") for name in ("unbiased", "unified_view"))


def test_every_place_of_a_random_crop_and_both_mirror_images_occur():
    numbered = Image.fromarray(np.arange(9, dtype=np.uint8).reshape(3, 3))
    view = View(None, RandomCrop(2), flip=True)
    seen = {view.finish(numbered, draws_of(0, 0, position))[0, 0, 0] for position in range(200)}
    assert seen == {0, 1, 2, 3, 4, 5}  # upper left corners, of the mirror images also those at the right
    crops = {view.finish(numbered, draws_of(0, 0, position)).tobytes() for position in range(200)}
    assert len(crops) == 8


def test_a_random_crop_is_a_function_of_seed_step_and_position():
    view, image = View(None, RandomResizedCrop(8, scale=(0.1, 0.5)), flip=True), noise(40, 30)
    first = view.finish(image, draws_of(1, 2, 3))
    assert np.array_equal(first, view.finish(image, draws_of(1, 2, 3)))
    for other in ((2, 2, 3), (1, 3, 3), (1, 2, 4)):
        assert not np.array_equal(first, view.finish(image, draws_of(*other)))


def test_random_resized_crops_have_the_area_and_proportions_asked_for():
    crop = RandomResizedCrop(227, scale=(0.16, 1.0))
    places = [crop.place(341, 256, draws_of(0, 0, position)) for position in range(2000)]
    share = np.array([width * height / (341 * 256) for _, _, width, height in places])
    proportion = np.array([width / height for _, _, width, height in places])
    assert share.min() == pytest.approx(0.16, abs=0.01)
    assert 0.9 < share.max() <= 1
    assert proportion.min() == pytest.approx(3 / 4, abs=0.02)
    assert proportion.max() == pytest.approx(4 / 3, abs=0.02)
    assert all(left >= 0 and top >= 0 and left + w <= 341 and top + h <= 256 for left, top, w, h in places)
    # small areas always fit, so they are uniform: as many below 0.28 as between 0.28 and 0.40
    assert (share < 0.28).sum() == pytest.approx(((share >= 0.28) & (share < 0.40)).sum(), rel=0.2)


@pytest.mark.parametrize(("size", "place"), [((90, 10), (38, 0, 13, 10)), ((10, 90), (0, 38, 10, 13))])
def test_a_crop_that_never_fits_falls_back_to_the_centre(size, place):
    assert RandomResizedCrop(8, scale=(1.0, 1.0)).place(*size, draws_of(0, 0, 0)) == place


def test_a_crop_is_cut_before_it_is_resized():
    crop = RandomResizedCrop(8, scale=(0.2, 0.4))
    image = noise(50, 40)
    left, top, width, height = crop.place(50, 40, draws_of(5, 0, 0))
    expected = image.crop((left, top, left + width, top + height)).resize((8, 8), Image.Resampling.BILINEAR)
    assert np.array_equal(crop(image, draws_of(5, 0, 0)), expected)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Resize(0, "fit"), "size must be a whole number of pixels"),
        (lambda: Resize(8, "wide"), "'shorter', 'square' or 'fit', not 'wide'"),
        (lambda: View(None), "must end in a square"),
        (lambda: View(Resize(8, "shorter")), "must end in a square"),
        (lambda: View(Resize(8, "square"), CenterCrop(9)), "crop of 9 pixels does not fit into images resized to 8"),
        (lambda: RandomResizedCrop(8, scale=(1, 0.5)), "scale must be"),
        (lambda: View(None, RandomCrop(4)).finish(Image.new("RGB", (3, 9)), draws_of(0, 0, 0)), "into an image of 3×9"),
        (lambda: View(None, RandomCrop(4)).finish(Image.new("RGB", (9, 9)), None), "use a Loader"),
        (lambda: transform("realty_check"), "unknown transform 'realty_check'; did you mean 'reality_check'"),
    ],
)
def test_impossible_views(build, message):
    with pytest.raises(EquimetricError) as caught:
        build()
    assert message in str(caught.value)


def in_memory(side=12):
    images = torch.from_numpy(np.stack([pixels(noise(side, side, seed)) for seed in range(4)]))
    return Dataset("noise", images, torch.tensor([0, 0, 1, 1]), ("a", "b"), {}, {}, "0")


def test_a_data_set_in_memory_through_a_view():
    dataset = in_memory()
    seen = dataset.with_view(View(None, CenterCrop(6)))
    assert torch.equal(seen.images, dataset.images[:, :, 3:9, 3:9])
    assert seen.fingerprint != dataset.fingerprint
    assert dataset.with_view(fit_view(5)).images.shape == (4, 3, 5, 5)
    with pytest.raises(EquimetricError, match="random views are for a Loader"):
        dataset.with_view(View(None, RandomCrop(6)))
