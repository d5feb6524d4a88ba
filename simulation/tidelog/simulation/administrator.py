"""An administrator of a simulation: creates, grows, changes, moves and deletes.

Topics of its own come and go, some under the names of earlier ones (hazard 9). A request may be
carried out late, or twice, so nothing is certain about a name that was ever to be deleted. But a
topic whose creation was acknowledged, and which nobody asked to delete, is there. The topics that
producers write may be moved from broker to broker and their leaders elected anew, but keep their
data.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ports import Clock
from tidelog.simulation import kafka_messages
from tidelog.simulation.history import AdminAct, History, Outcome, PartitionName, Violation
from tidelog.simulation.random import SimRandom
from tidelog.simulation.sim_client import NoAnswer, SimKafkaClient

_TIMEOUT_MS: Final = 5_000
_CALL_TIMEOUT_S: Final = 7.0
_UNCERTAIN: Final = frozenset(
    {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)


class Administrator:
    """``run`` until ``stop``. ``topics`` is what exists, as far as it was told; None: unknown."""

    def __init__(
        self,
        client: SimKafkaClient,
        history: History,
        clock: Clock,
        random: SimRandom,
        *,
        brokers: Sequence[int],
        moved: Sequence[PartitionName],
        replication_factor: int,
    ) -> None:
        self._client = client
        self._history = history
        self._clock = clock
        self._random = random
        self._brokers = list(brokers)
        self._moved = list(moved)
        self._replication_factor = replication_factor
        self._is_stopping = False
        self._deleted: set[str] = set()
        self.topics: dict[str, int | None] = {"scratch-0": 0, "scratch-1": 0}
        """How many partitions each of its topics has; 0: there is none, None: not known."""

    def stop(self) -> None:
        self._is_stopping = True

    async def run(self) -> None:
        while not self._is_stopping:
            await asyncio.sleep(self._random.uniform(0.1, 2.0))
            await self._do_something()

    @property
    def certain(self) -> dict[str, int]:
        """Topics that must be there, and how many partitions they have at least."""
        return {n: c for n, c in self.topics.items() if c and n not in self._deleted}

    async def _do_something(self) -> None:
        if self._random.random() < 0.1:
            self.topics[f"scratch-{len(self.topics)}"] = 0
        name = self._random.choice(list(self.topics))
        count = self.topics[name]
        act = self._random.random()
        if self._moved and act < 0.35:
            await self._move(self._random.choice(self._moved))
        elif act < 0.5:
            await self._elect_or_configure(name, count)
        elif count is None or (count and act < 0.75):
            await self._delete(name, count)
        elif count == 0:
            await self._create(name)
        else:
            await self._grow(name, count)

    # --- acts --------------------------------------------------------------------------

    async def _create(self, name: str) -> None:
        count = self._random.randrange(1, 4)
        request = kafka_messages.create_topic(
            name, count, self._replication_factor, {"retention.ms": "100000"}, _TIMEOUT_MS
        )
        code = await self._ask(f"create {name} with {count}", request, lambda a: a.topics[0])
        if code is ErrorCode.TOPIC_ALREADY_EXISTS:
            self._deleted.add(name)  # by a request that was carried out late, or twice
            code = None
        self.topics[name] = count if code is ErrorCode.NONE else self._unless_certain(code, 0)

    async def _delete(self, name: str, count: int | None) -> None:
        request = kafka_messages.delete_topic(name, _TIMEOUT_MS)
        self._deleted.add(name)
        code = await self._ask(f"delete {name}", request, lambda a: a.responses[0])
        # A broker that loses its controller asks the next one, which may find it done.
        is_gone = code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.topics[name] = 0 if is_gone else self._unless_certain(code, count)

    async def _grow(self, name: str, count: int) -> None:
        request = kafka_messages.create_partitions(name, count + 1, _TIMEOUT_MS)
        code = await self._ask(f"grow {name} to {count + 1}", request, lambda a: a.results[0])
        if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name in self.certain:
            raise Violation(f"{name} is gone, although its creation was acknowledged")
        self.topics[name] = (
            count + 1 if code is ErrorCode.NONE else self._unless_certain(code, count)
        )

    async def _move(self, partition: PartitionName) -> None:
        topic, index = partition
        replicas = self._random.sample(self._brokers, self._replication_factor)
        request = kafka_messages.reassign(topic, index, replicas, _TIMEOUT_MS)
        await self._ask(
            f"move {topic}-{index} to {replicas}",
            request,
            lambda a: a.responses[0].partitions[0] if a.responses else a,
        )

    async def _elect_or_configure(self, name: str, count: int | None) -> None:
        if self._moved and self._random.random() < 0.6:
            topic, index = self._random.choice(self._moved)
            request = kafka_messages.elect_preferred(topic, index, _TIMEOUT_MS)
            await self._ask(f"elect {topic}-{index}", request, lambda a: a)
        elif count:
            value = str(self._random.randrange(1, 10) * 1_000_000)
            request = kafka_messages.set_topic_config(name, "retention.bytes", value)
            await self._ask(f"configure {name}", request, lambda a: a.responses[0])

    # --- asking ------------------------------------------------------------------------

    async def _ask(self, what: str, request: Any, row: Any) -> ErrorCode | None:
        """The error code of the answer; None if there was no answer."""
        act = AdminAct(what, self._clock.monotonic_ms())
        self._history.acts.append(act)
        try:
            answer = await self._client.call_any(request, _CALL_TIMEOUT_S)
        except NoAnswer:
            return None
        code = ErrorCode(int(row(answer).error_code))
        act.answered_ms = self._clock.monotonic_ms()
        act.error = "" if code is ErrorCode.NONE else code.name
        if code is ErrorCode.NONE:
            act.outcome = Outcome.OK
        elif code not in _UNCERTAIN:
            act.outcome = Outcome.FAILED
        return code

    def _unless_certain(self, code: ErrorCode | None, before: int | None) -> int | None:
        """What is known after a refusal: as before, if the refusal was one for sure."""
        return None if code is None or code in _UNCERTAIN else before
