"""Features of a frozen backbone: on all cores, in pieces, under a lock, checked when opened."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

import equimetric as em
from equimetric import progress
from equimetric.backbones import Backbone, InputConvention, build_backbone
from equimetric.errors import StorageError
from equimetric.runs import feature_file, features
from equimetric.runs.features import cached_features

PIECE = 32
IMAGES = 150


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(feature_file, "PIECE", PIECE)


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "features"


@pytest.fixture
def dataset():
    return em.load_dataset("digits").subset(torch.arange(IMAGES))


@pytest.fixture
def backbone():
    torch.manual_seed(0)
    return build_backbone("small_cnn", channels=1)


@pytest.fixture
def computed(monkeypatch):
    """The blocks of rows that were computed."""
    blocks = []
    compute = features.compute_blocks

    def note(backbone, images, some):
        blocks.extend(some)
        return compute(backbone, images, some)

    monkeypatch.setattr(features, "compute_blocks", note)
    return blocks


@pytest.fixture
def lines(monkeypatch):
    """Progress as lines of a log, each unit at once."""
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    progress.set_progress_output("lines")
    yield
    progress.set_progress_output("bar")


def count(blocks):
    return sum(len(rows) for rows in blocks)


@pytest.mark.parametrize("name", ["small_cnn", "efficientnet_lite0"])
def test_the_number_of_cores_and_threads_changes_no_bit(name, monkeypatch, tmp_path, dataset):
    torch.manual_seed(0)
    backbone = build_backbone(name, channels=1)
    images = dataset.subset(torch.arange(40))
    found = []
    for cores, threads in ((1, 1), (2, 1), (3, 2)):
        monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / f"{cores}"))
        monkeypatch.setattr(features, "available_cores", lambda cores=cores: cores)
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            found.append(cached_features(backbone, images))
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    assert found[0].std() > 0


def test_features_equal_those_of_a_plain_loop(folder, backbone, dataset):
    backbone.eval()
    with torch.inference_mode():
        blocks = [backbone(backbone.convention.apply(some)) for some in dataset.images.split(16)]
    found = cached_features(backbone.train(), dataset)
    assert torch.equal(found, torch.cat(blocks))
    assert backbone.training


def test_images_in_files_give_the_same_bits_with_any_number_of_cores(monkeypatch, tmp_path):
    from PIL import Image

    for label in range(3):
        (tmp_path / "images" / f"class{label}").mkdir(parents=True)
        for number in range(12):
            pixels = np.random.default_rng((label, number)).integers(0, 256, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / f"class{label}" / f"{number}.png")
    files = em.load_dataset("folder", root=tmp_path / "images", size=32, in_memory=False)
    torch.manual_seed(0)
    backbone = build_backbone("small_cnn", channels=3)
    found = []
    for cores in (1, 3):
        monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / f"{cores}"))
        monkeypatch.setattr(features, "available_cores", lambda cores=cores: cores)
        found.append(cached_features(backbone, files))
    assert torch.equal(found[0], found[1])


def test_a_stopped_extraction_goes_on_with_the_piece_it_was_computing(folder, backbone, dataset, computed, monkeypatch):
    write = feature_file.OpenFeatures.write

    def stop(opened, number, rows):
        if number == 3:
            raise KeyboardInterrupt
        write(opened, number, rows)

    monkeypatch.setattr(feature_file.OpenFeatures, "write", stop)
    with pytest.raises(KeyboardInterrupt):
        cached_features(backbone, dataset)
    assert backbone.training
    monkeypatch.setattr(feature_file.OpenFeatures, "write", write)
    computed.clear()
    found = cached_features(backbone, dataset)
    assert count(computed) == IMAGES - 3 * PIECE
    (file,) = folder.iterdir()
    file.unlink()
    assert torch.equal(found, cached_features(backbone, dataset))


@pytest.mark.slow
def test_sigkill_loses_one_piece(folder, backbone, dataset, computed):
    code = """
