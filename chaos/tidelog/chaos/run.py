"""A run from beginning to end: start, load, break, heal, read back, compare, write it all down.

Whatever happens under way — a fault that cannot be done, an interruption, a target that gives up —
the target is healed, the workload is stopped and the history gets its end, so that what is known
can be judged. Only the thread that calls ``run`` breaks and heals; workload and sampler have
threads of their own and share nothing with it but the recorder.
"""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from tidelog.chaos.divergence import divergences
from tidelog.chaos.faults.applying import AppliedFault, FaultImpossible, apply
from tidelog.chaos.faults.schedule import PlannedFault, counted_schedule, schedule
from tidelog.chaos.faults.view import AdminView
from tidelog.chaos.history import FaultBand, RunEnd, RunHeader
from tidelog.chaos.history_file import HistoryWriter
from tidelog.chaos.recorder import Recorder
from tidelog.chaos.run_options import RunFailed, RunOptions, RunRefused, check_options
from tidelog.chaos.run_sampler import Sampler
from tidelog.chaos.run_status import Progress, Silence, Status, Throughput, is_whole
from tidelog.chaos.run_topics import create_topics, remove_topics
from tidelog.chaos.targets.base import Target, TargetError
from tidelog.chaos.workloads.all_workloads import WORKLOADS
from tidelog.chaos.workloads.reader import UnfinishedRead
from tidelog.chaos.workloads.stage import Stage, Workload

HISTORY_NAME: Final = "history.jsonl"
_TICK_S: Final = 0.1
_UNDER_WAY_S: Final = 60.0
_FIRST_RECORDS: Final = 100
"""So many writes reach all partitions; a workload that is slow on purpose takes its time."""
_WHOLE_S: Final = 60.0
_BETWEEN_FAULTS_S: Final = 30.0
_FIND_VICTIM_S: Final = 10.0
_DRAIN_S: Final = 60.0
_READ_S: Final = 180.0
_LEAVE_S: Final = 2.0
_HURRY_S: Final = 10.0
"""What an interrupted run still gives each of its last steps."""


@dataclass(slots=True)
class RunResult:
    history: Path
    was_interrupted: bool = False
    problems: list[str] = field(default_factory=list)
    """Why the run itself is not what it should be, whatever the checkers say."""
    parts_s: dict[str, float] = field(default_factory=dict)
    """How long each part took, in their order."""


def run(
    options: RunOptions,
    target: Target,
    directory: Path,
    progress: Progress | None = None,
    interrupted: threading.Event | None = None,
) -> RunResult:
    """Raises RunRefused before anything is done, RunFailed where the target does not come up.

    Set ``interrupted`` from elsewhere (a signal handler) to have the run end early and in order.
    """
    check_options(options, target)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        writer = HistoryWriter(directory / HISTORY_NAME)
    except OSError as error:
        raise RunRefused(f"no history can be written to {directory}: {error.strerror}") from error
    result = RunResult(directory / HISTORY_NAME)
    try:
        with _started(target, result):
            return _Run(
                options,
                target,
                writer,
                result,
                progress or Silence(),
                interrupted or threading.Event(),
            ).go()
    finally:
        writer.close()


@contextmanager
def _started(target: Target, result: RunResult) -> Iterator[None]:
    began_s = time.monotonic()
    try:
        target.start()
    except TargetError as error:
        raise RunFailed(f"target {target.name} does not come up: {error}") from error
    result.parts_s["starting"] = time.monotonic() - began_s
    try:
        yield
    finally:
        began_s = time.monotonic()
        target.stop()
        result.parts_s["stopping"] = time.monotonic() - began_s


