"""AddRaftVoter and RemoveRaftVoter as clients send them (KIP-853).

A voter is a node and its directory. One that is added must already follow the metadata log; where
it listens is known from its registration or from the configured list of voters, so that the
listeners of the request are not needed.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from tidelog.controller.decisions.outcome import NO_ERROR, ApiError
from tidelog.controller.quorum.errors import RequestRefused
from tidelog.controller.raft.model import ReplicaKey
from tidelog.controller.service.admin_codec import Reply
from tidelog.controller.service.controller import Controller
from tidelog.controller.service.refusals import error_of_change
from tidelog.kernel.ids import DirectoryId, NodeId
from tidelog.wire.protocol.kio_values import from_kio_uuid


async def add_raft_voter(controller: Controller, request: Any, reply: Reply, who: str) -> bytes:
    error = await _changed(controller.quorum.add_voter(_voter(request)))
    return reply.body(error=error)


async def remove_raft_voter(controller: Controller, request: Any, reply: Reply, who: str) -> bytes:
    error = await _changed(controller.quorum.remove_voter(_voter(request)))
    return reply.body(error=error)


def _voter(request: Any) -> ReplicaKey:
    directory = DirectoryId(from_kio_uuid(request.voter_directory_id))
    return ReplicaKey(NodeId(int(request.voter_id)), directory)


async def _changed(change: Awaitable[None]) -> ApiError:
    try:
        await change
    except RequestRefused as refused:
        return error_of_change(refused)
    return NO_ERROR