import time, torch
import equimetric as em
from equimetric.backbones import build_backbone
from equimetric.runs import feature_file, features
feature_file.PIECE = 32
write = feature_file.OpenFeatures.write
def slow(opened, number, rows):
    write(opened, number, rows)
    if number == 1:
        print("two pieces", flush=True)
        time.sleep(60)
feature_file.OpenFeatures.write = slow
torch.manual_seed(0)
features.cached_features(build_backbone("small_cnn", channels=1), em.load_dataset("digits").subset(torch.arange(150)))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout.readline() == "two pieces\n"
        process.send_signal(signal.SIGKILL)
    found = cached_features(backbone, dataset)
    assert count(computed) == IMAGES - 2 * PIECE
    backbone.eval()
    with torch.inference_mode():
        assert torch.equal(found[:16], backbone(backbone.convention.apply(dataset.images[:16])))


def test_a_second_worker_waits_says_so_and_computes_nothing(
    folder, backbone, dataset, computed, monkeypatch, capsys, lines
):
    monkeypatch.setattr(features, "TRIES_BEFORE_MESSAGE", 1)
    monkeypatch.setattr(feature_file, "SECONDS_BETWEEN_TRIES", 0.01)
    writing, go_on = threading.Event(), threading.Event()
    write = feature_file.OpenFeatures.write

    def wait(opened, number, rows):
        write(opened, number, rows)
        if number == 1:
            writing.set()
            go_on.wait(20)

    monkeypatch.setattr(feature_file.OpenFeatures, "write", wait)
    found = {}
    first, second = (
        threading.Thread(target=lambda name=name: found.update({name: cached_features(backbone, dataset)}))
        for name in ("first", "second")
    )
    first.start()
    assert writing.wait(20)
    second.start()
    time.sleep(0.3)
    assert not found
    go_on.set()
    first.join(20)
    second.join(20)
    assert torch.equal(found["first"], found["second"])
    assert count(computed) == IMAGES
    said = capsys.readouterr().err
    assert f"The features of 'digits' are being computed by process {os.getpid()}; waiting for them." in said
    assert f"Waiting for the features of 'digits': {2 * PIECE} of {IMAGES} (43%)" in said


def test_the_space_is_reserved_before_anything_is_computed(folder, backbone, dataset, computed, monkeypatch):
    sizes = []
    reserve = feature_file.OpenFeatures.reserve

    def note(opened):
        reserve(opened)
        found = os.fstat(opened.descriptor)
        sizes.append((found.st_size, found.st_blocks * 512, count(computed)))

    monkeypatch.setattr(feature_file.OpenFeatures, "reserve", note)
    cached_features(backbone, dataset)
    ((size, on_disk, before),) = sizes
    assert size > IMAGES * backbone.num_features * 4
    assert on_disk >= size
    assert before == 0


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_that_cannot_reserve_gets_zeros(folder, backbone, dataset, monkeypatch, number):
    found = cached_features(backbone, dataset).clone()
    (file,) = folder.iterdir()
    file.unlink()

    def refuse(*given):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(feature_file.os, "posix_fallocate", refuse)
    monkeypatch.setattr(feature_file, "RESERVATION_BYTES", 100_000)
    assert torch.equal(cached_features(backbone, dataset), found)
    assert file.stat().st_blocks * 512 >= file.stat().st_size


def test_a_failed_write_names_the_place_and_the_way_out(folder, backbone, dataset, computed, monkeypatch):
    pwrite, written = os.pwrite, []

    def fail(descriptor, content, offset):
        written.append(len(content))
        if written.count(PIECE * backbone.num_features * 4) == 3:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pwrite(descriptor, content, offset)

    monkeypatch.setattr(feature_file.os, "pwrite", fail)
    message = r"features of 'digits' \(1.1 MB\) cannot be written to '.*': Input/output error; .*EQUIMETRIC_CACHE"
    with pytest.raises(StorageError, match=message):
        cached_features(backbone, dataset)
    monkeypatch.setattr(feature_file.os, "pwrite", pwrite)
    computed.clear()
    cached_features(backbone, dataset)
    assert count(computed) == IMAGES - 2 * PIECE


