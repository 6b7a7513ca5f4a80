import errno
import pickle
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from PIL import Image

from equimetric.data import (
    CenterCrop,
    FileStore,
    ImageFiles,
    Resize,
    View,
    damaged_files,
    fit_view,
    load_dataset,
)
from equimetric.data import file_store as module
from equimetric.data.decoding import decode
from equimetric.errors import EquimetricError


@pytest.fixture
def files(tmp_path, picture):
    return [picture(tmp_path / "images" / f"{n}.png", seed=n, size=(20 + n, 16)) for n in range(6)]


@pytest.fixture
def decodings(monkeypatch):
    """How often a file has been decoded."""
    counted = []
    monkeypatch.setattr(module, "decode", lambda file, **options: counted.append(file) or decode(file, **options))
    return counted


def open_images(files, view=None, **options):
    return ImageFiles.all_of(FileStore(files, **options), view or fit_view(8))


def test_indexing_gives_batches_and_single_images(files):
    images = open_images(files)
    whole = images[torch.arange(6)]
    assert (len(images), images.shape, images.dtype) == (6, (6, 3, 8, 8), torch.uint8)
    assert whole.shape == (6, 3, 8, 8)
    assert torch.equal(images[4], whole[4])
    assert torch.equal(images[1:3], whole[1:3])
    assert torch.equal(images[torch.tensor([5, 0, 5])], whole[[5, 0, 5]])
    assert torch.equal(images.subset(torch.tensor([3, 2]))[torch.tensor([1])], whole[[2]])


def test_lazy_and_in_memory_folders_agree(tmp_path, picture):
    for number in range(4):
        picture(tmp_path / "pets" / "ab"[number % 2] / f"{number}.jpg", seed=number, size=(90, 70))
    now = load_dataset("folder", root=tmp_path / "pets", size=16)
    later = load_dataset("folder", root=tmp_path / "pets", size=16, in_memory=False)
    assert torch.equal(later.images[torch.arange(4)], now.images)
    assert later.labels.equal(now.labels)
    assert repr(later).startswith("Dataset('pets', 4 images of 3×16×16, 2 classes")
    part = later.subset(torch.tensor([3, 0]))
    assert isinstance(part.images, ImageFiles)
    assert torch.equal(part.images[torch.arange(2)], now.images[[3, 0]])


def test_a_lazy_fingerprint_follows_content_and_view_but_not_the_place(tmp_path, picture):
    def load(root, **options):
        return load_dataset("folder", root=root, in_memory=False, **options).fingerprint

    for root in ("here", "there"):
        for name in ("a/1.png", "a/2.png"):
            picture(tmp_path / root / name)
    first = load(tmp_path / "here")
    assert load(tmp_path / "there") == first
    assert load(tmp_path / "here", size=32) != first
    picture(tmp_path / "here" / "a" / "2.png", seed=9)
    assert load(tmp_path / "here") != first


@pytest.mark.parametrize(
    ("size", "decoded_at"), [((800, 640), (400, 320)), ((500, 260), (500, 260)), ((2100, 2048), (263, 256))]
)
def test_fast_decoding_is_of_no_more_than_needed_and_never_below(tmp_path, monkeypatch, size, decoded_at):
    Image.new("RGB", size, "teal").save(tmp_path / "big.jpg")
    met = []
    resize = Resize(256, "shorter")
    monkeypatch.setattr(Resize, "__call__", lambda self, image: met.append(image.size) or image)
    for decoding in ("fast", "exact"):
        decode(tmp_path / "big.jpg", channels=3, resize=resize, decoding=decoding)
    assert met == [decoded_at, size]


@pytest.mark.parametrize(("side", "reduced"), [(64, True), (240, True), (241, False), (400, False)])
def test_decoding_is_exact_unless_told_and_fast_decoding_too_where_nothing_is_reduced(tmp_path, picture, side, reduced):
    path = picture(tmp_path / "big.jpg", size=(640, 480), quality=95)
    with Image.open(path) as full:
        expected = np.asarray(full.resize((side, side), Image.Resampling.BILINEAR), dtype=float)
    resize = Resize(side, "square")
    assert np.array_equal(np.asarray(decode(path, channels=3, resize=resize)), expected)
    fast = np.asarray(decode(path, channels=3, resize=resize, decoding="fast"), dtype=float)
    assert np.array_equal(fast, expected) is not reduced
    assert np.abs(fast - expected).mean() < 1


