"""Image formats that are read, their suffixes, and the image files of a folder."""

from io import BytesIO
from pathlib import Path

from equimetric.files import NOT_THERE, unreadable_reason

__all__ = ["FORMATS", "SUFFIXES", "detect_unsupported_format", "list_folder"]

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
"""Pillow's names of the formats that are read, whatever a file's suffix says; others may start other programs."""

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm"}
)

OTHER_FORMATS = {
    (4, b"ftyphei"): "HEIC",
    (4, b"ftyphev"): "HEIC",
    (4, b"ftypmif1"): "HEIC",
    (4, b"ftypavi"): "AVIF",
    (0, b"\0\0\0\x0cjP  "): "JPEG 2000",
    (0, b"\xff\x0a"): "JPEG XL",
    (0, b"%!PS"): "PostScript",
    (0, b"\xc5\xd0\xd3\xc6"): "PostScript",
    (0, b"%PDF"): "PDF",
    (0, b"8BPS"): "Photoshop",
    (0, b"<svg"): "SVG",
}
"""Offset and bytes by which the beginning of a file shows a format that is not read."""
MAX_MARK_BYTES = 16

NOTES = frozenset({".txt", ".md", ".json", ".csv", ".tsv", ".xml", ".yaml", ".yml", ".html", ".log", ".db", ".ini"})
"""Suffixes of other files that often lie next to images: notes, annotations, the files of file managers."""


def detect_unsupported_format(file: Path | BytesIO) -> str:
    """The format of a file or stream that is not read, by its first bytes; '' where it is not known."""
    if isinstance(file, BytesIO):
        head = file.getvalue()[:MAX_MARK_BYTES]
    else:
        try:
            with file.open("rb") as stream:
                head = stream.read(MAX_MARK_BYTES)
        except OSError:
            return ""
    return next((name for (offset, mark), name in OTHER_FORMATS.items() if head.startswith(mark, offset)), "")


def list_folder(folder: Path) -> tuple[list[Path], list[str]]:
    """The visible image files of a folder, sorted, and its other entries but notes, as 'path (reason)'."""
    images, skipped = [], []
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(".") or entry.suffix.lower() in NOTES:
            continue
        if reason := non_image_reason(entry):
            skipped.append(f"{entry} ({reason})")
        else:
            images.append(entry)
    return images, skipped


def non_image_reason(entry: Path) -> str:
    """'' for a file whose suffix is that of an image, else why it is skipped."""
    reason = unreadable_reason(entry)
    if reason:
        return "is a broken link" if reason == NOT_THERE else reason
    if entry.suffix.lower() in SUFFIXES:
        return ""
    return f"{detect_unsupported_format(entry) or entry.suffix or 'no suffix'} is not read"
