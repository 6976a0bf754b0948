"""Files are whole or not there, and have the mode they are given."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from terrine._files import write_atomically, write_once


def test_it_writes_replaces_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "file"
    for content in (b"first", b"second, longer", b""):
        write_atomically(path, lambda file, content=content: file.write(content))
        assert path.read_bytes() == content
        assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("stop", [OSError("full"), KeyboardInterrupt()])
def test_a_write_that_stops_leaves_the_old_file(tmp_path, stop):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def half(file) -> None:
        file.write(b"half")
        file.flush()
        assert path.read_bytes() == b"old"  # never seen half written
        raise stop

    with pytest.raises(type(stop)):
        write_atomically(path, half)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_temporary_lies_beside_the_file_and_is_private_from_the_start(tmp_path):
    seen = []

    def look(file) -> None:
        [name] = os.listdir(tmp_path)
        seen.append((name, stat.S_IMODE(os.stat(tmp_path / name).st_mode)))

    write_atomically(tmp_path / "file", look, mode=0o600)
    [(name, mode)] = seen
    assert name.startswith(".file.")
    assert name.endswith(".tmp")
    assert mode == 0o600


def test_content_and_name_reach_the_disk_in_order(tmp_path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else f"file of {os.fstat(descriptor).st_size}"
        steps.append(f"fsync {kind}")
        fsync(descriptor)

    def record_replace(source, target) -> None:
        steps.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    write_atomically(tmp_path / "file", lambda file: file.write(b"12345"))
    assert steps == ["fsync file of 5", "rename", "fsync folder"]


def test_a_folder_in_the_way_is_an_error_and_no_temporary_stays(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(OSError, match="file"):
        write_atomically(tmp_path / "file", lambda file: file.write(b"x"))
    assert os.listdir(tmp_path) == ["file"]


def test_an_error_names_the_file_and_no_temporary(tmp_path):
    (tmp_path / "blocked").touch()
    for path in (tmp_path / "nowhere" / "file", tmp_path / "blocked" / "file"):
        for write in (lambda path: write_atomically(path, lambda _: None), lambda path: write_once(path, b"")):
            with pytest.raises(OSError, match="file") as caught:
                write(path)
            assert caught.value.filename == str(path)


def test_a_full_disk_names_the_file_and_another_files_error_its_own(tmp_path):
    def full(_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def other(_: object) -> None:
        (tmp_path / "other").read_bytes()

    for write, name in ((full, "file"), (other, "other")):
        with pytest.raises(OSError, match=name) as caught:
            write_atomically(tmp_path / "file", write)
        assert str(caught.value.filename) == str(tmp_path / name)


def test_a_public_file_keeps_to_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        write_atomically(tmp_path / "file", lambda file: file.write(b"x"))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