class _Run:
    def __init__(
        self,
        options: RunOptions,
        target: Target,
        writer: HistoryWriter,
        result: RunResult,
        progress: Progress,
        interrupted: threading.Event,
    ) -> None:
        self._options = options
        self._target = target
        self._result = result
        self._progress = progress
        self._interrupted = interrupted
        self._recorder = Recorder(writer.note)
        self._fault, self._healed_s = "", time.monotonic()
        self._workload = self._make_workload()
        topics = [topic.name for topic in self._workload.topics]
        self._view = AdminView(target.bootstrap, topics, self._workload.groups)
        self._sampler = Sampler(target.bootstrap, topics, self._recorder)
        self._throughput = Throughput()
        self._phase, self._phase_s, self._done = "preparing", time.monotonic(), 0
        self._plan: Sequence[PlannedFault] = ()
        self._is_started = False

    def _make_workload(self) -> Workload:
        options = self._options
        stage = Stage(
            self._target.bootstrap,
            self._recorder,
            options.seed,
            options.rate,
            options.topic_prefix,
            options.has_new_groups,
        )
        return WORKLOADS[options.workload].make(stage)

    def go(self) -> RunResult:
        options, recorder = self._options, self._recorder
        recorder.add(_header(options, self._target, self._workload))
        found: Sequence[str] = ()
        try:
            create_topics(self._target.bootstrap, self._workload.topics, len(self._target.nodes))
            self._sampler.start()
            self._workload.start()
            self._is_started = True
            self._wait_until_under_way()
            self._wait_until_got_over(_BETWEEN_FAULTS_S)
            self._break()
        finally:
            found = self._end()
            self._result.was_interrupted = self._interrupted.is_set()
            recorder.add(RunEnd(recorder.now_ms(), self._result.was_interrupted, tuple(found)))
            self._begin("over")
            self._view.close()
        return self._result

    # --- breaking ----------------------------------------------------------------------

    def _break(self) -> None:
        """The plan, each fault when its time has come and the last one is got over."""
        options = self._options
        self._begin("running")
        self._plan = self._draw_plan()
        began_s = time.monotonic()
        end_s = began_s + options.duration_s
        for planned in self._plan:
            due_s = max(began_s + planned.at_s, self._healed_s + options.calm_s[0])
            self._wait(due_s - time.monotonic())
            self._wait_until_got_over(min(_BETWEEN_FAULTS_S, end_s - time.monotonic()))
            is_late = time.monotonic() + planned.duration_s > end_s
            if self._is_over() or (is_late and self._done):  # one at least, however slow all is
                break
            self._do(planned)
        if not options.counts:
            self._wait(end_s - time.monotonic())
        if self._done < len(self._plan) and not self._interrupted.is_set():
            self._recorder.note(
                f"{len(self._plan) - self._done} of {len(self._plan)} planned faults found no time:"
                " the cluster took longer to get over those before"
            )

    def _draw_plan(self) -> Sequence[PlannedFault]:
        options, nodes = self._options, self._target.nodes
        if options.counts:
            return counted_schedule(options.seed, dict(options.counts), nodes)
        names, duration_s = options.faults, options.duration_s
        return schedule(options.seed, names, duration_s, nodes, calm_s=options.calm_s)

    def _do(self, planned: PlannedFault) -> None:
        self._fault = planned.name
        recorder = self._recorder
        band = FaultBand(planned.number, planned.name, "", (), recorder.now_ms(), None)
        try:
            began_ms, applied = self._apply(planned)
        except (FaultImpossible, TargetError) as error:
            band = replace(band, failure=str(error))
            self._progress.say(f"{planned.name} was not possible: {error}")
        else:
            self._fault = f"{planned.name} {applied.detail}"
            band = replace(band, began_ms=began_ms, detail=applied.detail, nodes=applied.nodes)
            recorder.add(band)  # in case that this process does not live to see it healed
            self._wait(planned.duration_s - (recorder.now_ms() - began_ms) / 1000)
            band = replace(band, failure=self._heal(applied))
        recorder.add(replace(band, ended_ms=recorder.now_ms()))
        self._fault, self._healed_s = "", time.monotonic()
        self._done += 1

    def _apply(self, planned: PlannedFault) -> tuple[float, AppliedFault]:
        """Again for a while if nobody knows whom it would hit: an election may be under way."""
        deadline = time.monotonic() + _FIND_VICTIM_S
        while True:
            began_ms = self._recorder.now_ms()
            try:
                return began_ms, apply(planned, self._target, self._view)
            except FaultImpossible:
                if time.monotonic() > deadline or self._is_over():
                    raise
                self._wait(_TICK_S)

    def _heal(self, applied: AppliedFault) -> str:
        try:
            applied.heal()
        except TargetError as error:
            self._problem(f"{applied.name} ({applied.detail}) was not healed: {error}")
            return str(error)
        return ""

    # --- ending ------------------------------------------------------------------------

    def _end(self) -> Sequence[str]:
        """Heals, drains, reads back and compares files; says where those differ."""
        self._begin("healing")
        try:
            self._target.heal_all()
        except TargetError as error:
            self._problem(f"the target was not healed: {error}")
        if self._is_started:
            self._quiet_down()
        self._sampler.finish(_HURRY_S)
        for failure in self._workload.failures():
            self._problem(failure)
        if self._options.removes_topics:
            for problem in remove_topics(self._target.bootstrap, self._workload.topics):
                self._recorder.note(problem)
        return self._compare_files() if self._is_started else ()

    def _quiet_down(self) -> None:
        is_hurried = self._interrupted.is_set()
        if not self._wait_until_whole(_HURRY_S if is_hurried else _WHOLE_S, is_ending=True):
            self._problem("not every replica is in sync again after all was healed")
        self._begin("draining")
        self._in_background(lambda: self._workload.stop(_HURRY_S if is_hurried else _DRAIN_S))
        self._begin("reading")
        try:
            self._in_background(lambda: self._workload.read_back(_READ_S))
        except UnfinishedRead as error:
            self._problem(f"what was written could not be read back: {error}")

    def _in_background(self, step: Callable[[], None]) -> None:
        """So that progress is shown meanwhile; what it raises is raised here."""
        failures: list[BaseException] = []

        def work() -> None:
            try:
                step()
            except Exception as error:  # whatever it is, it is raised again below
                failures.append(error)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_TICK_S)
            self._show()
        for failure in failures:
            raise failure

    def _compare_files(self) -> Sequence[str]:
        """Of nodes that have stopped; a cluster that is not ours keeps running."""
        directories = {node: self._target.log_dirs(node) for node in self._target.nodes}
        if not all(directories.values()):
            self._recorder.note("the nodes' files are out of reach, so they were not compared")
            return ()
        self._begin("comparing")
        self._show()
        try:
            self._stop_nodes()
        except TargetError as error:
            self._problem(f"the nodes' files were not compared: {error}")
            return ()
        topics = [topic.name for topic in self._workload.topics]
        return divergences(directories, topics, _compacted(self._workload))

    def _stop_nodes(self) -> None:
        """All at once, and not for long: without a quorum nobody lets the last ones go. What was
        committed until a moment ago is compared of those that are killed, too."""
        target = self._target
        with ThreadPoolExecutor(len(target.nodes)) as threads:
            ends = {node: threads.submit(target.terminate, node) for node in target.nodes}
            wait(ends.values(), timeout=_LEAVE_S)
            for node, end in ends.items():
                if not end.done():
                    target.kill(node)
        for end in ends.values():
            end.result()

    # --- waiting -----------------------------------------------------------------------

    def _wait_until_under_way(self) -> None:
        """Every partition was written to and every client was served: no start looks like a gap."""
        patience_s = _UNDER_WAY_S + _FIRST_RECORDS / self._options.rate
        deadline = time.monotonic() + patience_s
        while (missing := self._not_under_way()) and not self._interrupted.is_set():
            if failures := self._workload.failures():
                raise RunFailed("; ".join(failures))
            if time.monotonic() > deadline:
                raise RunFailed(
                    f"the workload is not under way after {patience_s:.0f} s at "
                    f"{self._target.bootstrap}: {'; '.join(missing)}"
                )
            self._wait(_TICK_S)

    def _not_under_way(self) -> Sequence[str]:
        """What it waits for, in words."""
        topics = self._workload.topics
        places = [(topic.name, p) for topic in topics for p in range(topic.partitions)]
        unwritten = [f"{topic}-{p}" for topic, p in self._recorder.unwritten(places)]
        idle = self._workload.idle()
        return [
            f"{words} {', '.join(names)}"
            for words, names in (("no write acknowledged of", unwritten), ("no success of", idle))
            if names
        ]

    def _wait_until_whole(self, patience_s: float, *, is_ending: bool = False) -> bool:
        """Until a sample that is younger than the call shows every replica in sync."""
        now_ms, deadline = self._recorder.now_ms(), time.monotonic() + patience_s
        while not is_whole(self._sampler.latest, since_ms=now_ms):
            if time.monotonic() > deadline or (self._is_over() and not is_ending):
                return False
            self._show()
            time.sleep(_TICK_S)
        return True

    def _wait_until_got_over(self, patience_s: float) -> None:
        """All replicas in sync and all partitions written to: what comes next has its own gap."""
        now_ms, deadline = self._recorder.now_ms(), time.monotonic() + patience_s
        self._wait_until_whole(patience_s)
        while not self._recorder.is_acknowledging(now_ms) and time.monotonic() < deadline:
            if self._is_over():
                return
            self._wait(_TICK_S)

    def _wait(self, for_s: float) -> None:
        """Less if the run is interrupted."""
        until_s = time.monotonic() + for_s
        while (left_s := until_s - time.monotonic()) > 0 and not self._is_over():
            self._show()
            self._interrupted.wait(min(_TICK_S, left_s))

    def _is_over(self) -> bool:
        return self._interrupted.is_set() or bool(self._workload.failures())

    # --- telling -----------------------------------------------------------------------

    def _begin(self, phase: str) -> None:
        now_s = time.monotonic()
        self._result.parts_s[self._phase] = now_s - self._phase_s
        self._phase, self._phase_s = phase, now_s

    def _problem(self, text: str) -> None:
        self._result.problems.append(text)
        self._recorder.note(text)
        self._progress.say(text)

    def _show(self) -> None:
        now_s = self._recorder.now_ms() / 1000
        totals = self._recorder.totals
        per_s = self._throughput.per_s(now_s, totals.acknowledged)
        self._progress.show(
            Status(
                self._phase,
                now_s,
                self._options.duration_s,
                per_s,
                totals,
                self._fault,
                self._done,
                len(self._plan),
                self._sampler.latest,
            )
        )


def _header(options: RunOptions, target: Target, workload: Workload) -> RunHeader:
    return RunHeader(
        seed=options.seed,
        command=options.command,
        target=target.name,
        workload=options.workload,
        faults=options.faults,
        duration_s=options.duration_s,
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
        environment={**_own_environment(), **target.environment()},
        compacted_topics=_compacted(workload),
    )


def _compacted(workload: Workload) -> tuple[str, ...]:
    return tuple(
        topic.name for topic in workload.topics if topic.settings.get("cleanup.policy") == "compact"
    )


def _own_environment() -> dict[str, str]:
    return {
        "tidelog": version("tidelog"),
        "python": platform.python_version(),
        "confluent-kafka": version("confluent-kafka"),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
