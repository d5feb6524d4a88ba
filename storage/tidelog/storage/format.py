"""Giving empty log directories their identity, before a node first starts on them.

A node never invents a cluster: a directory that lost its ``meta.properties`` looks exactly like a
new one, and a node that started on it would forget what it had promised. So the identity is
written by an explicit act (Kafka's ``kafka-storage format``), and checked at every start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.kernel.ids import DirectoryId, NodeId, Uuid
from tidelog.kernel.ports import Disk, Random
from tidelog.storage.atomic import make_dirs_durably
from tidelog.storage.names import META_PROPERTIES
from tidelog.storage.node_files import (
    InconsistentClusterId,
    InconsistentNodeId,
    MetaProperties,
    read_meta_properties,
    verify_same_cluster,
    write_meta_properties,
)

_RESERVED_IDS: Final = 100
"""Directory ids below are reserved by the protocol (unassigned, lost, migrating)."""


class AlreadyFormatted(Exception):
    """A directory belongs to a node already; formatting must be asked for twice to go on."""


class NotFormatted(Exception):
    """A directory has no identity yet."""


@dataclass(frozen=True, slots=True)
class Formatted:
    path: str
    meta: MetaProperties
    is_new: bool


def random_uuid(random: Random) -> Uuid:
    """An id whose text does not begin with a dash, so that no shell takes it for an option."""
    while True:
        uuid = Uuid(random.randbytes(16))
        if int.from_bytes(uuid.raw, "big") >= _RESERVED_IDS and not str(uuid).startswith("-"):
            return uuid


def format_directories(
    disk: Disk,
    paths: Sequence[str],
    random: Random,
    *,
    cluster_id: str,
    node_id: NodeId,
    ignore_formatted: bool = False,
) -> list[Formatted]:
    """Write the identity into each directory that has none.

    ``AlreadyFormatted`` if one has, unless those are to be left as they are; even then it must
    be of this cluster and node.
    """
    found = [(path, read_identity(disk, path)) for path in paths]
    there = [(path, meta) for path, meta in found if meta is not None]
    if there and not ignore_formatted:
        raise AlreadyFormatted(
            f"{there[0][0]} is formatted already, for cluster {there[0][1].cluster_id} "
            f"and node {there[0][1].node_id}"
        )
    verify_same_cluster(there)
    for path, known in there:
        _refuse_others(path, known, cluster_id, node_id)
    formatted = []
    for path, meta in found:
        is_new = meta is None
        if meta is None:
            meta = MetaProperties(cluster_id, node_id, DirectoryId(random_uuid(random)))
            make_dirs_durably(disk, path)
            write_meta_properties(disk, f"{path}/{META_PROPERTIES}", meta)
        formatted.append(Formatted(path, meta, is_new))
    return formatted


def _refuse_others(path: str, meta: MetaProperties, cluster_id: str, node_id: NodeId) -> None:
    if meta.cluster_id != cluster_id:
        raise InconsistentClusterId(
            f"{path} was formatted for cluster {meta.cluster_id}, not for {cluster_id}"
        )
    if meta.node_id != node_id:
        raise InconsistentNodeId(f"{path} was formatted for node {meta.node_id}, not for {node_id}")


def read_identity(disk: Disk, path: str) -> MetaProperties | None:
    file = f"{path}/{META_PROPERTIES}"
    return None if disk.stat(file) is None else read_meta_properties(disk, file)


def required_identity(disk: Disk, paths: Sequence[str]) -> MetaProperties:
    """The identity that all directories share; a clear error if one has none or another."""
    found: list[tuple[str, MetaProperties]] = []
    for path in paths:
        meta = read_identity(disk, path)
        if meta is None:
            raise NotFormatted(
                f"{path} is not formatted; run: tidelog storage format --cluster-id ID "
                "--config FILE (tidelog storage random-uuid makes an ID)"
            )
        found.append((path, meta))
    verify_same_cluster(found)
    return found[0][1]
