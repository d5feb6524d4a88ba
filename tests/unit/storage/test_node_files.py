"""The files that say whose a directory is: Kafka's read back, foreign and damaged ones refused."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tidelog.kernel.ids import BrokerEpoch, DirectoryId, NodeId, TimestampMs, TopicId, Uuid
from tidelog.kernel.real.disk import OsDisk
from tidelog.storage.node_files import (
    NO_DIRECTORY_ID,
    CleanShutdown,
    CorruptNodeFile,
    DuplicateDirectoryId,
    InconsistentClusterId,
    InconsistentDirectory,
    InconsistentNodeId,
    MetaProperties,
    PartitionMetadata,
    decode_clean_shutdown,
    decode_meta_properties,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_partition_metadata,
    java_date,
    read_clean_shutdown,
    read_meta_properties,
    read_partition_metadata,
    verify_same_cluster,
    write_clean_shutdown,
    write_meta_properties,
    write_partition_metadata,
)

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
DISK = OsDisk()
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
DIRECTORY = DirectoryId(Uuid.parse("foxbh5z4A1voHxjTmOYeJQ"))


def meta(node: int = 1, cluster: str = CLUSTER, directory: int = 1000) -> MetaProperties:
    return MetaProperties(cluster, NodeId(node), DirectoryId(Uuid(directory.to_bytes(16, "big"))))


# --- meta.properties --------------------------------------------------------------------------


def test_golden_meta_properties_read_back() -> None:
    files = sorted(GOLDEN.rglob("meta.properties"))
    assert len(files) == 8
    for file in files:
        found = read_meta_properties(DISK, str(file))
        assert found == MetaProperties(CLUSTER, NodeId(1), DIRECTORY, version=1)
        date = file.read_text().splitlines()[1].removeprefix("#")
        written = datetime.strptime(date, "%a %b %d %H:%M:%S UTC %Y").replace(tzinfo=UTC)
        written_ms = TimestampMs(int(written.timestamp()) * 1000)
        assert encode_meta_properties(found, written_ms) == file.read_bytes()


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [
        (0, "Thu Jan 01 00:00:00 UTC 1970"),
        (1794797783999, "Mon Nov 16 02:56:23 UTC 2026"),
        (951782400000, "Tue Feb 29 00:00:00 UTC 2000"),
    ],
)
def test_java_dates(timestamp_ms: int, expected: str) -> None:
    assert java_date(timestamp_ms) == expected


def test_meta_properties_are_written_and_read(tmp_path: Path) -> None:
    path = str(tmp_path / "meta.properties")
    with pytest.raises(FileNotFoundError):
        read_meta_properties(DISK, path)
    odd = MetaProperties("a cluster: ünïcode=\\", NodeId(7), DIRECTORY)
    write_meta_properties(DISK, path, odd)
    assert read_meta_properties(DISK, path) == odd


def test_every_flipped_bit_of_meta_properties_is_noticed_or_harmless(tmp_path: Path) -> None:
    """Found by a seed: a controller took a damaged file's cluster id for its own."""
    path = tmp_path / "meta.properties"
    write_meta_properties(DISK, str(path), meta())
    sound = path.read_bytes()
    refused = 0
    for bit in range(8 * len(sound)):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            assert read_meta_properties(DISK, str(path)) == meta()
        except CorruptNodeFile as error:
            assert str(path) in str(error)
            refused += 1
    assert refused >= 8 * (len(sound) - len("#crc32c="))


def test_meta_properties_of_apache_kafka_need_no_checksum(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_bytes(encode_meta_properties(meta()))
    assert read_meta_properties(DISK, str(path)) == meta()


def test_files_of_older_versions() -> None:
    found = decode_meta_properties(b"version=0\nbroker.id=3\ncluster.id=abc\n", "f")
    assert found == MetaProperties("abc", NodeId(3), NO_DIRECTORY_ID, version=0)
    assert decode_meta_properties(encode_meta_properties(found), "f") == found
    assert decode_meta_properties(b"version=1\nnode.id=3\ncluster.id=abc", "f").version == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "version is missing"),
        ("version=2\nnode.id=1\ncluster.id=a", "version is 2, only 0 and 1"),
        ("version=x\nnode.id=1\ncluster.id=a", "version is 'x'"),
        ("version=1\nbroker.id=1\ncluster.id=a", "node.id is missing"),
        ("version=0\nnode.id=1\ncluster.id=a", "broker.id is missing"),
        ("version=1\nnode.id=-1\ncluster.id=a", "node.id is '-1'"),
        ("version=1\nnode.id=2147483648\ncluster.id=a", "node.id is '2147483648'"),
        ("version=1\nnode.id=1", "cluster.id is missing"),
        ("version=1\nnode.id=1\ncluster.id=", "cluster.id is missing"),
        ("version=1\nnode.id=1\ncluster.id=a\ndirectory.id=x", "directory.id: 'x' is not a uuid"),
        (
            "version=1\nnode.id=1\ncluster.id=a\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ",
            "is reserved",
        ),
        ("version=1\nnode.id=\\u12", "four hexadecimal digits"),
        ("\0" * 64, "version is missing"),
    ],
)
def test_damaged_meta_properties(text: str, message: str) -> None:
    with pytest.raises(CorruptNodeFile) as caught:
        decode_meta_properties(text.encode(), "/d/meta.properties")
    assert str(caught.value).startswith("/d/meta.properties: ")
    assert message in str(caught.value)


