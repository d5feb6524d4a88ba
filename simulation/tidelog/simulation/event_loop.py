"""An asyncio event loop on which time passes only when nothing else is left to do.

Theory: all that makes a run of asyncio differ from the next is real time, I/O, threads, and
sets of tasks that are iterated in the order of their addresses. Here the loop jumps to the
next timer instead of waiting, there is no I/O and no thread, and tasks and futures are hashed
by the order in which they were made. What is left depends on the seed alone, so a run can be
repeated in another process and under another ``PYTHONHASHSEED``.

With a ``Random`` for ``shuffle`` the tasks that are ready at one moment run in a drawn order.
Other callbacks keep their places, because asyncio promises that ``call_soon`` is first come,
first served, and protocols rely on it.

Callbacks and tasks that belong to a ``SimProcess`` run only while that process does.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import math
from asyncio import format_helpers
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final, TypeVar, TypeVarTuple

from tidelog.simulation.clock import SimClock
from tidelog.simulation.handles import SimHandle, SimTimerHandle
from tidelog.simulation.processes import CURRENT_PROCESS, process_of
from tidelog.simulation.random import SimRandom

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_SAME_MOMENT_S: Final = 1e-9
_MANY_TIMERS: Final = 100
_MANY_CANCELLED: Final = 0.5


class Deadlock(RuntimeError):
    """Every task waits, and no timer is set that could ever wake one."""


class TimeLimitExceeded(RuntimeError):
    """The simulation went on for longer, in virtual time, than it was allowed to."""


class _VirtualTask(asyncio.Task[T]):
    def __init__(self, coro: Any, *, loop: VirtualEventLoop, **options: Any) -> None:
        # asyncio registers the task, and so hashes it, while it is being initialised.
        self._sequence = loop.next_sequence()
        context = options.get("context")
        self.process = CURRENT_PROCESS.get() if context is None else context.get(CURRENT_PROCESS)
        if options.get("name") is None:
            # Default names are numbered per process, which would differ between two runs.
            options["name"] = f"task-{self._sequence}"
        super().__init__(coro, loop=loop, **options)

    def __hash__(self) -> int:
        return self._sequence


class _VirtualFuture(asyncio.Future[T]):
    __slots__ = ("_sequence",)
    _sequence: int  # set by the loop: a call of __init__ for every future is dear

    def __hash__(self) -> int:
        return self._sequence


class VirtualEventLoop(asyncio.BaseEventLoop):
    """The loop of a simulation. ``time()`` starts at 0."""

    _ready: deque[Any]  # asyncio's queue of handles that run next
    _scheduled: list[tuple[float, SimTimerHandle]]  # asyncio's heap of timers
    _timer_cancelled_count: int
    _stopping: bool

    def __init__(self, *, shuffle: SimRandom | None = None, time_limit_s: float = math.inf) -> None:
        self._sequence = 0
        self._now_s = 0.0
        self._time_limit_s = time_limit_s
        self._shuffle = shuffle
        self._unfinished: set[asyncio.Task[Any]] = set()
        self._watcher: Callable[[], None] | None = None
        super().__init__()

    def time(self) -> float:
        return self._now_s

    def elapsed_ms(self) -> float:
        return self._now_s * 1000.0

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def watch(self, watcher: Callable[[], None] | None) -> None:
        """Have this called whenever all that was due at one moment has been done.

        Outside of all processes; what it raises ends the run.
        """
        self._watcher = watcher

    def pass_time(self) -> None:
        """Jump to the next timer."""
        if self._watcher is not None:
            self._watcher()
        self._now_s = max(self._now_s, self._scheduled[0][0])
        if self._now_s > self._time_limit_s:
            limit = f"{self._time_limit_s} s of virtual time are over"
            raise TimeLimitExceeded(f"{limit}; {self.describe_waiting()}")

    def describe_waiting(self) -> str:
        tasks = sorted(asyncio.all_tasks(self), key=hash)
        names = ", ".join(task.get_name() for task in tasks)
        return f"at {self._now_s:.3f} s these tasks wait: {names or 'none'}"

    def create_future(self) -> asyncio.Future[Any]:
        future: _VirtualFuture[Any] = _VirtualFuture(loop=self)
        self._sequence = future._sequence = self._sequence + 1
        return future

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        text = None if name is None else str(name)
        task: _VirtualTask[T] = _VirtualTask(coro, loop=self, name=text, context=context, **options)
        # asyncio holds tasks weakly: one that waits for something nobody else holds would end
        # whenever the garbage collector comes by, which no seed decides.
        self._unfinished.add(task)
        task.add_done_callback(self._unfinished.discard, context=contextvars.Context())
        return task

    def unfinished_tasks(self) -> list[asyncio.Task[Any]]:
        """In no order. asyncio would look through the tasks of all loops."""
        return [task for task in self._unfinished if not task.done()]

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        timer: SimTimerHandle = SimTimerHandle()
        timer._loop = self
        timer._callback = callback
        timer._args = args
        timer._context = contextvars.copy_context() if context is None else context
        timer._cancelled = False
        timer._when = when
        timer._scheduled = True
        heapq.heappush(self._scheduled, (when, timer))
        return timer

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        handle: SimHandle = SimHandle()
        handle._callback = callback
        handle._args = args
        handle._context = contextvars.copy_context() if context is None else context
        handle._cancelled = False
        self._ready.append(handle)
        return handle

    def release_all(self) -> None:
        """Let every stopped process go on, so that the run can be wound up."""
        for task in sorted(asyncio.all_tasks(self), key=hash):
            if (process := process_of(task)) is not None:
                process.resume()

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        raise RuntimeError("there are no threads in a simulation: use the Offload port")

    def _run_once(self) -> None:
        """What asyncio does here, in the same order, without files to poll."""
        ready = self._ready
        if self._shuffle is not None and len(ready) > 1:
            self._shuffle_ready_tasks(self._shuffle)
        scheduled = self._scheduled
        if scheduled and (scheduled[0][1]._cancelled or len(scheduled) > _MANY_TIMERS):
            self._forget_cancelled_timers()
        if not ready and not self._stopping:
            if not self._scheduled:
                raise Deadlock(self.describe_waiting())
            if self._scheduled[0][0] > self._now_s:
                self.pass_time()
        scheduled, end_s = self._scheduled, self._now_s + _SAME_MOMENT_S
        while scheduled and scheduled[0][0] < end_s:
            timer = heapq.heappop(scheduled)[1]
            timer._scheduled = False
            ready.append(timer)
        self._run_ready(len(ready))

    def _forget_cancelled_timers(self) -> None:
        """As rarely as asyncio: this is part of what orders the timers of one moment."""
        scheduled = self._scheduled
        if len(scheduled) > _MANY_TIMERS and (
            self._timer_cancelled_count / len(scheduled) > _MANY_CANCELLED
        ):
            for _, timer in scheduled:
                timer._scheduled = not timer._cancelled
            self._scheduled = [due for due in scheduled if not due[1]._cancelled]
            heapq.heapify(self._scheduled)
            self._timer_cancelled_count = 0
            return
        while scheduled and scheduled[0][1]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)[1]._scheduled = False

    def _run_ready(self, count: int) -> None:
        """The callbacks that are ready now, but not those that they make ready."""
        take = self._ready.popleft
        for _ in range(count):
            handle = take()
            if handle._cancelled:
                continue
            process = handle._context.get(CURRENT_PROCESS)
            if process is None or process.admits(handle):
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._report(handle, error)
        handle = None  # no cycle with the traceback of an exception

    def _report(self, handle: Any, error: BaseException) -> None:
        source = format_helpers._format_callback_source(handle._callback, handle._args)
        message = f"Exception in callback {source}"
        self.call_exception_handler({"message": message, "exception": error, "handle": handle})

    def _shuffle_ready_tasks(self, random: SimRandom) -> None:
        ready = self._ready
        places = [index for index, handle in enumerate(ready) if _steps_a_task(handle)]
        if len(places) > 1:
            handles = [ready[place] for place in places]
            random.shuffle(handles)
            for place, handle in zip(places, handles, strict=True):
                ready[place] = handle

    def _write_to_self(self) -> None:
        """Nobody has to be woken from a poll that does not wait."""


def _steps_a_task(handle: Any) -> bool:
    callback = handle._callback
    return isinstance(getattr(callback, "__self__", None), asyncio.Task)


@dataclass(frozen=True, slots=True)
class World:
    """What a simulation is given: its loop, the true time and the source of all chance."""

    loop: VirtualEventLoop
    clock: SimClock
    random: SimRandom


def run_simulation(
    main: Callable[[World], Coroutine[Any, Any, T]],
    seed: int,
    *,
    shuffle: bool = True,
    time_limit_s: float = math.inf,
) -> T:
    """Run ``main`` to its end on a virtual loop and return its result.

    An exception that a forgotten task died of, or that a callback raised, fails the run when
    ``main`` ends without one of its own (provided asyncio has noticed it by then).
    """
    random = SimRandom(seed)
    order = random.fork("ready tasks") if shuffle else None
    loop = VirtualEventLoop(shuffle=order, time_limit_s=time_limit_s)
    unhandled: list[BaseException] = []

    def note_unhandled(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(error := context.get("exception"), BaseException):
            unhandled.append(error)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(note_unhandled)
    world = World(loop, SimClock(elapsed_ms=loop.elapsed_ms), random)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        try:
            result = runner.run(main(world))
        finally:
            loop.release_all()
    if unhandled:
        raise unhandled[0]
    return result
