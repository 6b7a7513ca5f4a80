"""Who may write to the folder of a run, who waits for whom, and what a failed start leaves behind."""

import json
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest
from run_cases import configuration

from equimetric.errors import EquimetricError, StorageError
from equimetric.runs.access import acquire_lock, require_writable
from equimetric.runs.folder import RunFolder
from equimetric.runs.run_cache import RunCache
from equimetric.training import loop, train

HOLDER = """
import sys
from pathlib import Path
from equimetric.runs.access import acquire_lock
acquire_lock(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def config(features):
    return configuration({"name": "features", "options": {"file": str(features)}})


def test_a_second_process_says_for_whom_it_waits(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "result.json").write_text("{}")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "locked\n"
    said = threading.Event()

    def release(message, *_):
        texts.append(str(message))
        said.set()
        holder.communicate("\n")

    texts = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = release
        with RunFolder(folder).lock():
            assert said.is_set()
            assert holder.returncode == 0
    (text,) = texts
    assert f"'{folder}' is in use by process {holder.pid} on " in text
    assert text.endswith("; waiting until it is free")
    with RunFolder(folder).lock():
        assert json.loads((folder / ".lock").read_text())["pid"] == os.getpid()


def test_a_lock_that_says_nothing_is_waited_for_all_the_same(tmp_path):
    first = acquire_lock(tmp_path / ".lock")
    (tmp_path / ".lock").write_text("")
    threading.Timer(0.2, os.close, [first]).start()
    with pytest.warns(UserWarning, match="is in use by another process; waiting"):
        second = acquire_lock(tmp_path / ".lock")
    os.close(second)


def test_who_waited_for_a_failed_start_locks_the_new_file(tmp_path):
    """The failed start removes its folder, so the lock that was waited for is that of a removed file."""
    file = tmp_path / "run" / ".lock"
    first = acquire_lock(file)

    def fail():
        file.unlink()
        file.parent.rmdir()
        os.close(first)

    threading.Timer(0.2, fail).start()
    with pytest.warns(UserWarning, match="waiting"):
        second = acquire_lock(file)
    assert os.path.samestat(os.fstat(second), file.stat())
    os.close(second)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"batch": {"classes": 99}}, "cannot be drawn"),
        ({"data": {"name": "features", "options": {"file": "missing.npz"}}}, "missing.npz"),
        ({"method": "contrasitve"}, "did you mean 'contrastive'"),
    ],
)
def test_a_failed_start_leaves_nothing_and_blocks_nothing(config, tables, message, tmp_path):
    folder = tmp_path / "runs" / "deep" / "run"
    with pytest.raises(EquimetricError, match=message):
        train({**config, **tables}, folder=folder)
    assert not (tmp_path / "runs").exists()
    train(config, folder=folder)


def test_a_start_that_fails_before_its_first_checkpoint_does_not_block_another(config, tmp_path, monkeypatch):
    def fail(*_):
        assert (tmp_path / "run" / "environment.json").exists()
        raise EquimetricError("no")

    monkeypatch.setattr(loop, "validate", fail)
    with pytest.raises(EquimetricError, match="no"):
        train(config, folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    train({**config, "seed": 5}, folder=tmp_path / "run")


def test_a_start_that_was_killed_does_not_block_another(config, tmp_path):
    run = RunFolder(tmp_path / "run")
    run.path.mkdir()
    run.write("config.toml", "")
    run.write("environment.json", json.dumps({"key": {"content": "other"}, "data_fingerprint": "other"}))
    train(config, folder=run.path)
    assert run.result().status == "done"


def test_files_of_the_user_stay(config, tmp_path):
    (tmp_path / "config.toml").write_text("mine")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(EquimetricError, match="cannot be drawn"):
        train({**config, "batch": {"classes": 99}}, folder=tmp_path)
    assert (tmp_path / "config.toml").read_text() == (tmp_path / "notes.txt").read_text() == "mine"
    assert not (tmp_path / ".lock").exists()


def test_folders_that_cannot_be_written_are_found_before_the_data_are_loaded(config, tmp_path, monkeypatch):
    monkeypatch.setattr(RunCache, "data", lambda *_: pytest.fail("the data were loaded first"))
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "deep" / "run"):
        with pytest.raises(StorageError, match=r"cannot write to the run folder .*file' is not a folder; choose"):
            train(config, folder=folder)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    with pytest.raises(StorageError, match="dangling' is not a folder"):
        train(config, folder=tmp_path / "dangling" / "run")
    with pytest.raises(StorageError, match="name too long; choose another"):
        train(config, folder=tmp_path / ("x" * 300))
    with pytest.raises(StorageError, match="null"):
        train(config, folder=tmp_path / "a\0b")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(StorageError, match=r"is write-protected; choose another folder or make it writable"):
        train(config, folder=tmp_path / "new" / "run")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is write-protected for root")
def test_write_protection_is_seen(tmp_path):
    (tmp_path / "protected").mkdir(mode=0o500)
    with pytest.raises(StorageError, match="write-protected"):
        require_writable(tmp_path / "protected" / "run", "run folder")
