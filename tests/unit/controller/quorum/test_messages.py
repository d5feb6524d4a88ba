"""Every message of the machine goes to protobuf and comes back the same; nothing else comes in."""

from __future__ import annotations

from contextlib import suppress
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.controller.metadata.records import NoOp
from tidelog.controller.quorum.batches import records_to_data
from tidelog.controller.quorum.messages import MalformedMessage, from_proto, to_proto
from tidelog.controller.raft import messages as m
from tidelog.controller.raft.model import (
    MAX_TERM,
    Entry,
    EntryKind,
    ReplicaKey,
    SnapshotId,
    Term,
    Voters,
)
from tidelog.kernel.ids import DirectoryId, NodeId, Offset, TimestampMs, Uuid
from tidelog.v1.quorum_pb2 import QuorumMessage

directories = st.binary(min_size=16, max_size=16).map(lambda raw: DirectoryId(Uuid(raw)))
nodes = st.integers(-(2**31), 2**31 - 1).map(NodeId)
keys = st.builds(ReplicaKey, nodes, directories)
voters = st.lists(keys, unique_by=lambda key: key.node_id, min_size=1, max_size=5).map(Voters.of)
terms = st.integers(-(2**31), MAX_TERM).map(Term)
offsets = st.integers(0, 2**62).map(Offset)
positions = st.integers(-(2**63), 2**63 - 1)
snapshots = st.builds(SnapshotId, offsets, terms)
node_lists = st.lists(nodes, max_size=5).map(tuple)


def data_entry(base: Offset, term: Term, count: int) -> Entry:
    data = records_to_data([NoOp()] * count, TimestampMs(1_800_000_000_000))
    return Entry(base, Offset(base + count - 1), term, EntryKind.DATA, data)


entries = (
    st.builds(data_entry, offsets, terms, st.integers(1, 5))
    | st.builds(
        lambda base, term, found: Entry(base, base, term, EntryKind.VOTERS, voters=found),
        offsets,
        terms,
        voters,
    )
    | st.builds(
        lambda base, term, node: Entry(base, base, term, EntryKind.LEADER_CHANGE, leader_id=node),
        offsets,
        terms,
        nodes,
    )
)
BODIES = {
    m.Hello: st.builds(m.Hello, st.booleans(), st.booleans(), node_lists),
    m.HelloBack: st.builds(
        m.HelloBack, st.booleans(), st.booleans(), node_lists, st.none() | nodes
    ),
    m.VoteRequest: st.builds(m.VoteRequest, terms, offsets, st.booleans(), st.booleans()),
    m.VoteResponse: st.builds(
        m.VoteResponse, st.booleans(), st.booleans(), terms, st.none() | nodes
    ),
    m.AppendRequest: st.builds(
        m.AppendRequest,
        offsets,
        terms,
        st.lists(entries, max_size=4).map(tuple),
        offsets,
        st.booleans(),
    ),
    m.AppendAccepted: st.builds(m.AppendAccepted, offsets),
    m.AppendRejected: st.builds(m.AppendRejected, offsets, st.none() | terms, offsets),
    m.SnapshotChunk: st.builds(
        m.SnapshotChunk, snapshots, voters, positions, positions, st.binary(max_size=50)
    ),
    m.SnapshotAck: st.builds(m.SnapshotAck, snapshots, positions, st.booleans()),
    m.TimeoutNow: st.just(m.TimeoutNow()),
}


def test_every_body_is_drawn() -> None:
    assert set(BODIES) == set(get_args(m.Body))


@pytest.mark.parametrize("kind", BODIES, ids=lambda kind: kind.__name__)
def test_a_message_comes_back_as_it_was(kind: type) -> None:
    envelopes = st.builds(
        m.Envelope, st.text(max_size=30), keys, nodes, st.none() | directories, terms, BODIES[kind]
    )

    @settings(derandomize=True, max_examples=50)
    @given(envelopes)
    def check(envelope: m.Envelope) -> None:
        encoded = to_proto(envelope).SerializeToString()
        assert from_proto(QuorumMessage.FromString(encoded)) == envelope

    check()


def good(body: m.Body) -> QuorumMessage:
    key = ReplicaKey(NodeId(1), DirectoryId(Uuid(b"\x01" * 16)))
    return to_proto(m.Envelope("c", key, NodeId(2), key.directory_id, Term(3), body))


APPEND = m.AppendRequest(Offset(0), Term(0), (data_entry(Offset(0), Term(3), 2),), Offset(0))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda message: message.ClearField("append_request"),
        lambda message: message.ClearField("source"),
        lambda message: setattr(message.source, "directory_id", b"short"),
        lambda message: setattr(message, "target_directory_id", b""),
        lambda message: setattr(message.append_request.entries[0], "kind", 0),
        lambda message: setattr(message.append_request.entries[0], "kind", 99),
        lambda message: setattr(message.append_request.entries[0], "data", b"garbage"),
        lambda message: setattr(message.append_request.entries[0], "last_offset", 7),
        lambda message: setattr(message.append_request.entries[0], "leader_id", 7),
        lambda message: message.append_request.entries[0].voters.keys.add(node_id=1),
    ],
)
def test_a_message_that_says_nothing_one_can_say_is_refused(spoil: object) -> None:
    message = good(APPEND)
    from_proto(message)
    assert callable(spoil)
    spoil(message)
    with pytest.raises(MalformedMessage):
        from_proto(message)


def test_voters_that_name_a_node_twice_are_refused() -> None:
    key = ReplicaKey(NodeId(1), DirectoryId(Uuid(b"\x01" * 16)))
    message = good(m.SnapshotChunk(SnapshotId(Offset(1), Term(1)), Voters.of([key]), 0, 1, b"x"))
    message.snapshot_chunk.voters.keys.add(node_id=1, directory_id=b"\x02" * 16)
    with pytest.raises(MalformedMessage):
        from_proto(message)


@settings(derandomize=True, max_examples=200)
@given(st.binary(max_size=200))
def test_garbage_never_raises_anything_else(data: bytes) -> None:
    message = QuorumMessage()
    try:
        message.ParseFromString(data)
    except Exception:  # protobuf's own refusal is the transport's business
        return
    with suppress(MalformedMessage):
        from_proto(message)
