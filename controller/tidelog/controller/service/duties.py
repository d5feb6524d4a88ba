"""What the active controller does without being asked.

Two loops. One watches over the brokers: it ticks the liveness machine on every controller, active
or not, and has those that are lost fenced. The other keeps house at fixed intervals, while active:
it gives leadership back to preferred replicas, looks for leaderless partitions that may now have a
leader, writes off replicas that were away for too long, and keeps an idle log moving.

Nobody is judged before what arrived meanwhile has been heard (DESIGN 2.3): a tick first forgives
its own lateness, and if somebody would be lost, the loop gets a few turns, and after a stall some
time, to bring in what waits. Fencing runs in tasks of its own, so that a slow commit never delays
a tick, which would look like a stall.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelog.controller.decisions.broker_states import FencingAnswer, decide_fencing
from tidelog.controller.decisions.leaders import Progress, decide_balancing, decide_leaderless
from tidelog.controller.decisions.outcome import Decision, Draft
from tidelog.controller.decisions.restart_empty import decide_restart_empty
from tidelog.controller.liveness import BrokerLost, Tick
from tidelog.controller.metadata.records import NoOp
from tidelog.controller.quorum.interface import NotController, QuorumOverloaded
from tidelog.controller.service.absences import replicas_to_restart
from tidelog.controller.service.controller import Basis, Cause, Controller
from tidelog.kernel.ids import NodeId

TICK_MS: Final = 250.0
"""The longest time between two ticks; deadlines are met exactly. It is shorter than the grace of a
stream, so that a deadline that comes up between two ticks is seen in time."""
_SHORTEST_TICK_MS: Final = 100.0
LATE_MS: Final = 50.0
"""A tick that is later than this shows that the loop was stalled."""
DRAIN_MS: Final = 50.0
"""What arrived during a stall gets this long to be handed in."""
DRAIN_TURNS: Final = 5
RETRY_MS: Final = 50.0
ABSENCE_CHECK_MS: Final = 60_000.0
MAX_RESTARTS_PER_CHECK: Final = 1000

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Chore:
    """Something done once per interval."""

    interval_ms: float
    do: Callable[[], bool]
    """Returns whether all was done; if not, it is done again soon."""
    due_ms: float = 0.0


class Duties:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._clock = controller.clock
        self._fencing: dict[NodeId, asyncio.Task[None]] = {}
        settings = controller.policy.settings
        grace_ms = float(settings.get_int("broker.stream.grace.ms"))
        self._tick_ms = min(TICK_MS, max(grace_ms, _SHORTEST_TICK_MS))
        self._idle_ms = float(settings.get_int("metadata.max.idle.interval.ms"))
        self._absence_ms = float(settings.get_int("compaction.absent.replica.max.ms"))
        self._chores = [
            _Chore(min(ABSENCE_CHECK_MS, self._absence_ms), self._write_off_absent),
            _Chore(settings.get_int("unclean.leader.election.interval.ms"), self._help_leaderless),
        ]
        if settings.get_bool("auto.leader.rebalance.enable"):
            seconds = settings.get_int("leader.imbalance.check.interval.seconds")
            self._chores.append(_Chore(seconds * 1000.0, self._balance))

    async def run(self) -> None:
        """Until cancelled; a defect in a decision ends it, and the node with it."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_brokers(tasks), name="watch over brokers")
            tasks.create_task(self._keep_house(), name="keep house")

    # Brokers.

    async def _watch_brokers(self, tasks: asyncio.TaskGroup) -> None:
        liveness = self._controller.liveness
        due_ms = self._clock.monotonic_ms()
        while True:
            for lost in await self._tick(due_ms):
                self._begin_to_fence(lost, tasks)
            now_ms = self._clock.monotonic_ms()
            deadline_ms = liveness.next_deadline_ms()
            due_ms = now_ms + self._tick_ms
            if deadline_ms is not None:
                due_ms = min(due_ms, max(deadline_ms, now_ms + 1))
            if await self._wait_for_election((due_ms - now_ms) / 1000):
                due_ms = self._clock.monotonic_ms()

    async def _wait_for_election(self, timeout_s: float) -> bool:
        """Whether this node was elected; what it noted as a standby is then judged at once."""
        activated = self._controller.activated
        try:
            async with asyncio.timeout(timeout_s):
                await activated.wait()
        except TimeoutError:
            return False
        activated.clear()
        return True

    async def _tick(self, due_ms: float) -> list[BrokerLost]:
        liveness = self._controller.liveness
        now_ms = self._clock.monotonic_ms()
        liveness.step(now_ms, Tick(due_ms, drained=False))
        deadline_ms = liveness.next_deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return []
        drained_ms = await self._drain(is_late=now_ms - due_ms > LATE_MS)
        return liveness.step(self._clock.monotonic_ms(), Tick(drained_ms, drained=True))

    async def _drain(self, *, is_late: bool) -> float:
        """Let in what waits; when that should have been done, for the next tick."""
        for _ in range(DRAIN_TURNS):
            await asyncio.sleep(0)
        due_ms = self._clock.monotonic_ms()
        if is_late:
            due_ms += DRAIN_MS
            await asyncio.sleep(DRAIN_MS / 1000)
        return due_ms

    def _begin_to_fence(self, lost: BrokerLost, tasks: asyncio.TaskGroup) -> None:
        if lost.broker in self._fencing:
            return
        task = tasks.create_task(self._fence(lost), name=f"fence broker {lost.broker}")
        self._fencing[lost.broker] = task
        task.add_done_callback(lambda _: self._fencing.pop(lost.broker, None))

    async def _fence(self, lost: BrokerLost) -> None:
        def decide(basis: Basis) -> Decision[FencingAnswer]:
            return decide_fencing(basis.image, basis.policy, lost.broker, lost.epoch)

        cause = Cause(f"fence broker {lost.broker}", lost.reason.value)
        is_fenced = False
        began_ms = self._clock.monotonic_ms()
        while not is_fenced:
            try:
                is_fenced = (await self._controller.change(cause, decide)).is_complete
            except QuorumOverloaded:
                await asyncio.sleep(RETRY_MS / 1000)
            except NotController:
                return  # the next active controller has its own notes
        took_ms = self._clock.monotonic_ms() - began_ms
        self._controller.meters.failover_durations_ms.observe(took_ms)

    # House.

    async def _keep_house(self) -> None:
        was_active = False
        while True:
            now_ms = self._clock.monotonic_ms()
            is_active = self._controller.is_active
            self._controller.absences.observe(now_ms, self._controller.committed)
            for chore in self._chores:
                if is_active and not was_active:
                    chore.due_ms = now_ms + chore.interval_ms
            was_active = is_active
            if is_active:
                self._do_chores(now_ms)
            await asyncio.sleep(self._pause_ms(now_ms) / 1000)

    def _pause_ms(self, now_ms: float) -> float:
        """At most a second, so that an election is noticed; never a busy loop."""
        dues: list[float] = []
        if self._controller.is_active:
            dues += [chore.due_ms for chore in self._chores]
            if self._idle_ms:
                dues.append(self._controller.last_proposed_ms + self._idle_ms)
        return max(1.0, min([1000.0, *(due - now_ms for due in dues)]))

    def _do_chores(self, now_ms: float) -> None:
        try:
            for chore in self._chores:
                if now_ms >= chore.due_ms:
                    is_done = chore.do()
                    chore.due_ms = now_ms + (chore.interval_ms if is_done else RETRY_MS)
            if self._idle_ms and now_ms >= self._controller.last_proposed_ms + self._idle_ms:
                self._write_idle_record()
        except (NotController, QuorumOverloaded) as error:
            _log.debug("put off a chore: %s", error)

    def _write_idle_record(self) -> None:
        cause = Cause("write a record that does nothing", "the log was idle", is_routine=True)
        self._controller.decide(cause, lambda _: Decision((NoOp(),), None))

    def _balance(self) -> bool:
        def decide(basis: Basis) -> Decision[Progress]:
            return decide_balancing(basis.image, basis.policy)

        cause = Cause("give leadership to preferred replicas", "leaders are checked for balance")
        return self._controller.decide(cause, decide).response.is_complete

    def _help_leaderless(self) -> bool:
        def decide(basis: Basis) -> Decision[Progress]:
            return decide_leaderless(basis.image, basis.policy)

        cause = Cause("elect leaders of leaderless partitions", "settings may now allow it")
        return self._controller.decide(cause, decide).response.is_complete

    def _write_off_absent(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        absent = self._controller.absences.longer_than(now_ms, self._absence_ms)
        cause = Cause(
            f"let replicas on brokers {absent} restart empty",
            f"these were away for {self._absence_ms:.0f} ms and hold compaction back",
        )
        decision = self._controller.decide(cause, lambda basis: _restarts(basis, absent))
        return decision.response.is_complete


def _restarts(basis: Basis, absent: list[NodeId]) -> Decision[Progress]:
    draft, left = Draft(basis.image), MAX_RESTARTS_PER_CHECK
    for broker in absent:
        for ref in replicas_to_restart(basis.image, basis.policy, broker):
            if left == 0:
                return Decision(tuple(draft.records), Progress(is_complete=False))
            left -= 1
            draft.add(decide_restart_empty(draft.image, basis.policy, ref, broker).records)
    return Decision(tuple(draft.records), Progress(is_complete=True))
