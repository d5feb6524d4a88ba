"""What the quorum refuses, and why a member of it stops."""

from __future__ import annotations

from tidelog.controller.raft.effects import RejectReason


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
        super().__init__(f"{what}: {reason.value}")
        self.reason = reason


def _what_to_do(directory: str) -> str:
    return (
        "If a majority of the controllers is sound without this node, move"
        f" {directory} away and start with an empty directory: the node then joins as a new"
        " voter, which has to be added to the quorum in place of the old one. Otherwise restore"
        " the directory from a copy"
    )
