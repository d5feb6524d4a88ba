"""Where a simulated client finds its coordinator, and what its answers mean for finding it.

Owner: one client. A coordinator that does not answer, or says that it is none, is looked for anew
with the next request.
"""

from __future__ import annotations

from typing import Any, Final

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.errors import ErrorCode
from tidelog.simulation import group_messages
from tidelog.simulation.sim_client import NoAnswer, NotSent, SimKafkaClient

E = ErrorCode
ELSEWHERE: Final = frozenset(
    {E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS}
)
"""Somebody else coordinates, or will, or this one soon."""


class Coordinator:
    """Of a group or a transactional id."""

    def __init__(self, client: SimKafkaClient, key_type: int, key: str) -> None:
        self._client = client
        self._key_type, self._key = key_type, key
        self.node: int | None = None

    async def ask(self, request: Any, timeout_s: float) -> Any:
        """``NotSent`` if there is no coordinator, ``NoAnswer`` if it does not answer."""
        if self.node is None:
            self.node = await self._find()
        try:
            return await self._client.call(self.node, request, timeout_s)
        except NoAnswer:
            self.node = None
            raise

    def heard(self, code: ErrorCode) -> None:
        """An answer had this code."""
        if code in ELSEWHERE:
            self.node = None

    async def _find(self) -> int:
        request = group_messages.find_coordinator(self._key_type, self._key)
        try:
            (found,) = (await self._client.call_any(request, 3.0)).coordinators
        except NoAnswer as missing:
            raise NotSent("nobody tells who coordinates") from missing
        code = ErrorCode(int(found.error_code))
        if code is not E.NONE:
            raise NotSent(f"no coordinator: {code.name}")
        node = int(found.node_id)
        self._client.note_address(node, SocketAddress(str(found.host), int(found.port)))
        return node
