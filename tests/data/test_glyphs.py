import os

import numpy as np
import pytest
import torch

from equimetric.data import class_disjoint_split, content_fingerprint, load_dataset, require_pairs
from equimetric.data import glyphs as module
from equimetric.data.rendering import FACES, MARGIN, covered_characters, draw, face_files, open_face
from equimetric.errors import EquimetricError

MISSING = "\U0010ffff"  # not a character, in no typeface


@pytest.fixture(scope="session")
def class_of(glyphs):
    return {character: label for label, group in enumerate(glyphs.class_attributes["members"]) for character in group}


def test_counts(glyphs):
    assert glyphs.images.shape[1:] == (1, 32, 32)
    assert 600 <= glyphs.classes <= 1000
    assert 9_000 <= len(glyphs) <= 14_000
    require_pairs(glyphs)
    assert set(glyphs.sample_attributes["face"]) == set(FACES)


def test_lookalikes_are_one_class(class_of):
    assert class_of["A"] == class_of["Α"] == class_of["А"]
    assert class_of["Å"] == class_of["\u212b"]
    assert class_of["µ"] == class_of["μ"]


def test_different_characters_are_different_classes(class_of):
    apart = "oO0Il1aàáâãäåeéèbdpqЖШЩ"
    assert len({class_of[character] for character in apart}) == len(apart)


def test_names_and_order(glyphs, class_of):
    assert glyphs.class_names[class_of["А"]] == "U+0041 A LATIN CAPITAL LETTER A"
    assert glyphs.class_names[class_of["ж"]] == "U+0436 ж CYRILLIC SMALL LETTER ZHE"
    first_members = [ord(group[0]) for group in glyphs.class_attributes["members"]]
    assert first_members == sorted(first_members)
    assert bool((glyphs.labels.diff() >= 0).all())


def test_attributes(glyphs, class_of):
    label = class_of["А"]
    assert glyphs.class_attributes["members"][label] == "AΑА"
    assert glyphs.class_attributes["script"][label] == "Latin"
    assert glyphs.class_attributes["block"][label] == "Basic Latin"
    assert glyphs.class_attributes["script"][class_of["ж"]] == "Cyrillic"
    members = glyphs.class_attributes["members"]
    for label, character in zip(glyphs.labels.tolist(), glyphs.sample_attributes["character"], strict=True):
        assert character in members[label]


def test_every_picture_is_its_character_in_its_face(glyphs):
    faces = {face: open_face(file) for face, file in zip(FACES, face_files(), strict=True)}
    for index in range(0, len(glyphs), 97):
        again = draw(faces[glyphs.sample_attributes["face"][index]], glyphs.sample_attributes["character"][index])
        assert np.array_equal(again, glyphs.images[index, 0].numpy())


def test_no_picture_twice(glyphs):
    """Neither within a class nor in two: equal pictures with different labels would be errors in the labels."""
    assert len(torch.unique(glyphs.images.flatten(1), dim=0)) == len(glyphs)


def test_ink_everywhere_and_an_empty_margin(glyphs):
    assert bool((glyphs.images.flatten(1).amax(dim=1) > 0).all())
    inside = glyphs.images[:, :, MARGIN:-MARGIN, MARGIN:-MARGIN]
    assert int(glyphs.images.sum()) == int(inside.sum())


@pytest.mark.parametrize("position", range(len(FACES)))
def test_no_missing_glyph_box(glyphs, position):
    file = face_files()[position]
    covered = covered_characters(file)
    box = draw(open_face(file), MISSING)
    of_face = [index for index, face in enumerate(glyphs.sample_attributes["face"]) if face == FACES[position]]
    assert of_face
    assert all(ord(glyphs.sample_attributes["character"][index]) in covered for index in of_face)
    if box is not None:  # STIX leaves a missing character blank, and nothing blank is in the data
        images = glyphs.images[of_face, 0]
        assert not bool((images == torch.tensor(box)).flatten(1).all(dim=1).any())


def test_same_size_and_base_line():
    face = open_face(face_files()[0])
    rows = {character: np.flatnonzero(draw(face, character).any(axis=1)) for character in "oOxgÅ"}
    assert len(rows["o"]) < len(rows["O"])
    assert abs(int(rows["o"].max()) - int(rows["x"].max())) <= 1
    assert rows["g"].max() > rows["x"].max() + 3
    assert rows["Å"].min() < rows["O"].min()


