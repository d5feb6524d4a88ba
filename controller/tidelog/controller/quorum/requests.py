"""Requests to change the voters or the leader, and refusals, in words for the caller."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tidelog.controller.quorum.errors import IN_WORDS, RequestRefused
from tidelog.controller.quorum.interface import NotController, QuorumOverloaded
from tidelog.controller.raft.effects import RejectReason
from tidelog.kernel.ids import NodeId


@dataclass(frozen=True, slots=True)
class _Request:
    what: str
    answer: asyncio.Future[None]


class Requests:
    """Each request has a number; its future is done when the machine has answered."""

    def __init__(self) -> None:
        self._last_id = 0
        self._open: dict[int, _Request] = {}

    def begin(self, what: str) -> tuple[int, asyncio.Future[None]]:
        self._last_id += 1
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open[self._last_id] = _Request(what, answer)
        return self._last_id, answer

    def done(self, request_id: int) -> None:
        request = self._open.pop(request_id, None)
        if request is not None and not request.answer.done():
            request.answer.set_result(None)

    def rejected(self, request_id: int, reason: RejectReason, leader_id: NodeId | None) -> None:
        request = self._open.pop(request_id, None)
        if request is None or request.answer.done():
            return
        if reason is RejectReason.NOT_LEADER:
            text = f"{request.what}: {IN_WORDS[reason]}"
            request.answer.set_exception(NotController(leader_id, text))
        else:
            request.answer.set_exception(RequestRefused(reason, request.what))

    def fail_all(self, why: str) -> None:
        for request in self._open.values():
            if not request.answer.done():
                request.answer.set_exception(NotController(None, f"{request.what}: {why}"))
        self._open.clear()


def refusal(reason: RejectReason, leader_id: NodeId | None, count: int) -> Exception:
    """Why a proposal of so many records was not taken."""
    match reason:
        case RejectReason.OVERLOADED:
            return QuorumOverloaded("more is proposed than the quorum commits")
        case RejectReason.TOO_LARGE:
            return ValueError(f"a batch of {count} records is too large for the metadata log")
        case _:
            return NotController(leader_id, f"the proposal was refused: {IN_WORDS[reason]}")
