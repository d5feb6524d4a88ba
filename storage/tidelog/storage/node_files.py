"""The small files that say what a directory is: whose, which topic's, and how it was left.

``meta.properties`` ties a log directory to a cluster, a node and an id of its own, so that a
disk of another cluster is refused instead of being served or, worse, cleaned up.
``partition.metadata`` ties a partition's directory to a topic id, so that a topic made again
under the same name never finds the old data. ``.kafka_cleanshutdown`` vouches for the logs.

All are written atomically; a file that does not parse is refused by name (``CorruptNodeFile``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from crc32c import crc32c

from tidelog.kernel.ids import (
    ZERO_UUID,
    BrokerEpoch,
    DirectoryId,
    NodeId,
    TimestampMs,
    TopicId,
    Uuid,
)
from tidelog.kernel.ports import Disk
from tidelog.kernel.settings.properties import (
    MalformedProperties,
    format_properties,
    parse_properties,
)
from tidelog.storage.atomic import write_atomically

FIRST_FREE_DIRECTORY_ID: Final = 100
"""Smaller ids mean something else in the protocol: migrating (0), unassigned (1), lost (2)."""

NO_DIRECTORY_ID: Final = DirectoryId(ZERO_UUID)
NO_BROKER_EPOCH: Final = BrokerEpoch(-1)

_CHECKSUM_MARK: Final = b"#crc32c="
_VERSION_KEY: Final = "version"
_CLUSTER_KEY: Final = "cluster.id"
_DIRECTORY_KEY: Final = "directory.id"
_NODE_KEYS: Final = {0: "broker.id", 1: "node.id"}
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun",
                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")  # fmt: skip


class CorruptNodeFile(Exception):
    """A file of this module's that does not say what it must; the message names it."""


class InconsistentDirectory(Exception):
    """A log directory that belongs to somebody else, or not to its neighbours."""


class InconsistentClusterId(InconsistentDirectory):
    pass


class InconsistentNodeId(InconsistentDirectory):
    pass


