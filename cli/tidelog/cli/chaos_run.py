"""``tidelog chaos run`` between its arguments and the runner: target, signals, verdict, report."""

from __future__ import annotations

import random
import re
import shlex
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Final

import typer

from tidelog.chaos.faults.schedule import CALM_S
from tidelog.chaos.faults.table import Fault
from tidelog.chaos.run import RunResult, run
from tidelog.chaos.run_options import (
    RunFailed,
    RunOptions,
    RunRefused,
    check_names,
    check_options,
    parse_counts,
    split_names,
)
from tidelog.chaos.run_progress import progress_on
from tidelog.chaos.run_summary import summarize
from tidelog.chaos.run_targets import (
    CONFIGURED,
    OWN_TARGETS,
    discard,
    make_target,
    needs_rigged_nodes,
)
from tidelog.chaos.targets.base import Target, TargetDown, TargetError
from tidelog.chaos.workloads.all_workloads import WORKLOADS
from tidelog.cli.chaos_check import judge_file, print_verdict
from tidelog.cli.chaos_summary import write_summary
from tidelog.cli.exit_codes import OK, PROBLEM
from tidelog.cli.failures import CommandFailed, WrongUse

INTERRUPTED: Final = 130
_REPORT_NAME: Final = "report.html"
_DURATION_S: Final = 90.0
_MOST_PER_FAULT_S: Final = 20.0
"""A run that counts its faults ends when they are done; this keeps one from going on for ever."""
_SHORT_CALM_S: Final = (0.3, 0.3)
_UNITS_S: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    target: str
    workload: str
    faults: str
    duration_s: float | None
    """None: as long as the faults take that are counted, or a while."""
    seed: int | None
    nodes: int
    rate: float
    output: Path | None
    settings: Mapping[str, str]
    unsafe_switches: tuple[str, ...] = ()
    compose_file: Path | None = None
    counts: str = ""
    data_dir: Path | None = None


def parse_duration(text: str) -> float:
    """In seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if match is None or float(match[1]) == 0:
        raise WrongUse(f"--duration {text}: a time like 90, 90s, 5m or 1h, and more than nothing")
    return float(match[1]) * _UNITS_S[match[2]]


def run_chaos(options: ChaosOptions) -> int:
    """The exit code: 1 on any anomaly or if the run itself went wrong."""
    now = datetime.now()
    seed = random.randrange(1 << 31) if options.seed is None else options.seed
    directory = options.output or Path(f"chaos-{now:%Y%m%d-%H%M%S}")
    try:
        wanted = _run_options(options, seed, now)
        target = _target(options, check_names(wanted))
    except TargetDown as error:
        raise CommandFailed(str(error)) from None
    except (RunRefused, TargetError) as error:
        raise WrongUse(str(error)) from None
    try:
        result = _run(wanted, target, directory)
    except RunRefused as error:
        raise WrongUse(str(error)) from None
    except (RunFailed, TargetError) as error:
        raise CommandFailed(str(error)) from None
    return conclude(result, directory)


def _run_options(options: ChaosOptions, seed: int, now: datetime) -> RunOptions:
    is_given = options.target not in OWN_TARGETS
    counts = parse_counts(options.counts) if options.counts else ()
    usual_s = _MOST_PER_FAULT_S * sum(count for _, count in counts) if counts else _DURATION_S
    names = tuple(name for name, _ in counts)
    return RunOptions(
        workload=options.workload,
        faults=names or tuple(split_names(options.faults)),
        duration_s=usual_s if options.duration_s is None else options.duration_s,
        seed=seed,
        rate=options.rate,
        topic_prefix=f"chaos-{now:%Y%m%d-%H%M%S}-" if is_given else "",
        removes_topics=is_given,
        has_new_groups=not is_given,
        command=command_line(options, seed),
        counts=counts,
        calm_s=_SHORT_CALM_S if counts else CALM_S,
    )


def command_line(options: ChaosOptions, seed: int) -> str:
    """What repeats the run."""
    words = ["tidelog", "chaos", "run", "--target", options.target]
    if options.target in CONFIGURED:
        words += ["--nodes", str(options.nodes)]
    if options.compose_file is not None:
        words += ["--compose-file", str(options.compose_file)]
    words += ["--workload", options.workload]
    words += ["--counts", options.counts] if options.counts else ["--faults", options.faults]
    if options.duration_s is not None:
        words += ["--duration", f"{options.duration_s:g}s"]
    words += ["--seed", str(seed)]
    words += ["--rate", f"{options.rate:g}"]
    for name, value in options.settings.items():
        words += ["-o", f"{name}={value}"]
    for switch in options.unsafe_switches:
        words += ["--unsafe-switch", switch]
    return shlex.join(words)


def _target(options: ChaosOptions, faults: list[Fault]) -> Target:
    is_configured = options.target in CONFIGURED
    wanted = WORKLOADS[options.workload].node_settings if is_configured else {}
    return make_target(
        options.target,
        options.nodes,
        {**wanted, **options.settings},
        is_rigged=needs_rigged_nodes(faults),
        unsafe_switches=options.unsafe_switches,
        compose_file=options.compose_file,
        data_dir=options.data_dir,
    )


def _run(wanted: RunOptions, target: Target, directory: Path) -> RunResult:
    try:
        check_options(wanted, target)
    except RunRefused:
        discard(target)
        raise
    typer.echo(f"seed {wanted.seed}; history and report go to {directory}", err=True)
    with interruption() as interrupted, progress_on() as progress:
        return run(wanted, target, directory, progress, interrupted)


@contextmanager
def interruption() -> Iterator[threading.Event]:
    """Ctrl-C and SIGTERM end the run in order; a second one ends it at once."""
    asked = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        typer.echo("healing and writing the report; once more to stop at once", err=True)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def conclude(result: RunResult, directory: Path) -> int:
    """Judge, print, and say where the rest is."""
    report = directory / _REPORT_NAME
    began_s = time.monotonic()
    history, verdict = judge_file(result.history, report)
    write_summary(directory, summarize(history.header, verdict, result.problems))
    parts = {**result.parts_s, "judging": time.monotonic() - began_s}
    print_verdict(verdict, as_json=False)
    for problem in result.problems:
        typer.echo(f"the run went wrong: {problem}")
    typer.echo("took: " + ", ".join(f"{name} {took_s:.1f} s" for name, took_s in parts.items()))
    typer.echo(f"report: {report}")
    if result.problems or not verdict.is_good:
        return PROBLEM
    return INTERRUPTED if result.was_interrupted else OK
