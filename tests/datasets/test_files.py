"""A file is found, or fetched whole and checked, or named with where it was looked for and how to get it."""

from __future__ import annotations

import gzip
import hashlib
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from terrine.datasets import files
from terrine.errors import DataError

CONTENT = bytes(range(256)) * 9000  # more than two blocks
SHA = hashlib.sha256(CONTENT).hexdigest()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "thing.bin").write_bytes(CONTENT)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def thing(*urls, sha256=(SHA,), path="toy/thing.bin"):
    return files.DataFile(path=path, sha256=sha256, urls=urls)


def everything(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_a_download_is_checked_kept_and_reported(server):
    seen = []
    path = files.get(thing(f"{server}/thing.bin"), progress=lambda *event: seen.append(event))
    assert path == files.cache() / "toy/thing.bin"
    assert path.read_bytes() == CONTENT
    assert everything(files.cache()) == ["thing.bin"]
    done = [event[1] for event in seen]
    assert done == sorted(done)
    assert len(done) >= 3
    assert seen[-1] == ("thing.bin", len(CONTENT), len(CONTENT))
    assert files.get(thing()) == path  # no address needed any more


def test_a_wrong_sha256_is_refused_and_leaves_nothing(server):
    with pytest.raises(DataError, match=f"{server}/thing.bin: the file's sha256 must be {'0' * 64}, got {SHA}"):
        files.get(thing(f"{server}/thing.bin", sha256=("0" * 64,)))
    assert everything(files.cache()) == []


def test_the_next_address_is_tried(server, tmp_path):
    (tmp_path / "wrong.bin").write_bytes(b"wrong")
    file = thing(f"{server}/none.bin", (tmp_path / "wrong.bin").as_uri(), (tmp_path / "served/thing.bin").as_uri())
    assert files.get(file).read_bytes() == CONTENT
    assert everything(files.cache()) == ["thing.bin"]


def test_a_missing_file_names_itself_where_it_was_looked_for_and_how_to_get_it(monkeypatch, tmp_path):
    with pytest.raises(DataError) as caught:
        files.get(thing("https://example.org/thing.bin"))
    message = str(caught.value)
    for part in ("toy/thing.bin", str(files.cache()), "$TERRINE_DATA is not set", "https://example.org/thing.bin"):
        assert part in message
    assert "\n" not in message
    monkeypatch.setenv("TERRINE_DATA", str(tmp_path / "mine"))
    with pytest.raises(DataError, match=str(tmp_path / "mine" / "toy/thing.bin")):
        files.get(thing())


def test_the_users_folder_comes_before_the_cache_and_packed_or_not_is_one(monkeypatch, tmp_path):
    monkeypatch.setenv("TERRINE_DATA", str(tmp_path / "mine"))
    for folder, name in ((files.cache(), "thing.bin"), (tmp_path / "mine", "thing.bin.gz")):
        (folder / "toy").mkdir(parents=True)
        packed = gzip.compress(CONTENT) if name.endswith(".gz") else CONTENT
        (folder / "toy" / name).write_bytes(packed)
    path = files.get(thing())
    assert path == tmp_path / "mine/toy/thing.bin.gz"
    assert files.read(path) == CONTENT
    assert files.get(thing(path="toy/thing.bin.gz")) == path


@pytest.mark.parametrize(
    "damage",
    [b"short", gzip.compress(b"other", mtime=0), gzip.compress(CONTENT, mtime=0)[:-9]],
    ids=["short", "another file", "cut off"],
)
def test_a_damaged_file_is_refused_by_name(damage):
    target = files.cache() / "toy/thing.bin.gz"
    target.parent.mkdir(parents=True)
    target.write_bytes(damage)
    with pytest.raises(DataError, match=rf"{target}: the file's sha256 must be {SHA}"):
        files.get(thing("file:///nowhere"))
    assert files.find(thing()) == target


def test_a_broken_gzip_says_so(tmp_path):
    (tmp_path / "x.gz").write_bytes(b"not gzip")
    with pytest.raises(DataError, match="is not gzip, or it is damaged"):
        files.read(tmp_path / "x.gz")


def test_the_cache_is_where_the_platform_says(monkeypatch, tmp_path):
    assert files.cache() == tmp_path / "cache" / "terrine"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.cache() == tmp_path / ".cache" / "terrine"
    assert files.folders() == (files.cache(),)
