import numpy as np
import pytest

from equimetric.data.lookalikes import MIN_SIMILARITY, character_similarity, find_unambiguous, merge_lookalikes
from equimetric.data.rendering import FACES, Pictures, draw, face_files, open_face

ALL_FACES = range(len(FACES))


def drawn(characters, faces=ALL_FACES):
    """Pictures of these characters in these faces."""
    files = face_files()
    opened = {face: open_face(files[face]) for face in faces}
    rows = [(draw(opened[face], character), ord(character), face) for character in sorted(characters) for face in faces]
    images, codes, positions = zip(*rows, strict=True)
    return Pictures(np.stack(images), np.array(codes), np.array(positions))


def groups(pictures):
    characters, classes = merge_lookalikes(pictures)
    return {"".join(chr(code) for code in characters[classes == number]) for number in np.unique(classes)}


def test_capitals_of_three_alphabets_merge():
    assert groups(drawn("AΑАBΒВOΟОo")) == {"AΑА", "BΒВ", "OΟО", "o"}


def test_what_a_reader_tells_apart_stays_apart():
    characters = "oO0cCsSxXIl1|.,:;-–—_'\"éèêëeEFPRQuvnmħ"
    assert groups(drawn(characters)) == set(characters)


def test_one_family_does_not_decide():
    # STIX draws Greek Υ its own way; in all other faces it is a Latin Y
    assert groups(drawn("YΥ")) == {"YΥ"}
    assert groups(drawn("YΥ", faces=range(12, 16))) == {"Y", "Υ"}


def test_the_hexagrams_stay_apart():
    hexagrams = [chr(code) for code in range(0x4DC0, 0x4E00)]
    pictures = drawn(hexagrams, faces=(0, 1))
    assert groups(pictures) == set(hexagrams)


def ink(angle):
    """A picture of unit-like ink whose cosine to `ink(other)` is cos(angle − other), up to rounding to bytes."""
    image = np.zeros((32, 32), dtype=np.uint8)
    image[0, :8] = round(255 * np.cos(angle))
    image[1, :8] = round(255 * np.sin(angle))
    return image


STEP = np.arccos(0.994)  # one step is alike, two (cosine 0.976) are not


def test_complete_linkage_does_not_chain():
    angles = 0.3 + STEP * np.arange(4)
    angles[1] -= 0.01  # a and b are the closest pair
    pictures = Pictures(np.stack([ink(angle) for angle in angles]), np.array([97, 98, 99, 100]), np.zeros(4, dtype=int))
    assert groups(pictures) == {"ab", "cd"}


def test_likeness_is_the_median_over_shared_faces():
    # alike in three of four shared faces, and in a fifth only one of the two is drawn
    angles = {"a": [0.3, 0.3, 0.3, 0.3, 0.3], "b": [0.3, 0.35, 1.2, 0.4]}
    rows = [(ink(angle), ord(name), face) for name in "ab" for face, angle in enumerate(angles[name])]
    images, codes, faces = zip(*rows, strict=True)
    characters, pairs, similarity = character_similarity(Pictures(np.stack(images), np.array(codes), np.array(faces)))
    assert characters.tolist() == [97, 98]
    assert pairs.tolist() == [[0, 1]]
    assert similarity[0] == pytest.approx((np.cos(0.05) + np.cos(0.1)) / 2, abs=2e-3)
    assert similarity[0] > MIN_SIMILARITY


def test_characters_without_a_common_face_stay_apart():
    pictures = Pictures(np.stack([ink(0.3), ink(0.3)]), np.array([97, 98]), np.array([0, 1]))
    assert groups(pictures) == {"a", "b"}


def test_equal_pictures_are_kept_once_in_a_class_and_never_in_two():
    one, two, three, four = (ink(angle) for angle in (0.1, 0.4, 0.7, 1.0))
    images = np.stack([one, one, two, three, two, four, four, four])
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    assert find_unambiguous(images, labels).tolist() == [0, 3, 5]
