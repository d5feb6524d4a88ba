"""Entries as batches of the metadata log, and the control records Kafka wrote."""

from __future__ import annotations

import pytest
from golden import GOLDEN
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.controller.metadata.records import Config, MetadataRecord, NoOp
from tidelog.controller.quorum.batches import (
    batch_to_entry,
    check_data,
    control_batch,
    entry_to_batch,
    entry_to_records,
    records_to_data,
)
from tidelog.controller.quorum.control_records import (
    kraft_version_value,
    leader_change_value,
    read_leader_change,
    read_voters,
    snapshot_footer_value,
    snapshot_header_value,
    voters_value,
)
from tidelog.controller.raft.model import Entry, EntryKind, ReplicaKey, Term, Voters
from tidelog.kernel.ids import DirectoryId, NodeId, Offset, TimestampMs, Uuid
from tidelog.wire.batch import check_batch, headers
from tidelog.wire.control import ControlType
from tidelog.wire.errors import InvalidRecord, MalformedBatch
from tidelog.wire.records import decode_records

NOW = TimestampMs(1_800_000_000_000)

keys = st.builds(
    lambda node, raw: ReplicaKey(NodeId(node), DirectoryId(Uuid(raw))),
    st.integers(0, 2**31 - 1),
    st.binary(min_size=16, max_size=16),
)
voters = st.lists(keys, unique_by=lambda key: key.node_id, min_size=1, max_size=200).map(Voters.of)
offsets = st.integers(0, 2**60).map(Offset)
terms = st.integers(1, 2**31 - 1).map(Term)
records = st.lists(
    st.builds(Config, st.just(2), st.text(max_size=20), st.text(max_size=20), st.none() | st.text())
    | st.just(NoOp()),
    min_size=1,
    max_size=60,
)


def data_entry(base: Offset, term: Term, content: list[MetadataRecord]) -> Entry:
    last = Offset(base + len(content) - 1)
    return Entry(base, last, term, EntryKind.DATA, records_to_data(content, NOW))


@settings(derandomize=True, max_examples=60)
@given(offsets, terms, records)
def test_records_come_back_and_an_entry_is_the_same_after_the_disk(
    base: Offset, term: Term, content: list[MetadataRecord]
) -> None:
    entry = data_entry(base, term, content)
    batch = entry_to_batch(entry, NOW)
    header = check_batch(batch)
    assert (header.base_offset, header.leader_epoch, header.size) == (base, term, len(batch))
    assert batch_to_entry(batch, header) == entry
    assert entry_to_records(entry) == tuple(content)
    check_data(entry.data, len(content))


@settings(derandomize=True, max_examples=60)
@given(offsets, terms, voters, st.integers(0, 2**31 - 1).map(NodeId))
def test_control_entries_come_back(base: Offset, term: Term, keys: Voters, node: NodeId) -> None:
    for entry in (
        Entry(base, base, term, EntryKind.VOTERS, voters=keys),
        Entry(base, base, term, EntryKind.LEADER_CHANGE, leader_id=node),
    ):
        batch = entry_to_batch(entry, NOW)
        assert batch_to_entry(batch, check_batch(batch)) == entry


@settings(derandomize=True, max_examples=60)
@given(st.data())
def test_data_that_was_changed_on_the_way_is_refused(data: st.DataObject) -> None:
    sound = records_to_data([NoOp(), NoOp()], NOW)
    at = data.draw(st.integers(0, len(sound) - 1))
    changed = bytearray(sound)
    changed[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(MalformedBatch):
        check_data(bytes(changed), 2)


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 1),
        (b"x" * 44, 1),
        (records_to_data([NoOp()], NOW), 2),
        (records_to_data([NoOp()], NOW) + b"x", 1),
        (records_to_data([NoOp()], NOW)[:-1], 1),
        (entry_to_batch(Entry(Offset(0), Offset(0), Term(1), EntryKind.VOTERS, voters=Voters(())),
                        NOW)[16:], 1),
    ],
)  # fmt: skip
def test_data_that_is_no_batch_of_so_many_records_is_refused(data: bytes, count: int) -> None:
    with pytest.raises(MalformedBatch):
        check_data(data, count)


def test_a_leader_change_that_kafka_wrote_is_read() -> None:
    log = (GOLDEN / "metadata-log/00000000000000000000.log").read_bytes()
    found = []
    for position, header in headers(log):
        if header.is_control:
            entry = batch_to_entry(log[position : position + header.size], header)
            found.append((entry.base_offset, entry.term, entry.leader_id))
    assert found == [(0, 1, 2), (238, 2, 1), (423, 3, 2), (521, 4, 1)]


def test_header_and_footer_are_those_of_a_checkpoint_that_kafka_wrote() -> None:
    checkpoint = (GOLDEN / "segments/_logdir/run-1/bootstrap.checkpoint").read_bytes()
    batches = [(at, header) for at, header in headers(checkpoint) if header.is_control]
    first, last = [
        decode_records(checkpoint[at : at + header.size], header)[0] for at, header in batches
    ]
    assert first.value == snapshot_header_value(0)
    assert last.value == snapshot_footer_value()


def test_voters_with_endpoints_as_kafka_writes_them_are_read() -> None:
    endpoint = b"\x0bCONTROLLER" + b"\x0alocalhost" + b"\x23\x85" + b"\x00"
    voter = b"\x00\x00\x00\x05" + b"\x07" * 16 + b"\x02" + endpoint + bytes(4) + b"\x01" + b"\x00"
    value = b"\x00\x00" + b"\x02" + voter + b"\x01\x05\x02ab" + b"\x01\x00\x00"
    # Tagged fields of a later version: one inside the voter, one behind all.
    key = ReplicaKey(NodeId(5), DirectoryId(Uuid(b"\x07" * 16)))
    plain = b"\x00\x00\x02\x00\x00\x00\x05" + b"\x07" * 16 + b"\x02" + endpoint + bytes(4)
    assert read_voters(plain + b"\x00\x00\x00") == Voters.of([key])
    assert read_voters(plain + b"\x00\x01\x05\x02ab\x00") == Voters.of([key])
    with pytest.raises(InvalidRecord):
        read_voters(value[:20])


@pytest.mark.parametrize(
    "value", [None, b"", b"\x00", b"\xff\xff\x00\x00\x00\x01", b"\x00\x00\x01"]
)
def test_values_that_are_cut_off_are_refused(value: bytes | None) -> None:
    with pytest.raises(InvalidRecord):
        read_leader_change(value)


def test_every_prefix_of_the_voters_is_refused() -> None:
    value = voters_value(Voters.of([ReplicaKey(NodeId(1), DirectoryId(Uuid(b"\x01" * 16)))]))
    for length in range(len(value) - 1):
        with pytest.raises(InvalidRecord):
            read_voters(value[:length])


def test_control_records_that_are_no_entries_are_refused() -> None:
    for values in (
        [(ControlType.SNAPSHOT_FOOTER, snapshot_footer_value())],
        [(ControlType.KRAFT_VERSION, kraft_version_value())],
        [(ControlType.LEADER_CHANGE, leader_change_value(NodeId(1)))] * 2,
    ):
        batch = control_batch(values, base_offset=0, term=Term(1), now_ms=NOW)
        with pytest.raises(InvalidRecord):
            batch_to_entry(batch, check_batch(batch))
