"""Files that claim to be images: other formats, pipes and devices, bombs, cut and odd ones."""

import os
import socket
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from equimetric.data import FileStore, damaged_files, load_dataset
from equimetric.data.decoding import decode
from equimetric.data.image_formats import FORMATS, SUFFIXES
from equimetric.errors import EquimetricError
from equimetric.file_hashes import hash_file, hash_files

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"


@pytest.fixture
def root(tmp_path, picture):
    for name in ("cat", "dog"):
        for number in range(3):
            picture(tmp_path / "pets" / name / f"{number}.png", seed=number)
    return tmp_path / "pets"


def load(root, **options):
    return load_dataset("folder", root=root, **({"size": 8} | options))


def reason(file, **options):
    outcome = FileStore([file], **options).attempt(0, None)
    assert isinstance(outcome, str), "the image was read"
    assert "\n" not in outcome
    return outcome


@pytest.mark.parametrize("suffix", ["png", "jpg", "tif"])
def test_postscript_in_disguise_starts_no_other_program(tmp_path, monkeypatch, suffix):
    started = []
    monkeypatch.setattr(subprocess, "Popen", lambda *arguments, **options: started.append(arguments))
    (tmp_path / f"a.{suffix}").write_bytes(EPS)
    assert reason(tmp_path / f"a.{suffix}") == "it is PostScript, which is not read; convert it to JPEG or PNG"
    assert started == []


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC"),
        (b"\0\0\0\x18ftypavif\0\0\0\0", "AVIF"),
        (b"%PDF-1.7\n", "PDF"),
        (b"8BPS\0\1", "Photoshop"),
    ],
)
def test_other_formats_under_a_wrong_name_are_recognised(tmp_path, content, name):
    (tmp_path / "a.jpg").write_bytes(content + b"\0" * 50)
    assert reason(tmp_path / "a.jpg") == f"it is {name}, which is not read; convert it to JPEG or PNG"


def test_formats_outside_of_the_list_are_not_read(tmp_path):
    assert "EPS" not in FORMATS
    for format_ in ("ICO", "SGI", "TGA", "PCX"):
        Image.new("RGB", (16, 16)).save(tmp_path / "a.png", format=format_)
        assert reason(tmp_path / "a.png").startswith("cannot identify image file")


@pytest.mark.parametrize("suffix", sorted(SUFFIXES))
def test_every_suffix_is_that_of_a_format_that_is_read(root, suffix):
    format_ = Image.registered_extensions()[suffix]
    Image.new("L", (9, 9), 200).convert("1" if suffix == ".pbm" else "L").save(root / "cat" / f"z{suffix}", format_)
    assert len(load(root)) == 7


def special_files(folder):
    os.mkfifo(folder / "pipe.png")
    (folder / "device.png").symlink_to("/dev/zero")
    (folder / "folder.png").mkdir()
    (folder / "gone.png").symlink_to(folder / "nowhere")
    (folder / "loop.png").symlink_to(folder / "loop.png")
    connection = socket.socket(socket.AF_UNIX)
    connection.bind(str(folder / "socket.png"))
    connection.close()


KINDS = {
    "pipe.png": "is a named pipe",
    "device.png": "is a device",
    "folder.png": "is a folder",
    "gone.png": "is a broken link",
    "loop.png": "cannot be read (Too many levels of symbolic links)",
    "socket.png": "is a socket",
}


