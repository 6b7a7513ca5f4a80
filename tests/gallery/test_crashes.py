"""A kill at any moment leaves the last change that was finished, and nothing of the one that was not."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from file_events import CrashError, Fault, FileEvents, watch_files
from gallery_cases import hard_data, verification

import equimetric as em
from equimetric.errors import StorageError
from equimetric.gallery.manifest import MANIFEST, Manifest

VECTORS = hard_data("random", 40, 1, 8)[1]
IDS = [f"i{number:02d}" for number in range(40)]


def state(gallery):
    return gallery.items().to_pydict(), gallery.search(VECTORS[:3], 40)


def prepare(folder, form="cosine"):
    gallery = em.Gallery.create(folder, verification(form))
    gallery.add(VECTORS[:4], IDS[:4])
    gallery.remove(IDS[:1])
    return gallery


CHANGES = {
    "add": lambda gallery: gallery.add(VECTORS[4:9], IDS[4:9]),
    "add at another scale": lambda gallery: gallery.add(30 * VECTORS[4:9], IDS[4:9]),
    "remove": lambda gallery: gallery.remove(IDS[2:4]),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("power", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["killed", "without power"])
def test_a_crash_at_any_event_leaves_the_state_before_or_after(change, power, tmp_path):
    prepared = prepare(tmp_path / "prepared", "euclidean").folder
    undisturbed = em.Gallery.open(shutil.copytree(prepared, tmp_path / "undisturbed"))
    before = state(undisturbed)
    events = FileEvents(tmp_path / "undisturbed")
    patch = watch_files(events)
    CHANGES[change](undisturbed)
    patch.undo()
    after = state(undisturbed)
    assert before != after
    assert len(events.seen) > 8
    outcomes = []
    for number in range(len(events.seen)):
        folder = tmp_path / str(number)
        gallery = em.Gallery.open(shutil.copytree(prepared, folder))
        events = FileEvents(folder, Fault(number, CrashError(), lasting=True, torn=True))
        patch = watch_files(events)
        try:
            with pytest.raises(CrashError):
                CHANGES[change](gallery)
        finally:
            patch.undo()
        if power:
            events.lose_power()
        opened = em.Gallery.open(folder)
        outcomes.append(state(opened))
        assert outcomes[-1] in (before, after), number
        named = Manifest.read(folder).files | {".lock"}
        assert {file.name for file in folder.iterdir()} <= named, "leftovers are swept"
        assert (folder / "vectors.f32").stat().st_size == Manifest.read(folder).rows * 8 * 4
        if outcomes[-1] == before:
            CHANGES[change](opened)
        assert state(opened) == after
    assert before in outcomes
    assert after in outcomes or change == "remove"
    # What was seen after the change is seen after every later event, too.
    assert outcomes == sorted(outcomes, key=lambda one: one == after)


def test_a_full_disk_leaves_the_state_before(tmp_path):
    gallery = prepare(tmp_path / "g")
    before = state(gallery)
    events = FileEvents(tmp_path / "g", Fault(0, OSError(28, "No space left on device"), kind="write"))
    patch = watch_files(events)
    try:
        with pytest.raises(StorageError, match="the disk is full"):
            gallery.add(VECTORS[4:9], IDS[4:9])
    finally:
        patch.undo()
    assert state(gallery) == state(em.Gallery.open(tmp_path / "g")) == before


ADDING = """
import sys
import numpy as np
import equimetric as em
gallery = em.Gallery.open(sys.argv[1])
vectors = np.load(sys.argv[2])
print("ready", flush=True)
number = len(gallery)
while True:
    gallery.add(vectors[number % 40 : number % 40 + 1], [f"n{number:05d}"], {"number": [number]})
    number += 1
"""


@pytest.mark.slow
def test_a_process_killed_while_adding_leaves_whole_additions(tmp_path):
    gallery = em.Gallery.create(tmp_path / "g", verification())
    np.save(tmp_path / "vectors.npy", VECTORS)
    for seconds in (0.0, 0.013, 0.11, 0.23):
        command = [sys.executable, "-c", ADDING, str(tmp_path / "g"), str(tmp_path / "vectors.npy")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert process.stdout.readline()
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        gallery = em.Gallery.open(tmp_path / "g")
        count = len(gallery)
        if not count:
            continue
        assert gallery.items().to_pydict() == {
            "id": [f"n{number:05d}" for number in range(count)],
            "number": list(range(count)),
        }
        for number in range(0, count, max(1, count // 5)):
            found = gallery.search(VECTORS[number % 40 : number % 40 + 1], count)[0]
            assert f"n{number:05d}" in [match.id for match in found if match.score < 1e-6]
    assert (tmp_path / "g" / MANIFEST).exists()