def test_wide_and_tall_ink_is_shrunk_whole():
    face = open_face(face_files()[1])
    for character in "Ǆ⟷‱":
        image = draw(face, character)
        columns = np.flatnonzero(image.any(axis=0))
        assert len(columns) >= 28
        assert not image[:, 0].any()
        assert not image[:, -1].any()


def test_controls_spaces_and_marks_are_left_out(class_of):
    assert not {" ", "\u00a0", "\u00ad", "\u200b", "\u0301"} & set(class_of)
    assert draw(open_face(face_files()[0]), " ") is None


def test_cache_hit_equals_a_fresh_build(glyphs, tmp_path, monkeypatch):
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path))
    fresh = load_dataset("glyphs")
    monkeypatch.setattr(module, "_build", lambda _: pytest.fail("the cache was not used"))
    cached = load_dataset("glyphs")
    for other in (fresh, cached):
        assert torch.equal(other.images, glyphs.images)
        assert torch.equal(other.labels, glyphs.labels)
        assert other.class_names == glyphs.class_names
        assert other.class_attributes == glyphs.class_attributes
        assert other.sample_attributes == glyphs.sample_attributes
        assert other.fingerprint == glyphs.fingerprint == content_fingerprint(other)
    assert [file.suffix for file in (tmp_path / "glyphs").iterdir()] == [".npz"]


@pytest.fixture
def counted_builds(glyphs, tmp_path, monkeypatch):
    """A cache folder of its own, in which building is replaced by what was built already, and counted."""
    built = module._read(module._cache_file(14))
    assert built is not None
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path))
    builds = []
    monkeypatch.setattr(module, "_build", lambda minimum_faces: builds.append(minimum_faces) or built)
    return builds


def cut(content):
    return content[: len(content) // 2]


def flip(content):
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


@pytest.mark.parametrize("damage", [cut, flip, lambda _: b"", lambda _: b"not an archive" * 9])
def test_a_damaged_cache_is_rebuilt(glyphs, counted_builds, damage):
    load_dataset("glyphs")
    file = module._cache_file(14)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.warns(UserWarning, match=r"\.npz is damaged; the glyphs are drawn again"):
        assert load_dataset("glyphs").fingerprint == glyphs.fingerprint
    assert counted_builds == [14, 14]
    load_dataset("glyphs")
    assert counted_builds == [14, 14]


def test_an_interrupted_write_leaves_nothing_behind(glyphs, counted_builds, monkeypatch, tmp_path):
    def full_disk(*args, **arrays):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    assert load_dataset("glyphs").fingerprint == glyphs.fingerprint
    assert list((tmp_path / "glyphs").iterdir()) == []


def test_cache_file_name_follows_what_determines_the_content(monkeypatch):
    names = {module._cache_file(14).name, module._cache_file(12).name}
    monkeypatch.setattr(module, "VERSION", 0)
    names.add(module._cache_file(14).name)
    monkeypatch.setattr(module, "face_files", lambda: face_files()[:3])
    names.add(module._cache_file(14).name)
    assert len(names) == 4
    assert all(os.sep not in name for name in names)


@pytest.mark.parametrize("minimum_faces", [1, 17, "14", 2.5])
def test_wrong_minimum_faces(minimum_faces):
    with pytest.raises(EquimetricError, match="minimum_faces must be a whole number from 2 to 16"):
        load_dataset("glyphs", minimum_faces=minimum_faces)


def test_nothing_is_printed(capsys, glyphs):
    load_dataset("glyphs")
    assert capsys.readouterr() == ("", "")


def test_split_of_the_glyphs(glyphs):
    split = class_disjoint_split(glyphs.labels)
    train, test = glyphs.subset(split.train), glyphs.subset(split.test)
    assert test.classes == glyphs.classes // 2
    assert not set(train.class_names) & set(test.class_names)


@pytest.mark.slow
def test_fewer_faces_give_more_characters(glyphs):
    more = load_dataset("glyphs", minimum_faces=12)
    assert 1_400 <= more.classes <= 1_700
    before, after = ("".join(data.class_attributes["members"]) for data in (glyphs, more))
    # All but the few whose pictures a new character shares.
    assert len(set(before) - set(after)) <= 5
    require_pairs(more)