def test_special_files_in_a_folder_are_named_and_never_opened(root, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # the address of a socket must be short
    special_files(root / "cat")
    with pytest.warns(UserWarning, match=r"6 file\(s\) .* skipped: .* and 1 more; convert"):
        pets = load(root)
    assert len(pets) == 6
    assert set(pets.skipped) == {f"{root / 'cat' / name} ({why})" for name, why in KINDS.items()}


def test_special_files_in_a_list_are_damaged(root, tmp_path):
    special_files(tmp_path)
    names = [*KINDS, "pets/cat/0.png", "pets/cat/1.png"]
    (tmp_path / "list.csv").write_text("path,label\n" + "".join(f"{name},a\n" for name in names))
    with pytest.raises(EquimetricError, match=r"gone.png' \(number 4 of 8\) is not there; check"):
        load_dataset("manifest", file=tmp_path / "list.csv", size=8)
    with pytest.warns(UserWarning, match=r"6 image file\(s\) cannot be read and are left out"):
        listed = load_dataset("manifest", file=tmp_path / "list.csv", size=8, damaged="skip")
    assert len(listed) == 2
    whys = {**KINDS, "gone.png": "is not there"}
    assert listed.unreadable == tuple(f"{tmp_path / name} (it {why})" for name, why in whys.items())


def test_a_pipe_is_not_hashed(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert hash_files([tmp_path / "pipe", tmp_path / ("a" * 5000), tmp_path / "nul\0"]) == [None, None, None]
    with pytest.raises(EquimetricError, match="pipe' is a named pipe; give a regular file"):
        hash_file(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    with pytest.raises(EquimetricError, match="link' is a named pipe"):
        hash_file(tmp_path / "link")


def test_a_folder_of_pipes_does_not_hang_the_command_line(root):
    """In another process, which a hang would not survive."""
    for name in ("cat", "dog"):
        os.mkfifo(root / name / "9.jpg")
    command = [sys.executable, "-m", "equimetric", "datasets", "check", str(root), "--in_memory", "false"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "2 file(s) that are no images of a known format are skipped" in done.stderr


def png(path, width, height, rows=b""):
    """A PNG whose header says what it likes."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    return path


@pytest.mark.parametrize("side", [50_000, 2**31 - 1])
def test_huge_headers_are_refused(root, side):
    huge = png(root / "cat" / "huge.png", side, side)
    assert "exceeds limit" in reason(huge)
    with pytest.raises(EquimetricError, match=r"1 image file\(s\) cannot be read; .*huge.png \(Image size .* exceeds"):
        load(root)


def test_an_endless_strip_does_not_fill_the_memory(root):
    Image.new("L", (40_000, 1)).save(root / "cat" / "strip.png")
    assert reason(root / "cat" / "strip.png") == "40000×1 pixels: one side is more than 1000 times the other"
    for in_memory in (True, False):
        with pytest.warns(UserWarning, match=r"strip.png \(40000×1 pixels"):
            assert len(load(root, damaged="skip", in_memory=in_memory)) == 6
    Image.new("L", (1000, 1)).save(root / "cat" / "strip.png")
    assert len(load(root)) == 7


@pytest.mark.parametrize("suffix", ["jpg", "png", "bmp", "gif", "webp", "tif", "ppm"])
def test_cut_files_of_every_format_are_damaged(tmp_path, suffix):
    noise = np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / f"a.{suffix}")
    content = (tmp_path / f"a.{suffix}").read_bytes()
    decode(tmp_path / f"a.{suffix}", channels=3, resize=None)
    for part in (0, 3, 20, len(content) // 2):
        (tmp_path / f"a.{suffix}").write_bytes(content[:part])
        assert reason(tmp_path / f"a.{suffix}")
    assert list(damaged_files(FileStore([tmp_path / f"a.{suffix}"]))) == [0]


def test_floating_point_pixels_that_are_no_numbers(tmp_path):
    pixels = np.zeros((9, 9), dtype=np.float32)
    pixels[4, 4] = np.nan
    Image.fromarray(pixels).save(tmp_path / "a.tif")
    assert reason(tmp_path / "a.tif") == "it has pixels that are not finite numbers"


def first_pixel(file, channels=3):
    store = FileStore([file], channels=channels)
    return np.asarray(store.decode(0, None)).reshape(-1, channels)[0].tolist()


@pytest.mark.parametrize("suffix", ["gif", "webp", "png", "tif"])
def test_of_an_animation_the_first_frame_counts(tmp_path, suffix):
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue", "lime")]
    file = tmp_path / f"a.{suffix}"
    frames[0].save(file, save_all=True, append_images=frames[1:], **({"lossless": True} if suffix == "webp" else {}))
    with Image.open(file) as opened:
        assert opened.n_frames == 3
    assert first_pixel(file) == [255, 0, 0]


def test_sixteen_bits_cmyk_and_palettes_have_the_right_pixels(tmp_path):
    deep = np.full((9, 9), 32896, dtype=np.uint16)  # 128 · 257
    for suffix in ("png", "tif", "pgm"):
        Image.fromarray(deep).save(tmp_path / f"deep.{suffix}")
        assert first_pixel(tmp_path / f"deep.{suffix}") == [128, 128, 128]
    big_endian = Image.frombytes("I;16B", (9, 9), deep.astype(">u2").tobytes())
    big_endian.save(tmp_path / "big.tif")
    assert first_pixel(tmp_path / "big.tif") == [128, 128, 128]
    Image.new("CMYK", (9, 9), (0, 255, 255, 0)).save(tmp_path / "ink.jpg", quality=100)
    red = first_pixel(tmp_path / "ink.jpg")
    assert red[0] > 245
    assert max(red[1:]) < 10
    palette = Image.new("P", (9, 9), 1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    for suffix in ("png", "gif", "bmp", "tif"):
        palette.save(tmp_path / f"palette.{suffix}")
        assert first_pixel(tmp_path / f"palette.{suffix}") == [10, 20, 30]


def test_names_that_are_not_unicode(tmp_path, picture):
    odd = os.fsdecode(b"caf\xe9")
    for number in range(2):
        picture(tmp_path / "pets" / "cat" / f"{odd}{number}.png", seed=number)
    assert len(load(tmp_path / "pets")) == len(load(tmp_path / "pets", in_memory=False)) == 2
    for number in range(6):
        (tmp_path / "pets" / "cat" / f"bad{odd}{number}.png").write_bytes(b"")
    with pytest.warns(UserWarning, match="6 image"):
        assert len(load(tmp_path / "pets", damaged="skip")) == 2  # the list of their names is written, too
    (tmp_path / "pets" / odd).mkdir()
    with pytest.raises(EquimetricError, match=r"the folder b'caf\\xe9' in '.*pets' has a name that is not UTF-8"):
        load(tmp_path / "pets")


@pytest.mark.parametrize(
    ("name", "message"), [("a" * 5000, "cannot be read \\(File name too long\\)"), ("a\0b", "has a name that no file")]
)
@pytest.mark.parametrize("dataset", ["folder", "cub", "omniglot", "manifest", "arrays", "features"])
def test_paths_that_no_file_can_have(tmp_path, dataset, name, message):
    option = "root" if dataset in ("folder", "cub", "omniglot") else "file"
    with pytest.raises(EquimetricError, match=message) as caught:
        load_dataset(dataset, **{option: tmp_path / name})
    assert len(str(caught.value)) < 500
    assert "\n" not in str(caught.value)


def test_an_unreadable_class_folder_is_named(root, monkeypatch):
    monkeypatch.setattr("pathlib.Path.iterdir", lambda folder: (_ for _ in ()).throw(denied(folder)))
    with pytest.raises(EquimetricError, match=r"the folder '.*pets' cannot be read \(Permission denied\); check"):
        load(root)


def denied(folder):
    return PermissionError(13, "Permission denied", str(folder))
