import numpy as np
import pytest
import torch
from PIL import Image

from equimetric.data import load_dataset
from equimetric.errors import EquimetricError, EquimetricWarning

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def save(path, colour=RED, size=(10, 10), mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path, **options)


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "pets"
    save(root / "dog" / "2.png", BLUE)
    save(root / "dog" / "1.png", GREEN)
    save(root / "cat" / "b.PNG", RED)
    save(root / "cat" / "a.bmp", RED)
    return root


def load(root, **options):
    return load_dataset("folder", root=root, **({"size": 4} | options))


def test_classes_and_files_in_sorted_order(root):
    pets = load(root)
    assert pets.name == "pets"
    assert pets.class_names == ("cat", "dog")
    assert pets.labels.tolist() == [0, 0, 1, 1]
    assert pets.labels.dtype == torch.int64
    assert pets.sample_attributes["file"] == ("cat/a.bmp", "cat/b.PNG", "dog/1.png", "dog/2.png")
    assert pets.images.shape == (4, 3, 4, 4)
    assert pets.images[:, :, 0, 0].tolist() == [list(RED), list(RED), list(GREEN), list(BLUE)]


def test_default_size_and_grey(root):
    assert load_dataset("folder", root=str(root)).images.shape == (4, 3, 64, 64)
    grey = load(root, channels=1)
    assert grey.images.shape == (4, 1, 4, 4)
    assert grey.images[:, 0, 0, 0].tolist() == [76, 76, 150, 29]  # 0.299 R + 0.587 G + 0.114 B


def test_hidden_and_foreign_files_are_skipped(root):
    before = load(root).fingerprint
    for name in (".DS_Store", "cat/._a.bmp", "cat/.hidden.png", "cat/notes.txt", "README.md"):
        (root / name).write_text("not an image")
    save(root / ".thumbnails" / "x.png")
    assert load(root).fingerprint == before


def test_fingerprint_follows_the_pixels(root):
    before = load(root).fingerprint
    save(root / "cat" / "a.bmp", BLUE)
    assert load(root).fingerprint != before


@pytest.mark.parametrize("suffix", ["jpg", "jpeg", "png", "bmp", "gif", "webp", "tif", "tiff"])
def test_every_format(root, suffix):
    save(root / "cat" / f"z.{suffix}", (200, 200, 200))
    assert load(root).images[2].float().mean().item() == pytest.approx(200, abs=3)


def one_decoded(root, channels=3):
    """The image saved as cat/a.png, which sorts right after a.bmp."""
    return load(root, channels=channels).images[1]


def test_transparency_lies_over_white(root):
    save(root / "cat" / "a.png", (255, 0, 0, 0), mode="RGBA")
    assert one_decoded(root).unique().tolist() == [255]
    save(root / "cat" / "a.png", (0, 0, 0, 51), mode="RGBA")
    assert one_decoded(root).unique().tolist() == [204]
    save(root / "cat" / "a.png", (0, 0), mode="LA")
    assert one_decoded(root).unique().tolist() == [255]


