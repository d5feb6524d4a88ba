"""What the quorum refuses, and why a member of it stops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelog.controller.raft.effects import RejectReason

IN_WORDS: Final[Mapping[RejectReason, str]] = {
    RejectReason.NOT_LEADER: "this node does not lead the quorum",
    RejectReason.TRANSFERRING: "the leader is handing over to another controller; ask again",
    RejectReason.TOO_LARGE: "it is too large for one batch of the metadata log",
    RejectReason.OVERLOADED: "more is proposed than the quorum commits; ask again",
    RejectReason.NOT_ESTABLISHED: "the leader was elected a moment ago and does not know yet what"
    " is committed; ask again",
    RejectReason.CHANGE_IN_PROGRESS: "another change of the voters is under way; wait for its end",
    RejectReason.ALREADY_VOTER: "this controller, with this directory, is a voter already",
    RejectReason.NODE_ALREADY_VOTES: "a controller of this id is a voter with another directory;"
    " remove that voter first",
    RejectReason.NOT_A_VOTER: "no voter has this id and this directory",
    RejectReason.UNKNOWN_LEARNER: "no controller of this id and directory follows the metadata"
    " log; start it, then ask again",
    RejectReason.LAST_VOTER: "it is the only voter; add another one first",
    RejectReason.CATCH_UP_TIMED_OUT: "the controller did not catch up with the metadata log in"
    " time; see whether it runs, then ask again",
    RejectReason.TRANSFER_TIMED_OUT: "the other controller did not take over in time; this one"
    " goes on to lead",
}
"""For whoever asked: what stands in the way, and what to do about it."""


class RefusedToStart(Exception):
    """The metadata on disk cannot be trusted; to start with less would be to forget topics.

    Brokers delete the data of topics that are gone, so damage must never look like an empty
    cluster (hazard 15). The message says what is wrong, where, and what can be done.
    """

    def __init__(self, problem: str, directory: str) -> None:
        super().__init__(f"{problem}. {_what_to_do(directory)}")


class RequestRefused(Exception):
    """A change of the voters or a hand-over that will not happen; nothing was changed."""

    def __init__(self, reason: RejectReason, what: str) -> None:
        super().__init__(f"{what}: {IN_WORDS[reason]}")
        self.reason = reason


def _what_to_do(directory: str) -> str:
    return (
        "If a majority of the controllers is sound without this node, move"
        f" {directory} away and start with an empty directory: the node then joins as a new"
        " voter, which has to be added to the quorum in place of the old one. Otherwise restore"
        " the directory from a copy"
    )
