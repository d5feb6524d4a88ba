"""What stops the machine. Both mean that going on could damage the log, so the node must halt."""

from __future__ import annotations


class BrokenInvariant(Exception):
    """Something happened that Raft proves impossible: two leaders of one term, a committed
    entry that a leader wants gone, a disk that confirms what was never written."""


class IllegalTransition(BrokenInvariant):
    """A change of role that the table in ``roles`` does not list."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__(f"no transition from {old} to {new}")
        self.old = old
        self.new = new