def test_transparent_palette(root):
    image = Image.new("P", (10, 10), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    image.save(root / "cat" / "a.png")
    assert one_decoded(root)[:, 0, 0].tolist() == [10, 20, 30]
    image.save(root / "cat" / "a.png", transparency=1)
    assert one_decoded(root).unique().tolist() == [255]


def test_sixteen_bits_and_floating_point_are_scaled(root):
    grey = np.full((10, 10), 32896, dtype=np.uint16)  # 128 · 257
    Image.fromarray(grey).save(root / "cat" / "a.png")
    assert one_decoded(root).unique().tolist() == [128]
    Image.fromarray(np.full((10, 10), 0.2, dtype=np.float32)).save(root / "cat" / "a.tif")
    assert load(root).images[2].unique().tolist() == [51]
    Image.fromarray(np.full((10, 10), 51, dtype=np.float32)).save(root / "cat" / "a.tif")
    assert load(root).images[2].unique().tolist() == [51]


@pytest.mark.parametrize(("mode", "colour"), [("1", 1), ("L", 255), ("CMYK", (0, 0, 0, 0))])
def test_other_modes_of_white(root, mode, colour):
    save(root / "cat" / "a.tif", colour, mode=mode)
    assert one_decoded(root).min().item() >= 254


def half_red_half_blue(width, height):
    image = Image.new("RGB", (width, height), RED)
    image.paste(BLUE, (width // 2, 0, width, height))
    return image


def test_shorter_side_is_fitted_and_the_centre_kept(root):
    wide = Image.new("RGB", (40, 8), GREEN)
    wide.paste(RED, (16, 0, 24, 8))  # the middle square
    wide.save(root / "cat" / "a.png")
    assert one_decoded(root)[:, 1, 1].tolist() == list(RED)
    # of the green only what the resampling filter mixes into the outermost pixels
    assert one_decoded(root)[1].max().item() < 32
    wide.rotate(90, expand=True).save(root / "cat" / "a.png")
    assert one_decoded(root)[:, 1, 1].tolist() == list(RED)
    assert one_decoded(root)[1].max().item() < 32


def test_small_images_are_enlarged(root):
    save(root / "cat" / "a.png", BLUE, size=(1, 3))
    assert one_decoded(root)[:, 3, 3].tolist() == list(BLUE)


def test_resizing_averages(root):
    # a chessboard of single pixels becomes grey, not a chessboard of some of its pixels
    board = (np.indices((64, 64)).sum(axis=0) % 2 * 255).astype(np.uint8)
    Image.fromarray(board).save(root / "cat" / "a.png")
    inner = one_decoded(root)[:, 1:3, 1:3].float()
    assert inner.sub(127.5).abs().max().item() < 4


def test_exif_orientation(root):
    exif = Image.Exif()
    exif[0x0112] = 6  # shown upright after a quarter turn clockwise: the left half comes to the top
    half_red_half_blue(16, 16).save(root / "cat" / "a.png", exif=exif)
    image = one_decoded(root)
    assert image[:, 0, 0].tolist() == image[:, 0, 3].tolist() == list(RED)
    assert image[:, 3, 0].tolist() == list(BLUE)


def message_of(root, **options):
    with pytest.raises(EquimetricError) as caught:
        load(root, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_empty_and_flat_folders(tmp_path):
    assert "there is no folder" in message_of(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    assert "is a file" in message_of(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert "is empty" in message_of(tmp_path / "empty")
    save(tmp_path / "flat" / "x.png")
    assert "has no class folders; arrange the images as flat/<class>/<image>" in message_of(tmp_path / "flat")


def test_classes_with_too_few_images(root):
    save(root / "fox" / "only.png")
    assert message_of(root) == (
        "class 'fox' has one image; every class needs at least two, remove it or add images, "
        "or leave small classes out with min_images = 2"
    )
    (root / "fox" / "only.png").unlink()
    assert message_of(root).startswith("class 'fox' has no image;")


def test_small_classes_are_left_out_and_said(root):
    save(root / "fox" / "only.png")
    (root / "owl").mkdir()
    save(root / "dog" / "3.png")
    with pytest.warns(
        UserWarning, match=r"2 class\(es\) with fewer than min_images = 2 images are left out: fox \(1\), owl \(0\)"
    ):
        pets = load(root, min_images=2)
    assert pets.class_names == ("cat", "dog")
    assert pets.labels.tolist() == [0, 0, 1, 1, 1]
    assert pets.small_classes == {"fox": 1, "owl": 0}
    for in_memory in (True, False):
        with pytest.warns(UserWarning, match=r"3 class\(es\) with fewer than min_images = 3"):
            dogs = load(root, min_images=3, in_memory=in_memory)
        assert dogs.sample_attributes["file"] == ("dog/1.png", "dog/2.png", "dog/3.png")
        assert dogs.images[torch.arange(3)].shape == (3, 3, 4, 4)
    with pytest.raises(EquimetricError, match="no class of 'pets' has min_images = 9 images; choose a lower one"):
        load(root, min_images=9)


def test_damaged_files_do_not_count_for_a_class(root):
    save(root / "cat" / "c.png")
    (root / "cat" / "a.bmp").write_text("no picture")
    (root / "dog" / "1.png").write_text("no picture")
    with pytest.warns(EquimetricWarning) as said:
        pets = load(root, min_images=2, damaged="skip")
    assert [str(warning.message).partition(" (")[0][:30] for warning in said] == [
        "2 image file(s) cannot be read",
        "1 class(es) with fewer than mi",
    ]
    assert pets.class_names == ("cat",)
    assert pets.small_classes == {"dog": 1}
    assert len(pets.unreadable) == 2


def test_photographs_of_other_formats_are_named(root):
    for number in range(7):
        (root / "cat" / f"IMG_{number}.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    (root / "dog" / "raw.nef").write_bytes(b"II*\0")
    save(root / "loose.jpg")
    with pytest.warns(
        UserWarning, match=r"9 file\(s\) .* skipped: .*loose.jpg \(in no class folder\), .*and 4 more"
    ) as said:
        pets = load(root)
    assert "IMG_0.HEIC (HEIC is not read)" in str(said[0].message)
    assert len(pets) == 4
    assert len(pets.skipped) == 9
    assert pets.skipped[-1].endswith("raw.nef (.nef is not read)")


def test_damaged_files_are_named(root):
    (root / "cat" / "text.png").write_text("this is no picture")
    noise = np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8)
    Image.fromarray(noise).save(root / "dog" / "cut.jpg")
    complete = (root / "dog" / "cut.jpg").read_bytes()
    (root / "dog" / "cut.jpg").write_bytes(complete[: len(complete) // 2])
    message = message_of(root)
    assert "2 image file(s) cannot be read" in message
    assert "text.png (cannot identify image file" in message
    assert "cut.jpg (image file is truncated" in message


def test_damaged_files_can_be_left_out(root):
    (root / "cat" / "text.png").write_text("this is no picture")
    with pytest.warns(UserWarning, match=r"1 image file\(s\) cannot be read and are left out: .*text.png"):
        assert len(load(root, damaged="skip")) == 4
    (root / "cat" / "a.bmp").write_text("nor this")
    with pytest.warns(UserWarning, match="2 image"), pytest.raises(EquimetricError, match="class 'cat' has one image"):
        load(root, damaged="skip")


def test_only_the_first_damaged_files_are_listed(root, cache):
    for number in range(8):
        (root / "cat" / f"bad{number}.png").write_bytes(b"")
    message = message_of(root)
    assert "8 image file(s)" in message
    assert "bad4.png" in message
    assert "bad5.png" not in message
    message, _, file = message.partition(", all listed in ")
    assert message.endswith("and 3 more")
    assert "bad7.png" in (cache / "damaged" / file.rpartition("/")[2]).read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be"),
        ({"size": "9"}, "size must be"),
        ({"size": True}, "size must be"),
        ({"size": float("nan")}, "size must be"),
        ({"size": 10**5000}, "at most 16,384, not a number of more than 200 digits"),
        ({"channels": 4}, "channels"),
        ({"channels": True}, "channels must be 3 (colour) or 1 (grey), not True"),
        ({"min_images": 0}, "min_images must be a whole number, at least 1, not 0"),
        ({"min_images": True}, "min_images must be a whole number, at least 1, not True"),
        ({"min_images": 2.5}, "min_images must be a whole number, at least 1, not 2.5"),
        ({"in_memory": "false"}, "option 'in_memory' of data set 'folder' is true or false, not 'false'"),
        ({"damaged": "ignore"}, "damaged must be 'refuse' or 'skip', not 'ignore'"),
    ],
)
def test_wrong_options(root, options, message):
    assert message in message_of(root, **options)


def test_progress_only_on_a_terminal(root, monkeypatch, capsys):
    load(root)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    assert len(load(root)) == 4
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Reading images" in shown.err
