import pytest

from equimetric.errors import EquimetricError
from equimetric.fitting.class_split import choose_far, divide_classes, part_sizes


def alone(classes):
    return [[f"{number:03d}"] for number in range(classes)]


@pytest.mark.parametrize("classes", [10, 13, 19, 20, 29, 30, 39, 40, 81, 500])
def test_every_class_is_in_one_part(classes):
    parts = divide_classes(alone(classes))
    for fold in range(3):
        lists = parts.fold(fold, 3).lists()
        named = [name for names in lists.values() for name in names]
        assert sorted(named) == [f"{number:03d}" for number in range(classes)]
        assert min(map(len, lists.values())) >= 3


def test_twenty_classes_make_four_parts_and_fewer_are_merged_with_a_word():
    for classes in (20, 39, 40):
        assert set(divide_classes(alone(classes)).fold().lists()) == {"train", "validation", "calibration", "test"}
    assert divide_classes(alone(40)).merge_notes == divide_classes(alone(30)).merge_notes == ()
    three = divide_classes(alone(19))
    assert three.calibration == "validation"
    assert "validation and calibration classes are one part" in three.merge_notes[0]


def test_a_bound_for_new_classes_has_its_ten_classes_or_a_sentence():
    assert part_sizes(40)[0]["calibration"] == part_sizes(30)[0]["calibration"] == 10
    assert part_sizes(30)[1] == ()
    assert "promises none" in part_sizes(29)[1][0]


def test_of_all_parts_besides_training_calibration_is_the_largest():
    for classes in (40, 70, 81, 200):
        sizes = part_sizes(classes)[0]
        assert sizes["calibration"] >= max(10, classes // 4)
        assert max(sizes.values()) == sizes["calibration"]
        assert classes - sum(sizes.values()) >= classes // 3


def test_too_few_classes_are_one_sentence():
    with pytest.raises(EquimetricError, match="classes with two or more images: 9; fit needs at least 10"):
        divide_classes(alone(9))


def test_folds_validate_on_different_classes_and_leave_the_others_alone():
    parts = divide_classes(alone(81))
    folds = [parts.fold(number, 3) for number in range(3)]
    assert len({name for fold in folds for name in fold.validation}) == 3 * parts.num_validation_classes
    assert len({tuple(fold.test) for fold in folds}) == len({tuple(fold.calibration) for fold in folds}) == 1


def test_the_seed_decides():
    first, second = (divide_classes(alone(50), seed).fold().test for seed in (0, 1))
    assert first == divide_classes(alone(50)).fold().test
    assert first != second


def test_classes_that_share_images_stay_in_one_part():
    groups = [["a", "b"], ["c", "d", "e"], *alone(60)]
    for seed in range(20):
        part_of = {name: part for part, names in divide_classes(groups, seed).fold().lists().items() for name in names}
        assert part_of["a"] == part_of["b"]
        assert part_of["c"] == part_of["d"] == part_of["e"]


def test_a_large_group_trains_in_every_fold_and_one_of_all_classes_is_an_error():
    large = [f"x{number}" for number in range(22)]
    parts = divide_classes([large, *alone(78)])
    assert all(set(large) <= set(parts.fold(number, 3).train) for number in range(3))
    assert len(parts.fold().test) == 16
    with pytest.raises(EquimetricError, match="tie 40 of 40 classes together"):
        divide_classes([[f"{number}" for number in range(40)]])


def test_beside_a_group_of_half_the_classes_the_parts_are_smaller():
    large = [f"x{number}" for number in range(51)]
    parts = divide_classes([large, ["a", "b"], *alone(47)])
    sizes = {part: len(names) for part, names in parts.fold().lists().items()}
    assert set(sizes) == {"train", "validation", "calibration", "test"}
    assert sum(sizes.values()) == 100
    assert sizes["train"] >= 51
    assert (sizes["test"], sizes["calibration"]) == (8, 12)
    assert "tie 51 classes together: these train, and the other parts have the sizes that 49" in parts.merge_notes[-1]
    with pytest.raises(EquimetricError, match="tie 51 of 56 classes together"):
        divide_classes([large, *alone(5)])


@pytest.mark.parametrize(("images", "expected"), [(30, 0.01), (10, 0.01), (8, 0.02), (5, 0.05), (4, 0.1)])
def test_the_rate_is_one_that_the_images_are_enough_for(images, expected):
    classes = [str(number) for number in range(10)]
    rate, note = choose_far(dict.fromkeys(classes, images), classes, None)
    assert rate == expected
    assert bool(note) == (rate > 0.01)
    # Another one may be asked for, but not one that calibration would refuse after all the work.
    assert choose_far(dict.fromkeys(classes, images), classes, 2 * rate) == (2 * rate, "")
    with pytest.raises(EquimetricError, match="are too few to calibrate a threshold on for FAR 1e-05; give a larger"):
        choose_far(dict.fromkeys(classes, images), classes, 1e-5)
    with pytest.raises(EquimetricError, match="give a false accept rate between 0 and 1"):
        choose_far(dict.fromkeys(classes, images), classes, 2.0)


def test_too_few_images_are_one_sentence():
    classes = ["a", "b", "c", "d"]
    with pytest.raises(EquimetricError, match="8 images of 4 classes are too few to calibrate a threshold on"):
        choose_far(dict.fromkeys(classes, 2), classes, None)
