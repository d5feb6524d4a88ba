"""Voters and identities that make no sense are refused where they are made."""

from __future__ import annotations

import pytest
from raft_transcript import key, voters

from tidelog.controller.raft.model import Identity, Voters
from tidelog.kernel.ids import NodeId


def test_voters_are_ordered_and_counted() -> None:
    three = Voters.of([key("3A"), key("1A"), key("2A"), key("1A")])
    assert three == voters("1A,2A,3A")
    assert (len(three), three.majority) == (3, 2)
    assert three.plus(key("4A")).majority == 3
    assert three.minus(key("2A")) == voters("1A,3A")
    assert three.of_node(NodeId(2)) == key("2A")
    assert three.of_node(NodeId(9)) is None


@pytest.mark.parametrize(
    ("some", "is_majority"),
    [("1A", False), ("1A,2A", True), ("1A,2B", False), ("7A,8A,9A", False), ("1A,2A,3A", True)],
)
def test_a_majority_counts_directories_not_nodes(some: str, is_majority: bool) -> None:
    assert voters("1A,2A,3A").are_majority(voters(some)) is is_majority


def test_nobody_is_a_majority_of_nobody() -> None:
    assert not Voters(()).are_majority([])


def test_a_node_votes_with_one_directory() -> None:
    with pytest.raises(ValueError, match="one directory only"):
        Voters.of([key("1A"), key("1B")])


@pytest.mark.parametrize("ids", [(2, 1), (1, 1, 2)])
def test_configured_voters_are_sorted_and_distinct(ids: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="sorted and distinct"):
        Identity(key("1A"), "c", tuple(map(NodeId, ids)))
