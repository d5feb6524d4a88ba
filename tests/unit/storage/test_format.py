"""Giving directories their identity, and refusing those that have none or somebody else's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.kernel.ids import NodeId, Uuid
from tidelog.kernel.real import OsDisk
from tidelog.storage.format import (
    AlreadyFormatted,
    Formatted,
    NotFormatted,
    format_directories,
    random_uuid,
    read_identity,
    required_identity,
)
from tidelog.storage.node_files import (
    CorruptNodeFile,
    DuplicateDirectoryId,
    InconsistentClusterId,
    InconsistentNodeId,
)

DISK = OsDisk()


def format_here(
    *paths: Path, cluster_id: str = "tide", node_id: int = 1, ignore: bool = False
) -> list[Formatted]:
    return format_directories(
        DISK,
        [str(path) for path in paths],
        random.Random(7),
        cluster_id=cluster_id,
        node_id=NodeId(node_id),
        ignore_formatted=ignore,
    )


class Script(random.Random):
    """Yields these draws of 16 bytes, one after the other."""

    def __init__(self, *draws: bytes) -> None:
        super().__init__(0)
        self._draws: Iterator[bytes] = iter(draws)

    def randbytes(self, n: int) -> bytes:
        return next(self._draws)


def test_random_ids_are_neither_reserved_nor_taken_for_options() -> None:
    dash = Uuid.parse("-AAAAAAAAAAAAAAAAAAAAA").raw
    reserved, first_free = (99).to_bytes(16, "big"), (100).to_bytes(16, "big")
    assert random_uuid(Script(reserved, dash, bytes(16), first_free)).raw == first_free


def test_new_directories_get_one_cluster_and_ids_of_their_own(tmp_path: Path) -> None:
    made = format_here(tmp_path / "a/deep", tmp_path / "b")
    assert [(one.path, one.is_new) for one in made] == [
        (str(tmp_path / "a/deep"), True),
        (str(tmp_path / "b"), True),
    ]
    assert {(one.meta.cluster_id, one.meta.node_id, one.meta.version) for one in made} == {
        ("tide", 1, 1)
    }
    assert made[0].meta.directory_id != made[1].meta.directory_id
    assert [read_identity(DISK, one.path) for one in made] == [one.meta for one in made]
    assert required_identity(DISK, [one.path for one in made]) == made[0].meta


def test_a_formatted_directory_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    (made,) = format_here(tmp_path / "a")
    with pytest.raises(AlreadyFormatted, match=r"a is formatted already, for cluster tide and no"):
        format_here(tmp_path / "b", tmp_path / "a")
    assert read_identity(DISK, made.path) == made.meta
    assert not (tmp_path / "b").exists()


def test_formatted_ones_can_be_left_as_they_are(tmp_path: Path) -> None:
    (made,) = format_here(tmp_path / "a")
    old, new = format_here(tmp_path / "a", tmp_path / "b", ignore=True)
    assert (old.meta, old.is_new, new.is_new) == (made.meta, False, True)


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"cluster_id": "ebb"}, InconsistentClusterId),
        ({"node_id": 2}, InconsistentNodeId),
    ],
)
def test_directories_of_others_are_never_left_or_joined(
    tmp_path: Path, asked: dict[str, str | int], error: type[Exception]
) -> None:
    format_here(tmp_path / "a")
    with pytest.raises(error):
        format_here(tmp_path / "a", tmp_path / "b", ignore=True, **asked)  # type: ignore[arg-type]
    assert not (tmp_path / "b").exists()


def test_a_start_needs_every_directory_formatted(tmp_path: Path) -> None:
    format_here(tmp_path / "a")
    (tmp_path / "b").mkdir()
    for missing in (tmp_path / "b", tmp_path / "c"):
        with pytest.raises(NotFormatted, match=f"{missing} is not formatted; run: tidelog storage"):
            required_identity(DISK, [str(tmp_path / "a"), str(missing)])


def test_a_start_refuses_a_mixture(tmp_path: Path) -> None:
    format_here(tmp_path / "a")
    format_here(tmp_path / "b", cluster_id="ebb")
    with pytest.raises(InconsistentClusterId):
        required_identity(DISK, [str(tmp_path / "a"), str(tmp_path / "b")])


def test_a_start_refuses_a_copied_directory(tmp_path: Path) -> None:
    format_here(tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b/meta.properties").write_bytes((tmp_path / "a/meta.properties").read_bytes())
    with pytest.raises(DuplicateDirectoryId):
        required_identity(DISK, [str(tmp_path / "a"), str(tmp_path / "b")])


def test_damage_is_refused_by_name_and_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "meta.properties"
    file.write_text("version=1\n", encoding="ascii")
    with pytest.raises(CorruptNodeFile, match="id is missing"):
        format_here(tmp_path, ignore=True)
    with pytest.raises(CorruptNodeFile, match="id is missing"):
        required_identity(DISK, [str(tmp_path)])
    assert file.read_text(encoding="ascii") == "version=1\n"
