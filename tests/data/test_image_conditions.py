"""Conditions of images: every one at every level, on colour and grey, large and small."""

import numpy as np
import pytest
import torch
from PIL import Image

from equimetric.data import (
    IMAGE_CONDITIONS,
    CenterCrop,
    ImageCondition,
    Resize,
    View,
    list_conditions,
    load_dataset,
    load_folder,
    parse_condition,
)
from equimetric.errors import EquimetricError

ALL = [str(condition) for condition in list_conditions()]


def photograph(side=48, channels=3, seed=0):
    """Smooth colours, with a sharp square in the middle."""
    coarse = np.random.default_rng(seed).integers(40, 216, (4, 4, channels), dtype=np.uint8)
    picture = Image.fromarray(coarse[:, :, 0] if channels == 1 else coarse).resize(
        (side, side), Image.Resampling.BICUBIC
    )
    pixels = np.array(picture).reshape(side, side, channels)
    third = side // 3
    pixels[third : 2 * third, third : 2 * third] = [250, 10, 120][:channels]
    return pixels


def difference(condition, pixels):
    return float(np.abs(parse_condition(condition)(pixels).astype(float) - pixels).mean())


def test_five_corruptions_and_three_viewpoints_at_three_levels():
    assert len(list_conditions("corruption")) == 15
    assert len(list_conditions("viewpoint")) == 9
    assert len(ALL) == len(set(ALL)) == 24
    for record in IMAGE_CONDITIONS.values():
        assert record.description


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("side", "channels"), [(48, 3), (28, 1), (32, 1), (5, 3)])
def test_size_and_type_stay_and_the_image_given_is_not_changed(name, side, channels):
    pixels = photograph(side, channels)
    before = pixels.copy()
    pixels.flags.writeable = False
    changed = parse_condition(name)(pixels)
    assert changed.shape == pixels.shape
    assert changed.dtype == np.uint8
    assert np.array_equal(pixels, before)
    assert np.array_equal(parse_condition(name)(pixels), changed), "the same again"


@pytest.mark.parametrize("name", sorted(IMAGE_CONDITIONS))
@pytest.mark.parametrize(("side", "channels"), [(96, 3), (28, 1)])
def test_levels_grow(name, side, channels):
    changes = [
        np.mean([difference(f"{name}:{level}", photograph(side, channels, seed)) for seed in range(6)])
        for level in (1, 2, 3)
    ]
    assert 0.5 < changes[0] < changes[1] < changes[2]


@pytest.mark.parametrize("name", ALL)
def test_rectangles_are_taken_too(name):
    pixels = photograph(48)[:30]
    assert parse_condition(name)(pixels).shape == (30, 48, 3)


@pytest.mark.parametrize("name", ["noise:2", "occlusion:2", "crop:2", "rotation:2", "tilt:2"])
def test_what_is_random_follows_from_the_image(name):
    """A place in the data set does not count: equal images stay equal, others differ in what is drawn."""
    condition = parse_condition(name)
    flat = [np.full((32, 32, 1), value, dtype=np.uint8) for value in range(100, 140)]
    flat = [image + np.eye(32, dtype=np.uint8)[:, :, None] for image in flat]
    changes = {(condition(image).astype(int) - image).tobytes() for image in flat}
    assert len(changes) == 2 if name == "rotation:2" else len(changes) > 5


def test_levels_share_their_draws():
    for seed in range(5):
        pixels = photograph(60, seed=seed)
        small, large = (parse_condition(f"occlusion:{level}")(pixels) != pixels for level in (1, 3))
        overlap = (small & large).any(axis=2).sum() / max(1, small.any(axis=2).sum())
        assert overlap > 0.2
        noise = [parse_condition(f"noise:{level}")(pixels).astype(float) - pixels for level in (1, 2)]
        assert np.corrcoef(noise[0].ravel(), noise[1].ravel())[0, 1] > 0.8


def test_a_plain_background_stays_plain():
    glyph = np.zeros((32, 32, 1), dtype=np.uint8)
    glyph[12:20, 14:18] = 255
    for name in ("rotation:3", "tilt:3"):
        changed = parse_condition(name)(glyph)
        assert not changed[[0, 1, -1, -2]].any()
        assert changed[16, 16] > 128


def test_geometry_is_what_it_says():
    """A rotation by 60 degrees moves a dot on the right to 60 degrees above or below; a crop enlarges."""
    dot = np.zeros((101, 101, 1), dtype=np.uint8)
    dot[48:53, 83:88] = 255
    turned = parse_condition("rotation:3")(dot)[:, :, 0]
    row, column = np.argwhere(turned > 100).mean(0) - 50
    assert np.degrees(np.arctan2(abs(row), column)) == pytest.approx(60, abs=1.5)
    assert np.hypot(row, column) == pytest.approx(35, abs=0.7)
    square = np.zeros((100, 100, 1), dtype=np.uint8)
    square[45:55, 45:55] = 255
    assert (parse_condition("crop:2")(square) > 127).sum() == pytest.approx(100 / 0.7**2, rel=0.1)
    # From 50 degrees beside, along one direction only cos 50° of the length is left.
    disc = np.hypot(*np.mgrid[-50:51, -50:51]) < 15
    seen = parse_condition("tilt:3")((255 * disc[:, :, None]).astype(np.uint8)) > 127
    assert seen.sum() / disc.sum() == pytest.approx(np.cos(np.radians(50)), abs=0.06)


def test_images_in_memory_and_in_files_are_changed_alike(tmp_path):
    for label in range(2):
        (tmp_path / "images" / str(label)).mkdir(parents=True)
        for number in range(2):
            Image.fromarray(photograph(40, seed=2 * label + number)).save(
                tmp_path / "images" / str(label) / f"{number}.png"
            )
    view = View(Resize(36, "square"), CenterCrop(32))
    condition = ImageCondition("noise", 2)
    in_memory = load_folder(root=tmp_path / "images", size=40).with_view(view)
    in_files = load_folder(root=tmp_path / "images", size=40, in_memory=False).with_view(view)
    expected = in_memory.with_condition(condition)
    changed = in_files.with_condition(condition)
    assert torch.equal(changed.images[torch.arange(4)], expected.images)
    assert torch.equal(changed.subset(torch.tensor([2, 0])).images[0], expected.images[2])
    prints = {data.fingerprint for data in (in_files, changed, in_files.with_condition(ImageCondition("noise", 1)))}
    assert len(prints) == 3
    assert expected.fingerprint != in_memory.fingerprint


def test_digits_and_features():
    digits = load_dataset("digits").subset(torch.arange(5))
    assert digits.with_condition(parse_condition("jpeg:3")).images.shape == digits.images.shape
    vectors = digits.replace(images=torch.zeros(5, 7))
    with pytest.raises(EquimetricError, match="blur:1 changes images, and these data are feature vectors"):
        vectors.with_condition(parse_condition("blur:1"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("blurr:2", "unknown image condition 'blurr'; did you mean 'blur'"),
        ("blur:4", "blur has the levels 1, 2 and 3, not 4"),
        ("blur:two", "a name and a level from 1 to 3, such as 'blur:2', not 'blur:two'"),
        ("blur", "give the condition 'blur' a level from 1 to 3, such as 'blur:2'"),
        ("blurr", "unknown image condition 'blurr'"),
    ],
)
def test_wrong_names(text, message):
    with pytest.raises(EquimetricError, match=message):
        parse_condition(text)
