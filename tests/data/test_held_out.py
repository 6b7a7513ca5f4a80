"""Splits in which whole superclasses are for the test or for validation alone."""

import pytest
import torch

from equimetric.data import Dataset, load_manifest, split_held_out
from equimetric.errors import EquimetricError


def dataset(superclasses, images=2, **sample_attributes):
    """One class for every entry, of the superclass it names."""
    labels = torch.arange(len(superclasses)).repeat_interleave(images)
    names = tuple(f"{number:02d}" for number in range(len(superclasses)))
    pixels = torch.zeros(len(labels), 1, 2, 2, dtype=torch.uint8)
    return Dataset("kinds", pixels, labels, names, {"kind": tuple(superclasses)}, sample_attributes, "0")


def kinds(data, rows):
    return {data.class_attributes["kind"][label] for label in data.labels[rows].tolist()}


def classes(data, rows):
    return len(data.labels[rows].unique())


def test_the_last_superclasses_test_and_those_nearest_to_an_eighth_validate():
    data = dataset("aaabbbbbcdddeeeeee" + "ffgggg")  # 24 classes: a 3, b 5, c 1, d 3, e 6, f 2, g 4
    split = split_held_out(data, "kind")
    assert kinds(data, split.test) == set("efg")
    assert kinds(data, split.validation) == {"a"}  # 3 classes, the first run of exactly 24/8
    assert kinds(data, split.train) == set("bcd")
    validating = [kinds(data, split_held_out(data, "kind", fold=fold).validation) for fold in range(3)]
    assert validating == [{"a"}, {"d"}, {"b"}]  # no fold shares a superclass with another


def test_every_row_is_in_one_part_and_no_superclass_in_two():
    data = dataset("aaabbbbbcdddeeeeeeffgggg")
    for options in ({}, {"fold": 1}, {"seed": 3}, {"seed": 4, "fold": 1}):
        split = split_held_out(data, "kind", **options)
        assert torch.cat(list(split.parts().values())).sort().values.tolist() == list(range(len(data)))
        found = [kinds(data, rows) for rows in split.parts().values()]
        assert sum(map(len, found)) == len(set.union(*found)) == 7


def test_a_seed_changes_validation_but_not_the_test():
    data = dataset("aabbccddeeffgghhiijjkkll")
    plain = split_held_out(data, "kind")
    seeded = [split_held_out(data, "kind", seed=seed) for seed in range(8)]
    assert all(torch.equal(split.test, plain.test) for split in seeded)
    assert len({tuple(split.validation.tolist()) for split in seeded}) > 1


def test_superclasses_are_in_the_order_of_their_first_class():
    data = dataset(["z", "z", "m", "m", "a", "a", "z", "m"])
    split = split_held_out(data, "kind")
    assert kinds(data, split.test) == {"a"}
    assert kinds(data, split.validation) == {"z"}


def test_scripts_of_glyphs(glyphs):
    split = split_held_out(glyphs, "script")
    found = {
        part: {glyphs.class_attributes["script"][label] for label in glyphs.labels[rows].unique().tolist()}
        for part, rows in split.parts().items()
    }
    assert found == {"train": {"Latin"}, "validation": {"Common"}, "test": {"Greek", "Cyrillic"}}
    blocks = split_held_out(glyphs, "block")
    sizes = [classes(glyphs, rows) for rows in blocks.parts().values()]
    assert sizes[2] == pytest.approx(302, abs=30)
    assert sizes[1] == pytest.approx(75, abs=12)


def test_sample_attributes_serve_where_a_class_has_one_value():
    colour = tuple("rrrrggggbbbb")
    split = split_held_out(dataset("abcdef", colour=colour), "colour")
    assert [len(rows) for rows in split.parts().values()] == [4, 4, 4]
    with pytest.raises(EquimetricError, match=r"data.held_out = 'colour' has several values in class '00'"):
        split_held_out(dataset("abcdef", colour=tuple("rgrrggggbbbb")), "colour")


@pytest.mark.parametrize(
    ("superclasses", "options", "message"),
    [
        ("aaabbb", {}, "has 2 values for 6 classes; training, validation and test need a value of 2 classes"),
        ("aaaaaabc", {}, "has 3 values for 8 classes"),
        ("aabbccdd", {"attribute": "kin"}, "data.held_out = 'kin' names no attribute of the data; did you mean 'kind'"),
        ("aabbccdd", {"fold": 4}, "fold 4 does not exist; with folds=4 choose one of 0 to 3"),
        ("aabbccdd", {"fold": 2}, "leaves 2 values beside those of the test, enough for 2 folds; set folds to 2"),
    ],
)
def test_impossible_splits(superclasses, options, message):
    options = {"attribute": "kind", **options}
    with pytest.raises(EquimetricError, match=message):
        split_held_out(dataset(superclasses), options.pop("attribute"), **options)


def test_a_manifest_gives_several_columns_as_attributes(tmp_path, picture):
    picture(tmp_path / "a.png")
    rows = ["path,label,genus,habitat"]
    rows += [f"a.png,{label},{genus},{habitat}" for label, genus, habitat in (("x", "g", "sea"), ("y", "h", "land"))]
    (tmp_path / "list.csv").write_text("\n".join(rows))
    found = load_manifest(file=tmp_path / "list.csv", superclass=["genus", "habitat"], size=8)
    assert found.class_attributes == {"genus": ("g", "h"), "habitat": ("sea", "land")}
    with pytest.raises(EquimetricError, match="superclass names a column, or a list of columns, not 3"):
        load_manifest(file=tmp_path / "list.csv", superclass=[3])
