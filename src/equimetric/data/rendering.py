"""Draw characters: which typeface covers which characters, and the picture of each.

Every picture is 32×32 grey, light ink (255) on black (0), all at the same type size and on the same base line, so that
'o' and 'O' differ as they do on paper. Pictures are drawn at four times the size and averaged down, which keeps the
true outlines.
"""

import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from equimetric.errors import EquimetricError

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

__all__ = ["FACES", "SIZE", "Pictures", "covered_characters", "draw", "face_files", "open_face", "render"]

FACES = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
)
SIZE = 32  # pixels of a picture's side
TYPE_SIZE = 24  # pixels per em
BASE_LINE = 24  # pixels from the top
MARGIN = 1  # pixels that stay empty all around
OVERSAMPLING = 4

NON_PICTURE_CATEGORIES = "CZM"  # Unicode's general categories of controls, separators and combining marks


@dataclass(frozen=True, eq=False)
class Pictures:
    """Renderings in the order of their characters, then faces.

    Shapes: images (N, 32, 32) uint8; characters (N,) code points; faces (N,) positions in `FACES`.
    """

    images: NDArray[np.uint8]
    characters: NDArray[np.int64]
    faces: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.images)

    def take(self, indices: NDArray[np.int64]) -> "Pictures":
        """The pictures at those positions."""
        return Pictures(self.images[indices], self.characters[indices], self.faces[indices])


def face_files() -> tuple[Path, ...]:
    """The font files of `FACES`, part of matplotlib."""
    import matplotlib

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    files = tuple(folder / f"{face}.ttf" for face in FACES)
    for file in files:
        if not file.is_file():
            raise EquimetricError(f"the typeface {file.name!r} is missing from matplotlib; install matplotlib afresh")
    return files


def open_face(file: Path) -> "FreeTypeFont":
    """A typeface at the drawing size.

    The basic layout engine draws a character's own glyph; the other engine shapes it and may not be installed.
    """
    from PIL import ImageFont

    return ImageFont.truetype(str(file), TYPE_SIZE * OVERSAMPLING, layout_engine=ImageFont.Layout.BASIC)


def covered_characters(file: Path) -> frozenset[int]:
    """Code points with a glyph in the typeface, without controls, spaces and combining marks."""
    from fontTools.ttLib import TTFont

    with TTFont(file, lazy=True) as font:
        glyph_names = font.getBestCmap()
    return frozenset(
        character
        for character, glyph_name in glyph_names.items()
        if glyph_name != ".notdef" and unicodedata.category(chr(character))[0] not in NON_PICTURE_CATEGORIES
    )


def draw(face: "FreeTypeFont", character: str) -> NDArray[np.uint8] | None:
    """A character's picture (32, 32), or None where the face leaves it blank.

    The ink is centred horizontally and keeps its height over the base line; ink too large for the frame is shrunk to
    fit, and ink that still crosses the upper or lower edge is moved just inside.
    """
    from PIL import Image, ImageDraw

    left, top, right, bottom = (round(edge) for edge in face.getbbox(character, anchor="ls"))
    # One extra pixel on each side: the box is measured before anti-aliasing.
    glyph = Image.new("L", (right - left + 2, bottom - top + 2))
    ImageDraw.Draw(glyph).text((1 - left, 1 - top), character, fill=255, font=face, anchor="ls")
    ink = glyph.getbbox()
    if ink is None:
        return None
    glyph = glyph.crop(ink)
    above_base_line = 1 - top - ink[1]
    side, margin = SIZE * OVERSAMPLING, MARGIN * OVERSAMPLING
    shrink = min(1.0, (side - 2 * margin) / max(glyph.size))
    if shrink < 1:
        width, height = (max(1, round(length * shrink)) for length in glyph.size)
        glyph = glyph.resize((width, height), Image.Resampling.BOX)
    upper = BASE_LINE * OVERSAMPLING - round(above_base_line * shrink)
    upper = min(max(upper, margin), side - margin - glyph.height)
    frame = Image.new("L", (side, side))
    frame.paste(glyph, ((side - glyph.width) // 2, upper))
    return np.asarray(frame.reduce(OVERSAMPLING), dtype=np.uint8)


def render(minimum_faces: int) -> Pictures:
    """Every character that at least `minimum_faces` of the faces cover, once in each face that covers it."""
    from equimetric.progress import track

    files = face_files()
    coverage = [covered_characters(file) for file in files]
    candidates = sorted(frozenset().union(*coverage))
    faces_of = {
        character: [face for face, covered in enumerate(coverage) if character in covered] for character in candidates
    }
    chosen = {character: faces for character, faces in faces_of.items() if len(faces) >= minimum_faces}
    fonts = [open_face(file) for file in files]
    pictures: list[tuple[NDArray[np.uint8], int, int]] = []
    for character, faces in track(chosen.items(), "Drawing characters", total=len(chosen)):
        for face in faces:
            image = draw(fonts[face], chr(character))
            if image is not None and image.any():
                pictures.append((image, character, face))
    images, characters, faces_drawn = zip(*pictures, strict=True)
    return Pictures(np.stack(images), np.array(characters, dtype=np.int64), np.array(faces_drawn, dtype=np.int64))
