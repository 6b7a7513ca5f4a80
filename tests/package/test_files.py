"""Atomic writes and remembered content hashes."""

import hashlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from equimetric import file_hashes, files
from equimetric.file_hashes import hash_file, hash_files
from equimetric.files import sweep, write_atomically


@pytest.fixture(autouse=True)
def memory(tmp_path, monkeypatch):
    """A cache folder of the test's own, in which young files are remembered too."""
    monkeypatch.setenv("EQUIMETRIC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(file_hashes, "RACY_SECONDS", -1.0)
    return tmp_path / "cache" / file_hashes.HASH_CACHE


@pytest.fixture
def reads(monkeypatch):
    """Files whose content has been read."""
    counted = []
    read = file_hashes._read_hash
    monkeypatch.setattr(file_hashes, "_read_hash", lambda path: counted.append(path.name) or read(path))
    return counted


def sha256(content):
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def paths(tmp_path):
    written = [tmp_path / f"{number}.bin" for number in range(5)]
    for number, path in enumerate(written):
        path.write_bytes(bytes([number]) * 10)
    return written


def test_content_is_read_once(paths, reads):
    first = hash_files(paths)
    assert first == [sha256(bytes([number]) * 10) for number in range(5)]
    assert sorted(reads) == sorted(path.name for path in paths)
    assert hash_files(paths[::-1]) == first[::-1]
    assert hash_file(str(paths[3])) == first[3]
    assert len(reads) == 5


def test_it_is_remembered_across_processes(paths, reads):
    code = (
        f"from equimetric import file_hashes; file_hashes.RACY_SECONDS = -1.0; file_hashes.hash_file({str(paths[0])!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert hash_file(paths[0]) == sha256(b"\0" * 10)
    assert reads == []


@pytest.mark.parametrize("content", [b"\7" * 10, b"\7" * 11])
def test_a_changed_file_is_read_again(paths, content):
    hash_files(paths)
    before = paths[0].stat()
    paths[0].write_bytes(content)
    assert hash_file(paths[0]) == sha256(content)
    # Equal mtime, as after a copy that keeps times: the ctime differs. All four equal could not be noticed.
    os.utime(paths[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert hash_file(paths[0]) == sha256(content)
    paths[1].replace(paths[0])
    os.utime(paths[0], ns=(before.st_atime_ns, before.st_mtime_ns))
    assert hash_file(paths[0]) == sha256(b"\1" * 10)


def test_a_young_file_is_not_remembered(paths, reads, monkeypatch):
    monkeypatch.setattr(file_hashes, "RACY_SECONDS", 60.0)
    hash_file(paths[0])
    hash_file(paths[0])
    assert len(reads) == 2


@pytest.mark.parametrize("damage", [b"", b"no database" * 1000, None])
def test_a_damaged_memory_is_ignored_and_replaced(paths, reads, memory, damage):
    expected = hash_files(paths)
    content = memory.read_bytes()
    memory.write_bytes(content[:100] + bytes(len(content) - 100) if damage is None else damage)
    if damage == b"":
        assert hash_files(paths) == expected
    else:
        with pytest.warns(UserWarning, match=r"hashes\.sqlite is damaged .* it is removed, and files are hashed again"):
            assert hash_files(paths) == expected
    assert hash_files(paths) == expected
    reads.clear()
    assert hash_files(paths) == expected
    assert reads == []


def test_a_table_of_another_kind_is_ignored(paths, memory):
    import sqlite3

    memory.parent.mkdir()
    with sqlite3.connect(memory) as other:
        other.execute("CREATE TABLE hashes (path BLOB, more TEXT)")
        other.execute("INSERT INTO hashes VALUES (?, 'x')", (os.fsencode(paths[0]),))
    assert hash_files(paths[:1]) == [sha256(b"\0" * 10)]


def test_without_a_place_to_remember(paths, memory):
    memory.parent.write_text("a file where the folder should be")
    assert hash_files(paths[:1]) == [sha256(b"\0" * 10)]


def test_a_memory_locked_by_another_process_is_not_waited_for_forever(paths, memory, monkeypatch):
    import sqlite3

    hash_file(paths[0])
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda file: connect(file, timeout=0.01))
    holder = connect(memory, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert hash_files(paths) == [sha256(bytes([number]) * 10) for number in range(5)]
    holder.close()
    assert memory.exists()


def test_several_processes_at_once(paths, memory):
    code = "from equimetric.file_hashes import *; import equimetric.file_hashes as f, sys; from pathlib import Path\n"
    code += "f.RACY_SECONDS = -1.0\nfor _ in range(20): print(*hash_files([Path(p) for p in sys.argv[1:]]))"
    command = [sys.executable, "-c", code, *map(str, paths)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    lines = {line for process in processes for line in process.communicate()[0].splitlines()}
    assert lines == {" ".join(hash_files(paths))}
    assert all(process.returncode == 0 for process in processes)


def test_files_that_cannot_be_read(tmp_path, paths):
    assert hash_files([tmp_path / "absent", tmp_path, paths[1]]) == [None, None, sha256(b"\1" * 10)]
    with pytest.raises(FileNotFoundError):
        hash_file(tmp_path / "absent")


def test_names_that_are_not_unicode(tmp_path):
    path = tmp_path / os.fsdecode(b"\xff.bin")
    path.write_bytes(b"x")
    assert hash_file(path) == hash_file(path) == sha256(b"x")


def test_a_write_replaces_the_whole_file_or_nothing(tmp_path, monkeypatch):
    target = tmp_path / "folder" / "file"
    write_atomically(target, "old")
    monkeypatch.setattr(os, "fsync", lambda descriptor: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write_atomically(target, b"new")
    assert target.read_text() == "old"
    assert list(target.parent.iterdir()) == [target]


def test_a_file_and_its_folder_are_synced(tmp_path, monkeypatch):
    """First the content, then the folder in which its name stands."""
    events = []
    replace = os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: events.append(stat.S_ISDIR(os.fstat(descriptor).st_mode)))
    monkeypatch.setattr(os, "replace", lambda *names: events.append("replace") or replace(*names))
    write_atomically(tmp_path / "file", "content")
    assert events == [False, "replace", True]
    write_atomically(tmp_path / "new" / "folder" / "file", "content")
    assert events[3:] == [True, True, False, "replace", True]


def test_what_killed_writers_left_is_swept_and_live_writers_are_not(tmp_path, monkeypatch):
    for name in (".file.abcd_123", ".other.12345678"):
        (tmp_path / name).write_text("half")
    (tmp_path / ".notes").write_text("not ours")
    replace, swept = os.replace, []

    def sweep_now(source, target):
        sweep(tmp_path)  # another process starts in the middle of this write
        swept.append(sorted(file.name for file in tmp_path.iterdir() if file.name != source.name))
        replace(source, target)

    write_atomically(tmp_path / "file", "content")
    assert sorted(file.name for file in tmp_path.iterdir()) == [".notes", ".other.12345678", "file"]
    monkeypatch.setattr(os, "replace", sweep_now)
    write_atomically(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"
    assert swept == [[".notes", "file"]]


def test_a_writer_swept_before_its_lock_begins_again(tmp_path, monkeypatch):
    lock, calls = files._lock, []

    def sweep_first(descriptor, *, wait=True):
        if wait and not calls:
            calls.append(descriptor)
            sweep(tmp_path)
        return lock(descriptor, wait=wait)

    monkeypatch.setattr(files, "_lock", sweep_first)
    write_atomically(tmp_path / "file", "content")
    assert calls
    assert (tmp_path / "file").read_text() == "content"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_another_process_makes_and_removes_is_made_again(tmp_path, monkeypatch):
    mkdir, tries = Path.mkdir, []

    def race(self, *given, **options):
        tries.append(self)
        if len(tries) == 1:
            raise FileExistsError(17, "File exists", str(self))
        mkdir(self, *given, **options)

    monkeypatch.setattr(Path, "mkdir", race)
    files.make_folder(tmp_path / "one")
    assert (tmp_path / "one").is_dir()
    assert len(tries) == 2
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for other in ("file", "link"):
        with pytest.raises(FileExistsError):
            files.make_folder(tmp_path / other)


def test_a_hash_is_remembered_in_the_process_until_the_file_changes(tmp_path, monkeypatch):
    file = tmp_path / "weights.pt"
    file.write_bytes(b"one")
    first = hash_file(file)
    with monkeypatch.context() as patch:
        patch.setattr(file_hashes, "hash_files", lambda _: pytest.fail("it is remembered"))
        assert hash_file(str(file)) == first
    file.write_bytes(b"two")
    assert hash_file(file) == hashlib.sha256(b"two").hexdigest()
    monkeypatch.setattr(file_hashes, "RACY_SECONDS", 1000.0)
    monkeypatch.setattr(file_hashes, "hash_files", lambda _: ["hashed again"])
    assert hash_file(file) == "hashed again", "a young file may change again without another time"