class DuplicateDirectoryId(InconsistentDirectory):
    """One directory is a copy of another; their logs would overwrite each other's history."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    cluster_id: str
    node_id: NodeId
    directory_id: DirectoryId = NO_DIRECTORY_ID
    """``NO_DIRECTORY_ID`` in files older than KIP-858; whoever opens one gives it an id."""
    version: int = 1


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class CleanShutdown:
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    """The registration under which the node ran, for the controller to compare (KIP-966)."""


# --- meta.properties ------------------------------------------------------------------------


def encode_meta_properties(meta: MetaProperties, written_ms: TimestampMs | None = None) -> bytes:
    """As Java writes it; ``written_ms`` goes into the comment that it puts on top."""
    comments = () if written_ms is None else ("", java_date(written_ms))
    properties = {_NODE_KEYS[meta.version]: str(meta.node_id)}
    if meta.directory_id != NO_DIRECTORY_ID:
        properties[_DIRECTORY_KEY] = str(meta.directory_id)
    properties[_VERSION_KEY] = str(meta.version)
    properties[_CLUSTER_KEY] = meta.cluster_id
    return format_properties(properties, comments).encode("ascii")


def decode_meta_properties(data: bytes, path: str) -> MetaProperties:
    try:
        properties = parse_properties(data.decode("latin-1"))
    except MalformedProperties as error:
        raise CorruptNodeFile(f"{path}: {error}") from None
    version = _natural(properties, _VERSION_KEY, path)
    if version not in _NODE_KEYS:
        raise CorruptNodeFile(f"{path}: version is {version}, only 0 and 1 are known")
    cluster_id = properties.get(_CLUSTER_KEY)
    if not cluster_id:
        raise CorruptNodeFile(f"{path}: {_CLUSTER_KEY} is missing")
    node_id = NodeId(_natural(properties, _NODE_KEYS[version], path))
    return MetaProperties(cluster_id, node_id, _directory_id(properties, path), version)


def _natural(properties: dict[str, str], key: str, path: str) -> int:
    value = properties.get(key)
    if value is None:
        raise CorruptNodeFile(f"{path}: {key} is missing")
    if not (value.isascii() and value.isdecimal() and len(value) <= 10 and int(value) < 2**31):
        raise CorruptNodeFile(f"{path}: {key} is {value!r}, not a number from 0 to 2^31−1")
    return int(value)


def _directory_id(properties: dict[str, str], path: str) -> DirectoryId:
    value = properties.get(_DIRECTORY_KEY)
    if value is None:
        return NO_DIRECTORY_ID
    uuid = _uuid(value, _DIRECTORY_KEY, path)
    if int.from_bytes(uuid.raw, "big") < FIRST_FREE_DIRECTORY_ID:
        raise CorruptNodeFile(f"{path}: {_DIRECTORY_KEY} {value} is reserved by the protocol")
    return DirectoryId(uuid)


def _uuid(text: str, key: str, path: str) -> Uuid:
    try:
        return Uuid.parse(text)
    except ValueError as error:
        raise CorruptNodeFile(f"{path}: {key}: {error}") from None


def java_date(timestamp_ms: int) -> str:
    """``java.util.Date.toString`` in UTC; not left to ``strftime``, which asks the locale."""
    then = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp_ms)
    day, month = _DAYS[then.weekday()], _MONTHS[then.month - 1]
    return f"{day} {month} {then:%d %H:%M:%S} UTC {then.year}"


def read_meta_properties(disk: Disk, path: str) -> MetaProperties:
    return decode_meta_properties(_verified(disk.read(path), path), path)


def write_meta_properties(
    disk: Disk, path: str, meta: MetaProperties, written_ms: TimestampMs | None = None
) -> None:
    """With a checksum in a comment on top: Kafka, which has none, reads over it."""
    data = encode_meta_properties(meta, written_ms)
    write_atomically(disk, path, _checksum_line(data) + data)


def _checksum_line(data: bytes) -> bytes:
    return b"%s%08x\n" % (_CHECKSUM_MARK, crc32c(data))


def _verified(data: bytes, path: str) -> bytes:
    """What the checksum covers; files of Apache Kafka are taken as they are.

    A node that read another cluster's id from a damaged file would send away, for good, whoever
    asks it.
    """
    if not data.startswith(_CHECKSUM_MARK):
        return data
    line, _, rest = data.partition(b"\n")
    if line + b"\n" != _checksum_line(rest):
        raise CorruptNodeFile(
            f"{path} was damaged or edited: its checksum is not that of its first line; put the"
            " right ids in, as the other nodes and directories have them, and remove that line"
        )
    return rest


def verify_same_cluster(found: Sequence[tuple[str, MetaProperties]]) -> None:
    """Check that the log directories (path, what it says) of a node belong together."""
    owners: dict[DirectoryId, str] = {}
    for path, meta in found:
        first_path, first = found[0]
        if meta.cluster_id != first.cluster_id:
            raise InconsistentClusterId(
                f"{path} belongs to cluster {meta.cluster_id}, "
                f"but {first_path} to {first.cluster_id}"
            )
        if meta.node_id != first.node_id:
            raise InconsistentNodeId(
                f"{path} belongs to node {meta.node_id}, but {first_path} to {first.node_id}"
            )
        if meta.directory_id != NO_DIRECTORY_ID and meta.directory_id in owners:
            raise DuplicateDirectoryId(
                f"{path} and {owners[meta.directory_id]} both have the id {meta.directory_id}"
            )
        owners[meta.directory_id] = path


# --- partition.metadata ---------------------------------------------------------------------


def encode_partition_metadata(metadata: PartitionMetadata) -> bytes:
    return f"version: 0\ntopic_id: {metadata.topic_id}".encode("ascii")


def decode_partition_metadata(data: bytes, path: str) -> PartitionMetadata:
    lines = data.decode("latin-1").removesuffix("\n").split("\n")
    if lines[0] != "version: 0":
        raise CorruptNodeFile(f"{path}: line 1 is {lines[0]!r}, not 'version: 0'")
    key, _, value = lines[1].partition(": ") if len(lines) == 2 else ("", "", "")
    if key != "topic_id":
        raise CorruptNodeFile(f"{path}: there must be one more line, with the topic_id")
    topic_id = _uuid(value, key, path)
    if topic_id == ZERO_UUID:
        raise CorruptNodeFile(f"{path}: topic_id is zero, which no topic has")
    return PartitionMetadata(TopicId(topic_id))


def read_partition_metadata(disk: Disk, path: str) -> PartitionMetadata:
    return decode_partition_metadata(disk.read(path), path)


def write_partition_metadata(disk: Disk, path: str, metadata: PartitionMetadata) -> None:
    write_atomically(disk, path, encode_partition_metadata(metadata))


# --- .kafka_cleanshutdown -------------------------------------------------------------------


def encode_clean_shutdown(shutdown: CleanShutdown) -> bytes:
    fields = {"version": 0, "brokerEpoch": shutdown.broker_epoch}
    return json.dumps(fields, separators=(",", ":")).encode("ascii")


def decode_clean_shutdown(data: bytes) -> CleanShutdown:
    """That the file is there is the statement; older Kafkas left it empty."""
    try:
        fields = json.loads(data)
    except ValueError:
        return CleanShutdown()
    epoch = fields.get("brokerEpoch") if isinstance(fields, dict) else None
    return CleanShutdown(BrokerEpoch(epoch)) if type(epoch) is int else CleanShutdown()


def read_clean_shutdown(disk: Disk, path: str) -> CleanShutdown | None:
    """None if there is no such file: the logs have to be recovered."""
    try:
        return decode_clean_shutdown(disk.read(path))
    except FileNotFoundError:
        return None


def write_clean_shutdown(disk: Disk, path: str, shutdown: CleanShutdown) -> None:
    write_atomically(disk, path, encode_clean_shutdown(shutdown))
