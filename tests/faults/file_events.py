"""Every event that changes a file below a folder, one of which fails: a crash, a full disk, an error of the disk."""

import builtins
import io
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest


class CrashError(BaseException):
    """The process is dead: nothing catches it, and no later event happens either."""


@dataclass(frozen=True)
class Fault:
    """`error` in place of event `number` of all, or of all of one kind.

    lasting   whether all later events that write fail, too
    torn      whether half of a write arrives before it fails
    """

    number: int
    error: BaseException
    kind: str | None = None
    lasting: bool = False
    torn: bool = False


class WatchedFile:
    """A file open for writing, without a buffer: what was written is what a crash leaves."""

    def __init__(self, events, raw, path, *, text):
        self.events, self.raw, self.path, self.text = events, raw, path, text

    def write(self, data):
        data = data.encode() if self.text else bytes(data)
        self.events.keep_content(self.path)
        with self.events.event("write", self.path, torn=lambda: self.raw.write(data[: len(data) // 2])):
            assert self.raw.write(data) == len(data)
        return len(data)

    def truncate(self, size):
        self.events.keep_content(self.path)
        with self.events.event("truncate", self.path):
            return self.raw.truncate(size)

    def __getattr__(self, name):
        return getattr(self.raw, name)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.raw.close()


class FileEvents:
    """Counts the events that change files below a folder, and lets one of them fail.

    What is not synced is kept as it was, so that `lose_power` can take it back.
    """

    def __init__(self, folder, fault=None):
        self.folder, self.fault = str(folder), fault
        self.seen = []
        self.failed = False
        self.unsynced_content = {}
        self.unsynced_names = []
        self.created = {}

    def event(self, kind, path, torn=None):
        self.seen.append((kind, Path(path).name))
        fault = self.fault
        if fault is not None and not self.failed:
            number = len(self.seen) if fault.kind is None else [one for one, _ in self.seen].count(fault.kind)
            self.failed = (fault.kind is None or kind == fault.kind) and number == fault.number + 1
            if self.failed and fault.torn and torn is not None:
                torn()
            if self.failed:
                raise fault.error
        elif fault is not None and fault.lasting and (isinstance(fault.error, CrashError) or kind != "unlink"):
            raise fault.error
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def is_below(self, path):
        return not isinstance(path, int) and os.fspath(path).startswith(self.folder)

    def keep_content(self, path):
        if path not in self.unsynced_content:
            self.unsynced_content[path] = path.read_bytes()

    def keep_name(self, path, undo):
        self.unsynced_names.append((path.parent, undo))

    def lose_power(self):
        """Take back all that was not synced: first content, then names."""
        for path, content in self.unsynced_content.items():
            if path.exists():
                path.write_bytes(content)
        for _, undo in reversed(self.unsynced_names):
            undo()


def restore(path, content):
    if content is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(content)


def watch_files(events):
    """Patch what changes files so that `events` hears of it; the caller undoes the returned patch."""
    patch = pytest.MonkeyPatch()
    real_open, os_open, fsync = io.open, os.open, os.fsync

    def watched_open(file, mode="r", *arguments, **options):
        created = events.created.pop(file, None) if isinstance(file, int) else None
        if not (set(mode) & set("wax+")) or not (created or events.is_below(file)):
            return real_open(file, mode, *arguments, **options)
        path = created or Path(file)
        if created is None:
            new = not path.exists()
            with events.event("open", path):
                raw = io.FileIO(path, mode.replace("b", ""))
            if new:
                events.keep_name(path, lambda: path.unlink(missing_ok=True))
        else:
            raw = io.FileIO(file, mode.replace("b", ""))
        return WatchedFile(events, raw, path, text="b" not in mode)

    def watched_os_open(path, flags, *arguments, **options):
        if not (flags & os.O_CREAT and events.is_below(path)):
            return os_open(path, flags, *arguments, **options)
        path = Path(path)
        with events.event("create", path):
            descriptor = os_open(path, flags, *arguments, **options)
        events.created[descriptor] = path
        events.keep_name(path, lambda: path.unlink(missing_ok=True))
        return descriptor

    def watched_fsync(descriptor):
        found = os.fstat(descriptor)
        with events.event("fsync", str(found.st_ino)):
            fsync(descriptor)

        def is_synced(path):
            return path.exists() and os.path.samestat(path.stat(), found)

        events.unsynced_content = {p: c for p, c in events.unsynced_content.items() if not is_synced(p)}
        events.unsynced_names = [(p, undo) for p, undo in events.unsynced_names if not is_synced(p)]

    def watch_rename(rename):
        def watched(source, target, **options):
            if not events.is_below(source):
                return rename(source, target, **options)
            source, target = Path(source), Path(target)
            content = target.read_bytes() if target.is_file() else None

            def undo():
                if target.exists():
                    shutil.move(target, source)
                restore(target, content)

            with events.event("rename", target):
                rename(source, target, **options)
            if source in events.unsynced_content:
                events.unsynced_content[target] = events.unsynced_content.pop(source)
            events.keep_name(target, undo)
            return None

        return watched

    def watch_unlink(unlink):
        def watched(path, **options):
            if not events.is_below(path):
                return unlink(path, **options)
            path = Path(path)
            content = path.read_bytes() if path.exists() else None
            with events.event("unlink", path):
                unlink(path, **options)
            events.keep_name(path, lambda: restore(path, content))
            return None

        return watched

    def watch_link(link):
        def watched(source, target, **options):
            if not events.is_below(target):
                return link(source, target, **options)
            with events.event("link", target):
                link(source, target, **options)
            events.keep_name(Path(target), lambda: Path(target).unlink(missing_ok=True))
            return None

        return watched

    def watch_other(kind, change):
        def watched(path, *arguments, **options):
            if events.is_below(path):
                events.event(kind, path)
            changed = change(path, *arguments, **options)
            if kind == "mkdir" and events.is_below(path):
                events.keep_name(Path(path), lambda: shutil.rmtree(path))
            return changed

        return watched

    patch.setattr(io, "open", watched_open)
    patch.setattr(builtins, "open", watched_open)
    patch.setattr(os, "open", watched_os_open)
    patch.setattr(os, "fsync", watched_fsync)
    for name in ("rename", "replace"):
        patch.setattr(os, name, watch_rename(getattr(os, name)))
    for name in ("unlink", "remove"):
        patch.setattr(os, name, watch_unlink(getattr(os, name)))
    patch.setattr(os, "link", watch_link(os.link))
    for name in ("mkdir", "rmdir", "chmod"):
        patch.setattr(os, name, watch_other(name, getattr(os, name)))
    return patch