def damage(file, offset):
    content = bytearray(file.read_bytes())
    content[offset] ^= 4
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("offset", "pieces"),
    [(-1, 1), (-40, 1), (2000, 1), (3, 5), (90, 5)],
    ids=["last hash", "second last hash", "rows", "magic", "header"],
)
def test_damaged_features_are_computed_again(folder, backbone, dataset, computed, capsys, lines, offset, pieces):
    found = cached_features(backbone, dataset).clone()
    (file,) = folder.iterdir()
    intact = file.read_bytes()
    damage(file, offset)
    computed.clear()
    capsys.readouterr()
    assert torch.equal(cached_features(backbone, dataset), found)
    assert 0 < count(computed) <= pieces * PIECE
    assert "computed again" in capsys.readouterr().err
    assert file.read_bytes() == intact
    computed.clear()
    cached_features(backbone, dataset)
    assert not computed


def test_features_of_other_images_under_this_name_are_noticed(folder, backbone, dataset, computed):
    found = cached_features(backbone, dataset).clone()
    (file,) = folder.iterdir()
    other = em.load_dataset("digits").subset(torch.arange(IMAGES, 2 * IMAGES))
    cached_features(backbone, other)
    (its_file,) = set(folder.iterdir()) - {file}
    file.write_bytes(its_file.read_bytes())
    assert torch.equal(cached_features(backbone, dataset), found)


def test_a_file_of_an_older_version_is_replaced(folder, backbone, dataset):
    found = cached_features(backbone, dataset).clone()
    (file,) = folder.iterdir()
    np.save(file, np.zeros((IMAGES, backbone.num_features), np.float32))
    assert torch.equal(cached_features(backbone, dataset), found)


def test_the_file_is_an_array_for_other_programs(folder, backbone, dataset):
    found = cached_features(backbone, dataset)
    (file,) = folder.iterdir()
    assert np.array_equal(np.load(file), found.numpy())


def test_a_cache_that_may_only_be_read_is_used(folder, backbone, dataset, monkeypatch):
    found = cached_features(backbone, dataset).clone()

    def refuse(*given):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(feature_file.os, "pwrite", refuse)
    monkeypatch.setattr(feature_file.FeatureFile, "create", refuse)
    assert torch.equal(cached_features(backbone, dataset), found)


class MeanColour(Backbone):
    """Nothing to train."""

    num_features = 1
    convention = InputConvention(8, 8, mean=(127.5,), std=(127.5,))

    def forward(self, images):
        return images.mean((2, 3))


def test_a_backbone_without_parameters(folder, dataset):
    found = cached_features(MeanColour(), dataset)
    torch.testing.assert_close(found[:, 0], dataset.images.float().mean((1, 2, 3)) / 127.5 - 1)


def test_progress_in_a_log(folder, backbone, dataset, capsys, lines):
    cached_features(backbone, dataset)
    said = capsys.readouterr().err.splitlines()
    assert said[0].startswith("Features of 'digits': 16 of 150 (11%), about ")
    assert said[0].endswith(" left")
    assert said[-1].startswith("Features of 'digits': done after ")


def test_a_call_from_python_prints_nothing_into_a_log(folder, backbone, dataset, capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_LINES", 0.0)
    cached_features(backbone, dataset)
    assert capsys.readouterr() == ("", "")


def test_other_labels_and_classes_of_the_same_images_share_their_features(dataset, backbone, folder, computed):
    first = cached_features(backbone, dataset)
    blocks = len(computed)
    relabelled = dataset.replace(class_attributes={"kind": ("even", "odd") * (dataset.classes // 2)})
    assert relabelled.fingerprint != dataset.fingerprint
    assert torch.equal(cached_features(backbone, relabelled), first)
    assert len(computed) == blocks
    cached_features(backbone, dataset.replace(images=255 - dataset.images))
    assert len(computed) > blocks
