"""Entries on disk: whole or missing, ours or not used, bounded; whatever a file holds, no call fails."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import polyker as pk
from polyker.store import disk
from polyker.store.entries import CacheEntry, pack, unpack
from polyker.store.keys import digest

FLIPS = 10_000
ENTRY = CacheEntry("kernel", digest("kernel", "a"), "C[i]", '{"is":"KernelRecord"}', bytes(range(256)) * 4)


def made(image: bytes = b"code", text: str = "about") -> tuple[Callable[[], tuple[bytes, str]], list[int]]:
    """Return a function that gives an entry, and the list of its calls."""
    calls: list[int] = []

    def make() -> tuple[bytes, str]:
        calls.append(1)
        return image, text

    return make, calls


def kept(part: object, make: Callable[[], tuple[bytes, str]]) -> tuple[bytes, str]:
    return disk.kept("test", "about", (part,), make)


def test_an_entry_is_made_once_for_the_same_parts(folder: Path) -> None:
    make, calls = made(b"\x00\n\xff")
    assert kept(("a", "b"), make) == kept(("a", "b"), make) == (b"\x00\n\xff", "about")
    assert len(calls) == 1
    kept(("a", "c"), make)
    kept(("ab", ""), make)
    assert len(calls) == 3 and len(list(folder.iterdir())) == 3
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(f.suffix == disk.SUFFIX and f.stat().st_mode & 0o777 == 0o600 for f in folder.iterdir())


def test_a_file_cut_at_any_byte_is_no_entry() -> None:
    whole = pack(ENTRY)
    assert unpack(whole) == ENTRY
    for n in range(len(whole)):
        with pytest.raises(ValueError, match=r"."):
            unpack(whole[:n])


def test_a_file_with_any_bit_flipped_is_no_entry() -> None:
    whole, choice = pack(ENTRY), random.Random(7)
    for _ in range(FLIPS):
        at = choice.randrange(len(whole))
        flipped = whole[:at] + bytes([whole[at] ^ 1 << choice.randrange(8)]) + whole[at + 1 :]
        with pytest.raises(ValueError, match=r"."):
            unpack(flipped)


@pytest.mark.parametrize("bad", [b"", b"\n", b"polyker-cache-1", pack(ENTRY) + b"\0", b"\xff" * 999, pack(ENTRY)[20:]])
def test_what_is_no_entry_is_missed_with_a_warning_and_made_anew(
    bad: bytes, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make, calls = made(b"machine code")
    part = str(hash(bad))  # a warning is given once a file
    kept(part, make)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(bad)
    assert kept(part, make) == (b"machine code", "about")
    assert len(calls) == 2 and file.read_bytes() == whole
    assert "is not used" in caplog.text


def test_a_file_of_another_key_is_missed(folder: Path) -> None:
    make, calls = made()
    kept("a", make)
    (file,) = folder.iterdir()
    other = digest("test", "b")
    file.rename(folder / (other + disk.SUFFIX))
    kept("b", make)
    assert len(calls) == 2
    (folder / (other + disk.SUFFIX)).write_bytes(pack(CacheEntry("another kind", other, "", "")))
    kept("b", make)
    assert len(calls) == 3


def test_what_is_no_file_in_an_entry_s_place_is_missed(folder: Path) -> None:
    make, calls = made()
    for n, put in enumerate(("folder", "link", "pipe", "open")):
        name = folder / (digest("test", put) + disk.SUFFIX)
        folder.mkdir(mode=0o700, exist_ok=True)
        if put == "folder":
            name.mkdir()
        elif put == "link":
            own = folder / "target"
            own.write_bytes(pack(CacheEntry("test", digest("test", put), "", "about", b"evil")))
            name.symlink_to(own)
        elif put == "pipe":
            os.mkfifo(name)
        else:
            name.write_bytes(pack(CacheEntry("test", digest("test", put), "", "about", b"evil")))
            name.chmod(0o666)
        assert kept(put, make) == (b"code", "about")
        assert len(calls) == n + 1


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root gives files away")
def test_an_entry_of_another_user_is_missed(folder: Path) -> None:
    make, calls = made()
    kept("a", make)
    (file,) = folder.iterdir()
    os.chown(file, 12345, 12345)
    kept("a", make)
    assert len(calls) == 2
    os.chown(folder, 12345, 12345)
    kept("a", make)
    assert len(calls) == 3


@pytest.mark.parametrize("blocked", ["a file", "below a file", "no name", "a long name"])
def test_where_there_can_be_no_folder_nothing_is_kept(
    blocked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    paths = {
        "a file": file,
        "below a file": file / "cache",
        "no name": Path("\0"),
        "a long name": tmp_path / ("x" * 999),
    }
    monkeypatch.setenv("POLYKER_CACHE", "rw")
    if blocked == "no name":
        monkeypatch.setattr(disk, "folder", lambda *, make: None)
    else:
        monkeypatch.setenv("POLYKER_CACHE_DIR", str(paths[blocked]))
    make, calls = made()
    assert kept("a", make) == kept("a", make) == (b"code", "about")
    assert len(calls) == 2


@pytest.mark.skipif(
    os.name != "posix" or os.getuid() != 0, reason="only root becomes a user that the system does not know"
)
@pytest.mark.parametrize("home", ["/nonexistent", None])
def test_a_user_whom_the_system_does_not_know_computes_without_a_cache(home: str | None) -> None:
    program = (
        "import os, filelock, platformdirs, polyker as pk, numpy as np\n"
        "pk.op('y[i] = x[i] * 3')(np.ones(3))\n"  # loads all that this user may not read
        "os.environ['POLYKER_CACHE'] = 'rw'\n"
        "os.setgid(54321), os.setuid(54321)\n"
        "print(pk.op('y[i] = x[i] * 2')(np.ones(3)).tolist())"
    )
    environment = {"PATH": os.environ["PATH"], "POLYKER_MACHINE": "", "POLYKER_CACHE": "off"}
    environment |= {} if home is None else {"HOME": home}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "[2.0, 2.0, 2.0]\n", done.stderr


def test_a_folder_that_cannot_be_read_or_written_is_no_cache(folder: Path) -> None:
    program = (
        "import sys\nfrom polyker.store import disk\nprint(disk.kept('test', '', ('a',), lambda: (b'code', 'about')))"
    )
    kept("a", made()[0])
    for mode in (0o500, 0o000):
        folder.chmod(mode)
        try:
            done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        finally:
            folder.chmod(0o700)
        assert done.stdout == "(b'code', 'about')\n", done.stderr


def test_a_full_disk_leaves_no_part_of_an_entry(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "no space left")

    make, calls = made()
    for name in ("write_bytes", "open"):
        with monkeypatch.context() as patch:
            patch.setattr(Path, name, full)
            assert kept(name, make) == (b"code", "about")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        assert kept("replace", make) == (b"code", "about")
    assert len(calls) == 3 and not [f for f in folder.iterdir() if f.suffix != disk.SUFFIX]


def test_a_folder_that_others_may_write_to_is_not_used(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    make, calls = made()
    kept("a", make)
    kept("a", make)
    assert len(calls) == 2 and "others may write" in caplog.text and not list(folder.iterdir())
    folder.rmdir()
    elsewhere = folder.parent / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    folder.symlink_to(elsewhere)
    kept("a", make)
    assert len(calls) == 3 and list(elsewhere.iterdir()) == []


def test_modes_read_write_or_leave_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, calls = made()
    kept("a", make)
    (file,) = folder.iterdir()
    os.utime(file, (1, 1))
    monkeypatch.setenv("POLYKER_CACHE", "ro")
    kept("a", make)
    kept("b", make)
    assert len(calls) == 2 and list(folder.iterdir()) == [file] and file.stat().st_mtime == 1
    monkeypatch.setenv("POLYKER_CACHE", "off")
    kept("a", make)
    assert len(calls) == 3
    monkeypatch.setenv("POLYKER_CACHE", "yes")
    with pytest.raises(pk.ArgumentError, match="off, ro, rw"):
        kept("a", make)


def test_what_was_not_used_for_longest_goes_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, _ = made(b"x" * 1000)
    for n, part in enumerate("abc"):
        kept(part, make)
        for file in folder.iterdir():
            os.utime(file, (file.stat().st_mtime - 9000, file.stat().st_mtime - 9000 + n))
    kept("a", make)  # used last
    monkeypatch.setattr(disk, "MAX_BYTES", 4000)
    monkeypatch.setattr(disk, "KEPT_BYTES", 2600)
    monkeypatch.setattr(disk.counts, "writes", 0)
    kept("d", make)
    left, calls = made(b"x" * 1000)
    kept("a", left)
    kept("d", left)
    assert not calls and len(list(folder.iterdir())) == 2
    pk.clear_cache(disk=True)
    assert list(folder.iterdir()) == []


def test_what_killed_processes_left_goes_after_an_hour(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(mode=0o700)
    old, new, lock = folder / "old.part", folder / "new.part", folder / "old.lock"
    for file in (old, new, lock):
        file.write_bytes(b"")
    for file in (old, lock):
        os.utime(file, (time.time() - 9000, time.time() - 9000))
    monkeypatch.setattr(disk.counts, "writes", 0)
    kept("a", made()[0])
    assert not old.exists() and not lock.exists() and new.exists()


def test_processes_that_write_one_entry_at_once_all_get_it(folder: Path) -> None:
    program = (
        "from polyker.store.disk import kept\n"
        "for n in range(50): assert kept('t', '', (n,), lambda: (b'code' * 5000, str(n))) == (b'code' * 5000, str(n))"
    )
    running = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE) for _ in range(4)]
    assert [p.communicate(timeout=120)[1] for p in running] == [b""] * 4
    assert len(list(folder.iterdir())) == 50


def test_a_thousand_entries_are_looked_up_in_less_than_five_milliseconds_each(folder: Path) -> None:
    make, calls = made(b"x" * 4000)
    for n in range(1000):
        kept(n, make)
    start = time.process_time()
    for n in range(1000):
        kept(n, make)
    assert len(calls) == 1000 and time.process_time() - start < 5.0


def test_damaged_entries_are_found_and_deleted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for n in range(3):
        kept(n, made()[0])
    first, second, _ = sorted(folder.iterdir())
    first.write_bytes(b"x")
    second.write_bytes(second.read_bytes()[:-1])
    caplog.set_level(logging.ERROR)
    assert sorted(k.file for k, _ in disk.verify()) == [first, second]
    assert disk.verify() == [] and len(disk.files()) == 1
