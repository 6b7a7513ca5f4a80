import math

import pytest
import torch

from equimetric.data import RandomAffine, prepare, transform
from equimetric.errors import EquimetricError


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_prepare_maps_bytes_to_the_unit_range():
    prepared = prepare(torch.tensor([0, 51, 255], dtype=torch.uint8))
    assert prepared.dtype == torch.float32
    torch.testing.assert_close(prepared, torch.tensor([-1.0, -0.6, 1.0]))


def test_prepare_refuses_what_is_prepared_already():
    with pytest.raises(EquimetricError, match=r"uint8 .* not torch.float32"):
        prepare(torch.zeros(2))


def test_affine_is_deterministic_given_the_generator():
    images = torch.rand(4, 1, 16, 16, generator=seeded())
    affine = transform("affine").augment
    assert torch.equal(affine(images, seeded(5)), affine(images, seeded(5)))
    assert not torch.equal(affine(images, seeded(5)), affine(images, seeded(6)))


def test_every_image_gets_its_own_distortion():
    images = torch.rand(1, 1, 16, 16, generator=seeded()).expand(3, -1, -1, -1)
    first, second, third = RandomAffine()(images, seeded())
    assert not torch.equal(first, second)
    assert not torch.equal(second, third)


@pytest.mark.parametrize("shape", [(8, 3, 16, 16), (8, 1, 12, 20), (1, 1, 8, 8)])
def test_values_stay_in_range_and_shape_is_kept(shape):
    images = torch.rand(shape, generator=seeded()) * 2 - 1
    distorted = RandomAffine(degrees=180, scale=(0.2, 3), translate=1, shear=60)(images, seeded())
    assert distorted.shape == images.shape
    assert distorted.dtype == images.dtype
    assert distorted.min() >= images.min() - 1e-6
    assert distorted.max() <= images.max() + 1e-6


def test_a_plain_background_stays_plain():
    plain = torch.full((4, 1, 8, 8), -1.0)
    torch.testing.assert_close(RandomAffine()(plain, seeded()), plain)


def test_nothing_to_do_changes_nothing():
    images = torch.rand(2, 1, 9, 13, generator=seeded())
    still = RandomAffine(degrees=0, scale=(1, 1), translate=0, shear=0)
    torch.testing.assert_close(still(images, seeded()), images)
    assert transform("none").augment(images, seeded()) is images


@pytest.fixture
def draw_ones(monkeypatch):
    """Every random amount is the largest of its range."""
    monkeypatch.setattr(torch, "rand", lambda *shape, **_: torch.ones(*shape))


def dot(height, width, row, column):
    image = torch.zeros(1, 1, height, width)
    image[0, 0, row, column] = 1
    return image


def where_is_the_ink(image):
    rows, columns = torch.meshgrid(torch.arange(image.shape[2]), torch.arange(image.shape[3]), indexing="ij")
    return float((rows * image[0, 0]).sum() / image.sum()), float((columns * image[0, 0]).sum() / image.sum())


def test_translation_moves_by_that_part_of_the_side(draw_ones):
    shift = RandomAffine(degrees=0, scale=(1, 1), translate=0.25, shear=0)
    assert where_is_the_ink(shift(dot(8, 16, 2, 3), seeded())) == pytest.approx((4, 7), abs=1e-4)


def test_rotation_keeps_distances_in_an_oblong_image(draw_ones):
    turn = RandomAffine(degrees=90, scale=(1, 1), translate=0, shear=0)
    # 3 right of the centre (4, 8) becomes 3 below it: no stretching although width and height differ
    moved = turn(dot(9, 17, 4, 11), seeded())
    assert where_is_the_ink(moved) == pytest.approx((7, 8), abs=1e-4)


def test_scale_and_shear_follow_the_formula(draw_ones):
    grow = RandomAffine(degrees=0, scale=(1, 2), translate=0, shear=0)
    assert where_is_the_ink(grow(dot(33, 33, 16, 20), seeded())) == pytest.approx((16, 24), abs=1e-4)
    slant = RandomAffine(degrees=0, scale=(1, 1), translate=0, shear=math.degrees(math.atan(0.5)))
    # x' = x + y/2: 4 below the centre moves 2 to the right
    assert where_is_the_ink(slant(dot(33, 33, 20, 16), seeded())) == pytest.approx((20, 18), abs=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"degrees": -1}, "degrees must be from 0 to 180"),
        ({"scale": (1.1, 0.9)}, "scale must be"),
        ({"scale": (0, 1)}, "scale must be"),
        ({"translate": 2}, "translate must be from 0 to 1"),
        ({"shear": 90}, "shear must be from 0 to below 90"),
    ],
)
def test_impossible_ranges(options, message):
    with pytest.raises(EquimetricError, match=message):
        RandomAffine(**options)


def test_affine_explains_unprepared_images():
    with pytest.raises(EquimetricError, match="as `prepare` makes them"):
        RandomAffine()(torch.zeros(2, 1, 4, 4, dtype=torch.uint8), seeded())


def test_unknown_transform():
    with pytest.raises(EquimetricError, match="unknown transform 'afine'; did you mean 'affine'"):
        transform("afine")
