"""``quorum-state``: what is written comes back, and what was damaged is refused by name."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.controller.quorum import RefusedToStart
from tidelog.controller.quorum.quorum_state import (
    CorruptQuorumState,
    decode_quorum_state,
    encode_quorum_state,
    read_quorum_state,
    write_quorum_state,
)
from tidelog.controller.raft.model import MAX_TERM, PersistentState, ReplicaKey, Term, Voters
from tidelog.kernel.ids import DirectoryId, NodeId, Uuid
from tidelog.simulation import CrashAt, SimDisk, SimRandom, SimulatedCrash

keys = st.builds(
    lambda node, raw: ReplicaKey(NodeId(node), DirectoryId(Uuid(raw))),
    st.integers(0, 2**31 - 1),
    st.binary(min_size=16, max_size=16),
)
states = st.builds(
    PersistentState,
    st.integers(0, MAX_TERM).map(Term),
    st.none() | keys,
    st.none() | st.lists(keys, unique_by=lambda key: key.node_id, max_size=5).map(Voters.of),
    st.booleans(),
)


def key(number: int) -> ReplicaKey:
    return ReplicaKey(NodeId(number), DirectoryId(Uuid(bytes([number] * 16))))


VOTED = PersistentState(Term(7), key(2), Voters.of([key(1), key(2)]), True)


@settings(derandomize=True, max_examples=100)
@given(states)
def test_a_state_comes_back_as_it_was_written(state: PersistentState) -> None:
    assert decode_quorum_state(encode_quorum_state(state)) == state


def test_the_line_has_the_names_that_kafka_uses() -> None:
    line = json.loads(encode_quorum_state(VOTED))
    assert line["leaderId"] == -1
    assert line["leaderEpoch"] == 7
    assert (line["votedId"], line["votedDirectoryId"]) == (2, "AgICAgICAgICAgICAgICAg")
    assert line["data_version"] == 1


@settings(derandomize=True, max_examples=200)
@given(st.data())
def test_no_single_bit_can_change_unnoticed(data: st.DataObject) -> None:
    encoded = bytearray(encode_quorum_state(VOTED))
    at = data.draw(st.integers(0, len(encoded) - 2))  # the line's end says nothing
    encoded[at] ^= 1 << data.draw(st.integers(0, 7))
    with suppress(CorruptQuorumState):
        assert decode_quorum_state(bytes(encoded)) == VOTED  # white space, for example


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: b"", "no JSON"),
        (lambda data: data[: len(data) // 2], "no JSON"),
        (lambda data: bytes(len(data)), "no JSON"),
        (lambda data: b"[1]\n", "no JSON object"),
        (lambda data: data.replace(b'"leaderEpoch":7', b'"leaderEpoch":6'), "checksum"),
        (lambda data: b'{"leaderEpoch":7}', "checksum"),
        (lambda data: b"x" * (2 << 20), "bytes"),
    ],
)
def test_a_damaged_file_stops_the_node_and_says_what_to_do(damage: object, why: str) -> None:
    disk = SimDisk()
    disk.make_dirs("/d")
    assert callable(damage)
    file = disk.open("/d/quorum-state", create=True)
    file.pwrite(damage(encode_quorum_state(VOTED)), 0)
    with pytest.raises(RefusedToStart, match=why) as refused:
        read_quorum_state(disk, "/d")
    assert "/d/quorum-state" in str(refused.value)
    assert "move /d away" in str(refused.value)


def test_a_directory_that_was_never_used_has_no_state() -> None:
    disk = SimDisk()
    disk.make_dirs("/d")
    assert read_quorum_state(disk, "/d") is None


def test_after_a_crash_at_any_operation_it_is_the_old_state_or_the_new() -> None:
    old, new = PersistentState(Term(6)), VOTED
    for nth in range(1, 20):
        disk = SimDisk()
        disk.make_dirs("/d")
        disk.sync_dir("/")
        write_quorum_state(disk, "/d", old)
        disk.on_operation(CrashAt(nth))
        try:
            write_quorum_state(disk, "/d", new)
        except SimulatedCrash:
            for draw in range(5):
                survivor = disk.power_loss(SimRandom(draw))
                assert read_quorum_state(survivor, "/d") in (old, new)
        else:
            assert nth > 4
            assert read_quorum_state(disk.power_loss(SimRandom(1)), "/d") == new
            return
    pytest.fail("the write has no end")