def test_the_choice_of_decoding_reaches_files_caches_and_fingerprints(tmp_path, cache, picture):
    for number in range(4):
        picture(tmp_path / "pets" / "ab"[number % 2] / f"{number}.jpg", seed=number, size=(640, 480), quality=95)
    pixels, fingerprints = {}, set()
    for decoding in ("exact", "fast"):
        for options in ({"in_memory": True}, {"in_memory": False}, {"in_memory": False, "cache": "disk"}):
            pets = load_dataset("folder", root=tmp_path / "pets", size=32, decoding=decoding, **options)
            images = pets.images[torch.arange(4)]
            assert torch.equal(pixels.setdefault(decoding, images), images)
            fingerprints.add(pets.fingerprint)
    assert not torch.equal(pixels["exact"], pixels["fast"])
    assert len(fingerprints) == 4  # of pixels in memory and of files, each by either decoding


@pytest.mark.parametrize("decoding", ["exact", "fast"])
@pytest.mark.parametrize("size", [(64, 32), (640, 320)])
def test_a_lying_jpeg_is_turned_before_boxes_and_crops(tmp_path, size, decoding):
    lying = Image.new("RGB", size, "red")
    lying.paste("blue", (size[0] // 2, 0, *size))
    exif = Image.Exif()
    exif[0x0112] = 6  # the left half comes to the top
    lying.save(tmp_path / "lying.jpg", exif=exif, quality=95)
    upright = decode(tmp_path / "lying.jpg", channels=3, resize=None)
    assert upright.size == (size[1], size[0])
    lower = (0.0, size[0] * 0.6, float(size[1]), size[0] * 0.4)
    store = FileStore([tmp_path / "lying.jpg"], boxes=[lower], decoding=decoding)
    red, _, blue = ImageFiles.all_of(store, fit_view(8))[0].float().mean(dim=(1, 2)).tolist()
    assert red < 10
    assert blue > 240


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize("size", [(1, 1), (3, 200), (200, 160)])
def test_jpegs_of_every_mode_and_size(tmp_path, mode, size):
    Image.new("RGB", size, (200, 200, 200)).convert(mode).save(tmp_path / "a.jpg", quality=95)
    for channels in (1, 3):
        for decoding in ("exact", "fast"):
            store = FileStore([tmp_path / "a.jpg"], channels=channels, decoding=decoding)
            image = ImageFiles.all_of(store, fit_view(4))[0]
            assert image.shape == (channels, 4, 4)
            assert image.float().sub(200).abs().max() <= 4


def test_sixteen_bits_palettes_and_transparency_from_files(tmp_path):
    Image.fromarray(np.full((9, 9), 32896, dtype=np.uint16)).save(tmp_path / "deep.png")  # 128 · 257
    Image.new("RGBA", (9, 9), (0, 0, 0, 51)).save(tmp_path / "glass.png")
    palette = Image.new("P", (9, 9), 1)
    palette.putpalette([0, 0, 0, 10, 20, 30])
    palette.save(tmp_path / "palette.gif")
    deep, glass, coloured = open_images([tmp_path / name for name in ("deep.png", "glass.png", "palette.gif")])[0:3]
    assert deep.unique().tolist() == [128]
    assert glass.unique().tolist() == [204]
    assert coloured[:, 0, 0].tolist() == [10, 20, 30]


def test_boxes_cut_also_out_of_reduced_jpegs(tmp_path):
    image = Image.new("RGB", (800, 600), "white")
    image.paste("green", (400, 200, 560, 360))
    for name, decoding in (("a.png", "exact"), ("a.jpg", "exact"), ("a.jpg", "fast")):
        image.save(tmp_path / name, quality=95)
        boxes = [(400, 200, 160, 160), None, (-5, -5, 20, 20)]
        store = FileStore([tmp_path / name] * 3, boxes=boxes, decoding=decoding)
        inside, whole, corner = ImageFiles.all_of(store, View(Resize(20, "square")))[torch.arange(3)].float()
        assert inside[0].max() < 20  # no white is left
        assert whole[0].mean() > 200
        assert corner.min() > 250
    with pytest.raises(EquimetricError, match=r"a.jpg \(the bounding box \(900, 0, 5, 5\) lies outside the image\)"):
        ImageFiles.all_of(FileStore([tmp_path / "a.jpg"], boxes=[(900, 0, 5, 5)]), fit_view(4))[0]


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_cache_gives_the_same_pixels_without_decoding(files, cache, decodings, kind):
    plain = open_images(files, View(Resize(12, "shorter"), CenterCrop(8)))
    cached = open_images(files, View(Resize(12, "shorter"), CenterCrop(8)), cache=kind)
    expected = plain[torch.arange(6)]
    decodings.clear()
    assert torch.equal(cached[torch.arange(6)], expected)
    assert len(decodings) == 6
    assert torch.equal(cached[torch.arange(6)], expected)
    other_crop = cached.with_view(View(Resize(12, "shorter"), CenterCrop(6)))
    assert torch.equal(other_crop[2], expected[2, :, 1:7, 1:7])
    assert len(decodings) == 6
    assert len(cached.with_view(fit_view(5))[torch.tensor([2])]) == 1  # another resizing is decoded anew
    assert len(decodings) > 6


def test_grey_caches(files, cache):
    for kind in ("memory", "disk"):
        assert torch.equal(open_images(files, channels=1, cache=kind)[0:6], open_images(files, channels=1)[0:6])


def test_the_memory_cache_is_bounded(files, decodings):
    cached = open_images(files, cache="memory", cache_bytes=2 * 3 * 8 * 8)
    for _ in range(2):
        cached[torch.arange(6)]
    assert len(decodings) == 6 + 4
    assert cached.store.memory.used == 2 * 3 * 8 * 8


def test_the_disk_cache_survives_the_process_and_follows_the_files(files, cache, decodings, picture):
    first = open_images(files, cache="disk")[0:6]
    decodings.clear()
    assert torch.equal(open_images(files, cache="disk")[0:6], first)
    assert decodings == []
    picture(files[0], seed=77)
    changed = open_images(files, cache="disk")[0:6]
    assert not torch.equal(changed[0], first[0])
    assert torch.equal(changed[1:], first[1:])


def test_a_damaged_disk_cache_is_rebuilt(files, cache, cut):
    first = open_images(files, cache="disk")[0:6]
    (pixels,) = (cache / "images").glob("*/pixels")
    cut(pixels)
    with pytest.warns(UserWarning, match="is damaged; the images are decoded and cached again"):
        assert torch.equal(open_images(files, cache="disk")[0:6], first)
    pixels.with_name("table.npy").write_bytes(b"")
    with pytest.warns(UserWarning, match="is damaged; the images are decoded and cached again"):
        assert torch.equal(open_images(files, cache="disk")[0:6], first)
    assert len(list((cache / "images").iterdir())) == 1


@pytest.mark.parametrize("name", ["pixels", "table.npy"])
def test_a_flipped_bit_of_the_disk_cache_is_noticed(files, cache, name):
    first = open_images(files, cache="disk")[0:6]
    (file,) = (cache / "images").glob(f"*/{name}")
    content = file.read_bytes()
    for place in range(0, len(content), max(1, len(content) // 40)):
        file.write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert torch.equal(open_images(files, cache="disk")[0:6], first), place
        assert [str(one.message) for one in caught] == [
            f"{file.parent} is damaged; the images are decoded and cached again"
        ], place
    assert file.read_bytes() == content
    assert [folder.name for folder in (cache / "images").iterdir()] == [file.parent.name]


def test_of_several_at_once_one_writes_the_disk_cache(files, cache, decodings, tmp_path, monkeypatch):
    """Threads with stores of their own are to the file system what processes are."""
    expected = open_images(files)[0:6]
    for number in range(25):
        monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / f"cache{number}"))
        decodings.clear()
        barrier = threading.Barrier(6)

        def read(_, barrier=barrier):
            images = open_images(files, cache="disk")
            barrier.wait()
            return images[0:6]

        with ThreadPoolExecutor(6) as pool:
            assert all(torch.equal(images, expected) for images in pool.map(read, range(6)))
        assert len(decodings) == 6
        assert len(list((tmp_path / f"cache{number}" / "images").iterdir())) == 1


SIX_PROCESSES = """
import os, sys, time
from pathlib import Path
from equimetric.data.file_store import FileStore
files = [Path(file) for file in sys.argv[2:]]
failed = 0
for number in range(25):
    os.environ["EQUIMETRIC_CACHE"] = f"{sys.argv[1]}/{number}"
    start = time.monotonic() + 0.05
    children = []
    for _ in range(6):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                store = FileStore(files, cache="disk")
                time.sleep(max(0, start - time.monotonic()))
                store.load(0, None)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    failed += sum(os.waitpid(child, 0)[1] != 0 for child in children)
    failed += len(list(Path(os.environ["EQUIMETRIC_CACHE"], "images").iterdir())) != 1
print(failed)
"""


@pytest.mark.slow
def test_six_processes_at_once_use_one_disk_cache(files, tmp_path):
    command = [sys.executable, "-c", SIX_PROCESSES, str(tmp_path / "caches"), *map(str, files)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "0\n"


def test_what_a_killed_process_left_of_a_disk_cache_is_removed(files, cache):
    first = open_images(files, cache="disk")[0:6]
    (folder,) = (cache / "images").iterdir()
    folder.rename(folder.with_name(f".{folder.name}"))
    assert torch.equal(open_images(files, cache="disk")[0:6], first)
    assert list((cache / "images").iterdir()) == [folder]


def test_a_full_disk_is_explained_and_leaves_nothing_behind(files, cache, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(EquimetricError, match=r"cannot be written to .*: the disk is full; choose another place"):
        open_images(files, cache="disk")[0:6]
    assert list((cache / "images").iterdir()) == []


def test_an_unwritable_cache_folder_is_explained(files, tmp_path, monkeypatch):
    (tmp_path / "occupied").write_text("a file where the folder should be")
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / "occupied"))
    with pytest.raises(EquimetricError, match="EQUIMETRIC_CACHE, or cache='memory' or 'none'"):
        open_images(files, cache="disk")[0:6]
    assert damaged_files(FileStore(files)) == {}  # what cannot be remembered is found out again


def test_a_store_travels_to_another_process(files):
    images = open_images(files, cache="memory", boxes=[None] * 6)
    copy = pickle.loads(pickle.dumps(images))
    assert torch.equal(copy[0:6], images[0:6])
    assert copy.fingerprint() == images.fingerprint()


def test_damaged_files_are_found_once_and_remembered(files, cache, decodings, cut, tmp_path, picture):
    broken = picture(tmp_path / "images" / "broken.jpg", size=(200, 200))
    cut(broken)
    (tmp_path / "images" / "text.png").write_text("no picture")
    store = FileStore([*files, broken, tmp_path / "images" / "text.png"])
    found = damaged_files(store)
    assert list(found) == [6, 7]
    assert "broken.jpg (" in found[6]
    assert "text.png (cannot identify image file" in found[7]
    decodings.clear()
    assert damaged_files(store) == found
    assert decodings == []
    picture(broken)
    assert list(damaged_files(store)) == [7]
    with pytest.raises(
        EquimetricError, match=r"cannot be read: .*text.png \(.*\); remove it, or load with damaged='skip'"
    ):
        ImageFiles.all_of(store, fit_view(4))[7]


def test_a_missing_file_does_not_make_the_others_be_checked_again(files, cache, decodings, tmp_path, picture):
    store = FileStore([*files, tmp_path / "gone.png", tmp_path / ("a" * 300)])
    found = damaged_files(store, missing="skip")
    assert [reason.partition(" (")[2] for reason in found.values()] == [
        "it is not there)",
        "it cannot be read (File name too long))",
    ]
    decodings.clear()
    assert damaged_files(store, missing="skip") == found
    assert [file.name for file in decodings] == ["gone.png", "a" * 300]
    picture(tmp_path / "gone.png")
    assert list(damaged_files(store, missing="skip")) == [7]


def test_a_missing_file_is_named(files, tmp_path):
    with pytest.raises(EquimetricError, match=r"gone.png' \(number 7 of 7\) is not there"):
        damaged_files(FileStore([*files, tmp_path / "gone.png"]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 2}, "channels must be 3"),
        ({"cache": "ram"}, "cache must be 'none', 'memory' or 'disk', not 'ram'"),
        ({"decoding": "quick"}, "decoding must be 'exact' or 'fast', not 'quick'"),
        ({"boxes": []}, "6 files but 0 bounding boxes"),
    ],
)
def test_wrong_options(files, options, message):
    with pytest.raises(EquimetricError, match=message):
        FileStore(files, **options)
    with pytest.raises(EquimetricError, match="no image files"):
        FileStore([])