def test_directories_of_one_node_belong_together() -> None:
    verify_same_cluster([])
    verify_same_cluster([("/a", meta(directory=1000)), ("/b", meta(directory=1001))])
    old = MetaProperties(CLUSTER, NodeId(1))
    verify_same_cluster([("/a", old), ("/b", old)])


@pytest.mark.parametrize(
    ("other", "error", "message"),
    [
        (
            meta(cluster="other", directory=1001),
            InconsistentClusterId,
            f"/b belongs to cluster other, but /a to {CLUSTER}",
        ),
        (
            meta(node=2, directory=1001),
            InconsistentNodeId,
            "/b belongs to node 2, but /a to 1",
        ),
        (meta(), DuplicateDirectoryId, "/b and /a both have the id AAAAAAAAAAAAAAAAAAAD6A"),
    ],
)
def test_foreign_directories(
    other: MetaProperties, error: type[InconsistentDirectory], message: str
) -> None:
    with pytest.raises(error) as caught:
        verify_same_cluster([("/a", meta()), ("/b", other)])
    assert str(caught.value) == message


# --- partition.metadata -----------------------------------------------------------------------


def test_golden_partition_metadata_reads_back() -> None:
    files = sorted(GOLDEN.rglob("partition.metadata"))
    assert len(files) == 197
    for file in files:
        data = file.read_bytes()
        assert encode_partition_metadata(decode_partition_metadata(data, str(file))) == data


def test_partition_metadata_is_written_and_read(tmp_path: Path) -> None:
    path = str(tmp_path / "partition.metadata")
    metadata = PartitionMetadata(TopicId(Uuid.parse("ff_IN1oXSOmRrvWQvR2xUQ")))
    write_partition_metadata(DISK, path, metadata)
    assert Path(path).read_bytes() == b"version: 0\ntopic_id: ff_IN1oXSOmRrvWQvR2xUQ"
    assert read_partition_metadata(DISK, path) == metadata
    assert decode_partition_metadata(Path(path).read_bytes() + b"\n", path) == metadata


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "line 1 is ''"),
        (b"version: 1\ntopic_id: ff_IN1oXSOmRrvWQvR2xUQ", "line 1 is 'version: 1'"),
        (b"version: 0", "one more line"),
        (b"version: 0\nid: ff_IN1oXSOmRrvWQvR2xUQ", "one more line"),
        (b"version: 0\ntopic_id: ff_IN1oXSOmRrvWQvR2xUQ\nx", "one more line"),
        (b"version: 0\ntopic_id: ff_IN", "not a uuid"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "topic_id is zero"),
        (bytes(43), "line 1"),
    ],
)
def test_damaged_partition_metadata(data: bytes, message: str) -> None:
    with pytest.raises(CorruptNodeFile, match=message):
        decode_partition_metadata(data, "/d/t-0/partition.metadata")


# --- .kafka_cleanshutdown ---------------------------------------------------------------------


def test_golden_clean_shutdown_markers_read_back() -> None:
    files = sorted(GOLDEN.rglob(".kafka_cleanshutdown"))
    assert len(files) == 13
    for file in files:
        data = file.read_bytes()
        shutdown = decode_clean_shutdown(data)
        assert shutdown.broker_epoch >= 0
        assert encode_clean_shutdown(shutdown) == data


def test_clean_shutdown_is_written_and_read(tmp_path: Path) -> None:
    path = str(tmp_path / ".kafka_cleanshutdown")
    assert read_clean_shutdown(DISK, path) is None
    write_clean_shutdown(DISK, path, CleanShutdown(BrokerEpoch(12)))
    assert Path(path).read_bytes() == b'{"version":0,"brokerEpoch":12}'
    assert read_clean_shutdown(DISK, path) == CleanShutdown(BrokerEpoch(12))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"brokerEpoch":"x"}', b"\xff", b"1"])
def test_a_marker_of_another_make_still_vouches_for_the_logs(data: bytes) -> None:
    assert decode_clean_shutdown(data) == CleanShutdown(BrokerEpoch(-1))
