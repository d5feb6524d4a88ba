"""What power loss may do to a simulated disk, and what it may not."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.simulation import SimDisk, SimRandom

SECTOR = 4  # tiny, so that small examples have many sectors
SEEDS = range(200)


def new_disk(*, sector_bytes: int = SECTOR) -> SimDisk:
    """A disk with a durable directory /d."""
    disk = SimDisk(sector_bytes=sector_bytes)
    disk.make_dirs("/d")
    disk.sync_dir("/")
    return disk


def put(disk: SimDisk, path: str, content: bytes, *, sync: bool = True) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.pwrite(content, 0)
    if sync:
        file.sync()
    file.close()


def outcomes(disk: SimDisk) -> set[tuple[tuple[str, bytes], ...]]:
    """What /d can look like after power loss, over many draws."""
    found = set()
    for seed in SEEDS:
        after = disk.power_loss(SimRandom(seed))
        found.add(tuple((name, after.read(f"/d/{name}")) for name in after.list_dir("/d")))
    return found


# One file: bytes and size.


def check_survivor(found: bytes, versions: list[bytes], untouched: set[int]) -> None:
    sizes = [len(version) for version in versions]
    on_the_way = any(
        before < len(found) < after and len(found) % SECTOR == 0
        for before, after in itertools.pairwise(sizes)
    )
    assert len(found) in sizes or on_the_way
    for start in range(0, len(found), SECTOR):
        told = found[start : start + SECTOR].rstrip(b"\0")
        candidates = [version[start : start + SECTOR] for version in versions]
        assert any(candidate.startswith(told) for candidate in candidates), (start, told)
    for index in untouched:
        assert found[index] == versions[0][index]


FILE_OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 24), st.integers(1, 12)),
        st.tuples(st.just("append"), st.just(0), st.integers(1, 12)),
        st.tuples(st.just("truncate"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("sync"), st.just(0), st.just(0)),
        st.tuples(st.just("write_back"), st.integers(0, 9), st.just(0)),
    ),
    max_size=12,
)


@settings(derandomize=True, max_examples=400, deadline=None)
@given(FILE_OPERATIONS, st.integers(0, 1_000_000))
def test_a_file_after_power_loss_holds_old_or_new_sectors_and_all_that_was_synced(
    operations: list[tuple[str, int, int]], seed: int
) -> None:
    disk = new_disk()
    file = disk.open("/d/f", create=True)
    disk.sync_dir("/d")
    versions, untouched = [b""], set[int]()
    for number, (kind, position, length) in enumerate(operations, start=1):
        match kind:
            case "write" | "append":
                start = len(versions[-1]) if kind == "append" else position
                file.pwrite(bytes([number]) * length, start)
                untouched -= set(range(start, start + length))
            case "truncate":
                file.truncate(position)
                untouched &= set(range(position))
            case "sync":
                file.sync()
                versions, untouched = [], set(range(file.size()))
            case _:
                disk.write_back(SimRandom(position))
        versions.append(file.pread(99, 0))
    found = disk.power_loss(SimRandom(seed)).read("/d/f")
    check_survivor(found, versions, untouched)


def test_the_checker_of_survivors_can_fail() -> None:
    for found, versions, untouched in [
        (b"abcX", [b"abcd", b"abcdefgh"], set[int]()),  # a byte nobody wrote
        (b"abcdef", [b"abcd", b"abcdefgh"], set[int]()),  # a size it never had
        (b"abYYefgh", [b"abcdefgh", b"abYYefgh"], {2}),  # an untouched byte changed
    ]:
        with pytest.raises(AssertionError):
            check_survivor(found, versions, untouched)


def test_an_unsynced_append_is_kept_lost_or_torn() -> None:
    disk = new_disk()
    put(disk, "/d/f", b"base")
    disk.sync_dir("/d")
    disk.open("/d/f").pwrite(b"AAAABBBB", 4)
    contents = {files[0][1] for files in outcomes(disk)}
    assert {b"base", b"baseAAAABBBB", b"baseAAAA"} <= contents
    assert {b"baseAAAA\0\0\0\0", b"base\0\0\0\0BBBB", b"base" + bytes(8)} <= contents


def test_an_unsynced_truncation_may_be_undone() -> None:
    disk = new_disk()
    put(disk, "/d/f", b"AAAABBBB")
    disk.sync_dir("/d")
    disk.open("/d/f").truncate(2)
    contents = {files[0][1] for files in outcomes(disk)}
    assert {b"AA", b"AAAABBBB"} <= contents
    assert all(content.startswith(b"AA") for content in contents)


def test_a_version_between_two_syncs_survives_if_the_system_wrote_it_back() -> None:
    disk = new_disk()
    put(disk, "/d/f", b"old!")
    disk.sync_dir("/d")
    file = disk.open("/d/f")
    file.pwrite(b"mid!", 0)
    for seed in SEEDS:
        disk.write_back(SimRandom(seed))
    file.pwrite(b"new!", 0)
    assert {files[0][1] for files in outcomes(disk)} == {b"mid!", b"new!"}


def test_a_preallocated_file_stays_sparse() -> None:
    disk = new_disk(sector_bytes=512)
    file = disk.open("/d/index", create=True)
    file.truncate(10 << 20)
    file.pwrite(b"entry", 0)
    file.sync()
    disk.sync_dir("/d")
    assert disk.used_bytes == 5
    after = disk.power_loss(SimRandom(1))
    assert after.used_bytes == 5
    assert after.open("/d/index").pread(8, 0) == b"entry\0\0\0"
    assert after.open("/d/index").size() == 10 << 20


# Names.


def test_a_synced_file_vanishes_with_its_unsynced_name() -> None:
    """Hazard 43: the data of a new segment is synced, its directory is not."""
    disk = new_disk()
    put(disk, "/d/segment", b"data")
    assert outcomes(disk) == {(), (("segment", b"data"),)}
    disk = new_disk()
    put(disk, "/d/segment", b"data")
    disk.sync_dir("/d")
    assert outcomes(disk) == {(("segment", b"data"),)}


def test_a_new_directory_vanishes_with_all_that_was_synced_in_it() -> None:
    disk = new_disk()
    disk.make_dirs("/d/p/q")
    put(disk, "/d/p/q/f", b"data")
    disk.sync_dir("/d/p/q")
    disk.sync_dir("/d/p")
    trees = {bool(disk.power_loss(SimRandom(seed)).stat("/d/p/q/f")) for seed in SEEDS}
    assert trees == {False, True}
    synced = disk.kill()
    synced.sync_dir("/d")
    assert all(synced.power_loss(SimRandom(seed)).read("/d/p/q/f") == b"data" for seed in SEEDS)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([lambda d: d.rename("/d/a", "/d/b")], {"a", "b", "ab"}),
        ([lambda d: d.unlink("/d/a")], {"a", ""}),
        (
            [lambda d: d.rename("/d/a", "/d/b"), lambda d: d.rename("/d/b", "/d/c")],
            {"a", "b", "c", "ab", "ac", "bc", "abc"},
        ),
        (
            [lambda d: d.rename("/d/a", "/d/b"), lambda d: put(d, "/d/a", b"A")],
            {"a", "b", "ab", "Ab"},
        ),
    ],
    ids=["rename", "unlink", "rename twice", "rotate"],
)
def test_unsynced_names_are_kept_or_lost_in_any_combination(
    changes: list[Callable[[SimDisk], object]], expected: set[str]
) -> None:
    disk = new_disk()
    put(disk, "/d/a", b"a")
    disk.sync_dir("/d")
    for change in changes:
        change(disk)
    seen = {
        "".join("A" if content == b"A" else name for name, content in files)
        for files in outcomes(disk)
    }
    assert seen == expected


def test_a_replacing_rename_leaves_the_old_file_or_the_new_one() -> None:
    disk = new_disk()
    put(disk, "/d/f", b"old")
    disk.sync_dir("/d")
    put(disk, "/d/f.tmp", b"new")
    disk.rename("/d/f.tmp", "/d/f")
    assert {dict(files)["f"] for files in outcomes(disk)} == {b"old", b"new"}


def test_a_renamed_directory_has_one_name() -> None:
    disk = new_disk()
    disk.make_dirs("/d/a")
    put(disk, "/d/a/f", b"x")
    disk.sync_dir("/d/a")
    disk.sync_dir("/d")
    disk.rename("/d/a", "/d/b")
    runs = [disk.power_loss(SimRandom(seed)) for seed in SEEDS]
    assert {tuple(run.list_dir("/d")) for run in runs} == {("a",), ("b",)}
    assert all(run.read(f"/d/{run.list_dir('/d')[0]}/f") == b"x" for run in runs)


def test_syncing_either_directory_completes_a_move_between_them() -> None:
    for synced in ("/d", "/e"):
        disk = new_disk()
        disk.make_dirs("/e")
        put(disk, "/d/f", b"x")
        disk.sync_dir("/")
        disk.sync_dir("/d")
        disk.rename("/d/f", "/e/f")
        disk.sync_dir(synced)
        for seed in SEEDS:
            assert disk.power_loss(SimRandom(seed)).read("/e/f") == b"x"


def test_two_names_left_by_a_rename_are_two_files_with_equal_content() -> None:
    disk = new_disk()
    put(disk, "/d/a", b"AAAA")
    disk.sync_dir("/d")
    disk.open("/d/a").pwrite(b"BBBBCCCC", 0)
    disk.rename("/d/a", "/d/b")
    runs = [disk.power_loss(SimRandom(seed)) for seed in SEEDS]
    both = [run for run in runs if run.list_dir("/d") == ["a", "b"]]
    assert both
    assert all(run.read("/d/a") == run.read("/d/b") for run in both)
    put(both[0], "/d/a", b"changed")
    assert both[0].read("/d/b") != b"changed"


NAMES = [f"{directory}/{name}" for directory in ("/d", "/e") for name in "ab"]
NAME_OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from(NAMES), st.just("")),
        st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
        st.tuples(st.just("unlink"), st.sampled_from(NAMES), st.just("")),
        st.tuples(st.just("sync_dir"), st.sampled_from(["/d", "/e"]), st.just("")),
        st.tuples(st.just("write_back"), st.just(""), st.just("")),
    ),
    max_size=14,
)


class NameModel:
    """For each name what it has meant since its directory was synced; who must be somewhere."""

    def __init__(self) -> None:
        self.now: dict[str, bytes] = {}
        self.meanings: dict[str, set[bytes | None]] = {path: {None} for path in NAMES}
        self.settled: set[bytes] = set()

    def bind(self, path: str, content: bytes | None) -> None:
        replaced = self.now.pop(path, None)
        if replaced is not None:
            self.settled.discard(replaced)
        if content is not None:
            self.now[path] = content
        self.meanings[path].add(content)

    def rename(self, old: str, new: str) -> None:
        if old != new and old in self.now:
            content = self.now.pop(old)
            self.meanings[old].add(None)
            self.bind(new, content)

    def sync_dir(self, directory: str) -> None:
        for path in NAMES:
            if path.startswith(directory):
                content = self.now.get(path)
                self.meanings[path] = {content}
                if content is not None:
                    self.settled.add(content)


def run_name_operations(disk: SimDisk, operations: list[tuple[str, str, str]]) -> NameModel:
    model = NameModel()
    for number, (kind, path, other) in enumerate(operations):
        match kind:
            case "create":
                put(disk, f"{path}.new", b"%d" % number)  # a new inode, not the old one again
                disk.sync_dir(path[:2])
                model.sync_dir(path[:2])
                disk.rename(f"{path}.new", path)
                model.bind(path, b"%d" % number)
                model.settled.add(b"%d" % number)
            case "rename":
                if path in model.now:
                    disk.rename(path, other)
                model.rename(path, other)
            case "unlink":
                disk.unlink(path)
                model.bind(path, None)
            case "sync_dir":
                disk.sync_dir(path)
                model.sync_dir(path)
            case _:
                disk.write_back(SimRandom(number))
    return model


@settings(derandomize=True, max_examples=400, deadline=None)
@given(NAME_OPERATIONS, st.integers(0, 1_000_000))
def test_a_name_after_power_loss_means_what_it_meant_and_no_settled_file_vanishes(
    operations: list[tuple[str, str, str]], seed: int
) -> None:
    disk = new_disk()
    disk.make_dirs("/e")
    disk.sync_dir("/")
    model = run_name_operations(disk, operations)
    assert disk.used_bytes == sum(len(content) for content in model.now.values())
    after = disk.power_loss(SimRandom(seed))
    found = {
        f"{directory}/{name}": after.read(f"{directory}/{name}")
        for directory in ("/d", "/e")
        for name in after.list_dir(directory)
    }
    for path in NAMES:
        assert found.get(path) in model.meanings[path]
    assert model.settled <= set(found.values())


# Runs of the node.


def test_power_loss_repeats_by_seed_and_leaves_the_old_state_alone() -> None:
    disk = new_disk()
    put(disk, "/d/f", bytes(range(200)), sync=False)

    def look(seed: int) -> list[bytes]:
        after = disk.power_loss(SimRandom(seed))
        return [after.read(f"/d/{name}") for name in after.list_dir("/d")]

    first = [look(seed) for seed in SEEDS]
    assert first == [look(seed) for seed in SEEDS]
    assert len({tuple(files) for files in first}) > 10


@pytest.mark.parametrize("end", ["kill", "power loss"])
def test_the_old_run_is_over(end: str) -> None:
    disk = new_disk()
    put(disk, "/d/f", b"x")
    disk.sync_dir("/d")
    file = disk.open("/d/f")
    lock = disk.lock("/d/.lock")
    lock.__enter__()
    after = disk.kill() if end == "kill" else disk.power_loss(SimRandom(0))
    for call in (
        lambda: file.pread(1, 0),
        lambda: file.pwrite(b"y", 0),
        file.sync,
        lambda: disk.open("/d/f"),
        lambda: disk.unlink("/d/f"),
        lambda: disk.list_dir("/d"),
    ):
        with pytest.raises(OSError) as caught:
            call()
        assert caught.value.errno == errno.EBADF
    file.close()
    lock.__exit__(None, None, None)
    with after.lock("/d/.lock"):
        assert after.read("/d/f") == b"x"


def test_a_kill_keeps_the_page_cache_which_a_later_power_loss_takes() -> None:
    disk = new_disk()
    put(disk, "/d/f", b"unsynced", sync=False)
    after = disk.kill()
    assert after.read("/d/f") == b"unsynced"
    assert () in outcomes(after)


def test_a_kill_frees_what_only_handles_held() -> None:
    disk = new_disk()
    put(disk, "/d/f", b"12345678")
    file = disk.open("/d/f")
    disk.unlink("/d/f")
    assert disk.used_bytes == 8
    assert disk.kill().used_bytes == 0
    assert file.path == "/d/f"
