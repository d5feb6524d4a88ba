"""Processes on one event loop: each can be stopped, continued and killed like a real one.

Theory: everything a node does runs in callbacks and tasks of the loop, and each of them carries
a ``contextvars`` context that its children inherit. The context says which process it belongs
to, and the virtual loop asks before it runs a callback. SIGSTOP is then what it is on a real
machine: the code of the node is not run at all, time goes on, and what fell due is run late.

A kill cannot leave coroutines half way, because Python would run their ``finally`` blocks at
some other time. They are run at once, by cancelling every task until none is left. By then the
network and the disk of the dead process must refuse everything; timers of a dead process never
fire again.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Coroutine
from contextvars import ContextVar
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from tidelog.simulation.event_loop import VirtualEventLoop

T = TypeVar("T")

_ROUNDS_TO_DIE: Final = 200
"""How often the tasks of a killed process are cancelled before that is called a defect."""

CURRENT_PROCESS: ContextVar[SimProcess | None] = ContextVar("CURRENT_PROCESS", default=None)


class SurvivedItsKill(RuntimeError):
    """A task goes on however often it is cancelled; a real process would be gone."""


class _State(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    DYING = "dying"
    DEAD = "dead"


class SimProcess:
    """One incarnation of a node: from its start to its kill."""

    def __init__(self, loop: VirtualEventLoop, host: str, incarnation: int) -> None:
        self.host = host
        self.incarnation = incarnation
        self.name = f"{host}#{incarnation}"
        self.steps = 0
        """How many of its callbacks were run; while this stays the same, nothing of it changes."""
        self._loop = loop
        self._state = _State.RUNNING
        self._held: list[asyncio.Handle] = []
        self._cancelled: list[asyncio.Task[Any]] = []
        self._context = contextvars.Context()
        self._context.run(CURRENT_PROCESS.set, self)

    @property
    def is_alive(self) -> bool:
        return self._state in (_State.RUNNING, _State.PAUSED)

    @property
    def is_paused(self) -> bool:
        return self._state is _State.PAUSED

    def start(self, work: Coroutine[Any, Any, T], name: str | None = None) -> asyncio.Task[T]:
        """Run a coroutine as part of this process, with all that it starts in turn."""
        return self._loop.create_task(work, name=name, context=self.new_context())

    def new_context(self) -> contextvars.Context:
        """For a callback that is to run as part of this process, whoever sets it."""
        return self._context.copy()

    def pause(self) -> None:
        if self._state is _State.RUNNING:
            self._state = _State.PAUSED

    def resume(self) -> None:
        if self._state is _State.PAUSED:
            self._state = _State.RUNNING
            self._release()

    def begin_to_die(self) -> None:
        """From now on it counts as dead and its tasks only unwind; ``kill`` waits for them."""
        if self.is_alive:
            self._state = _State.DYING
            self._release()
            self._cancel_all()

    async def kill(self) -> None:
        """End it now; return when nothing of it is left. To be called from outside of it."""
        self.begin_to_die()
        for _ in range(_ROUNDS_TO_DIE):
            if not self.tasks():
                break
            await asyncio.sleep(0)
            self._cancel_all()
        else:
            names = ", ".join(task.get_name() for task in self.tasks())
            raise SurvivedItsKill(f"{self.name} is dead, but these tasks go on: {names}")
        self._state = _State.DEAD
        for task in self._cancelled:
            if not task.cancelled():
                task.exception()  # what a dying task says on its way out concerns nobody
        self._cancelled.clear()

    def _cancel_all(self) -> None:
        for task in self.tasks():
            task.cancel()
            self._cancelled.append(task)

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Its unfinished tasks, in the order in which they were made."""
        tasks = self._loop.unfinished_tasks()
        return sorted([task for task in tasks if process_of(task) is self], key=hash)

    def admits(self, handle: asyncio.Handle) -> bool:
        """Whether the loop may run this callback now; a held one is run when we go on."""
        state = self._state
        if state is _State.PAUSED:
            self._held.append(handle)
            return False
        is_admitted = state is _State.RUNNING or (
            state is _State.DYING and not isinstance(handle, asyncio.TimerHandle)
        )
        self.steps += is_admitted
        return is_admitted

    def _release(self) -> None:
        held, self._held = self._held, []
        for handle in held:
            if not handle.cancelled():
                self._loop._ready.append(handle)


def process_of(task: asyncio.Task[Any]) -> SimProcess | None:
    """The process a task of the virtual loop belongs to."""
    process: SimProcess | None = getattr(task, "process", None)
    return process
