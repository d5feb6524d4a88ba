"""How ``tidelog pipeline`` runs a job: a session, progress on standard error, a summary."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.pipeline.errors import PipelineError, WrongOptions
from tidelog.pipeline.jobs.failures import WrongJob, told_by
from tidelog.pipeline.jobs.session import make_session
from tidelog.pipeline.jobs.summary import Progress, Step, Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Options = TypeVar("Options", contravariant=True)


class FollowingJob(Protocol[Options]):
    """A job that may run on until it is stopped."""

    def __call__(
        self,
        spark: SparkSession,
        options: Options,
        *,
        progress: Progress,
        stopped: Callable[[], bool],
    ) -> Summary: ...


@dataclass(frozen=True, slots=True)
class HowToRun:
    """What all pipelines take."""

    master: str | None
    conf: Mapping[str, str]
    as_json: bool
    metrics_file: Path | None
    labels: Mapping[str, str]


def pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """``NAME=VALUE`` each."""
    found: dict[str, str] = {}
    for text in given or ():
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise WrongUse(f"{option} {text!r} is not NAME=VALUE")
        found[name.strip()] = value
    return found


def run_job(name: str, how: HowToRun, job: Callable[[SparkSession, Progress], Summary]) -> Summary:
    """Print the summary of what was done; what went wrong becomes a sentence."""
    with translated():
        session = make_session(f"tidelog {name}", master=how.master, config=how.conf)
        try:
            with shown_progress() as progress:
                summary = job(session, progress)
        finally:
            session.stop()
    print(json.dumps(summary.as_object()) if how.as_json else summary.text())
    if how.metrics_file is not None:
        _write_metrics(how.metrics_file, summary.metrics(how.labels))
    return summary


def run_until_interrupted(
    name: str, how: HowToRun, run: FollowingJob[Options], options: Options, *, follows: bool
) -> None:
    """As ``run_job``; a job that follows its topics ends in good order when it is interrupted."""
    stopped = until_interrupted() if follows else (lambda: False)
    run_job(
        name,
        how,
        lambda session, progress: run(session, options, progress=progress, stopped=stopped),
    )


@contextmanager
def translated() -> Iterator[None]:
    """Errors of the pipelines, and those of ours that Spark has packed into its own."""
    try:
        yield
    except (WrongJob, WrongOptions) as error:
        raise WrongUse(str(error)) from None
    except PipelineError as error:
        raise CommandFailed(str(error)) from None
    except KeyboardInterrupt:
        raise CommandFailed("stopped") from None
    except _errors_of_spark() as error:
        said = told_by(error)
        raise CommandFailed(said or str(error).strip().splitlines()[0]) from None


def _errors_of_spark() -> tuple[type[Exception], ...]:
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
    except ImportError:
        return ()
    return PySparkException, Py4JError


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """A bar where somebody can see it, lines else."""
    if not sys.stderr.isatty():
        yield _print_step
        return
    from rich.console import Console
    from rich.progress import Progress as Bars

    with Bars(console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("starting", total=None)
        yield lambda step: bars.update(
            task, description=step.what, completed=step.done, total=step.total
        )


def _print_step(step: Step) -> None:
    of = "" if step.total is None else f" of {step.total:,}"
    count = f": {step.done:,}{of}" if step.done or step.total else ""
    print(f"{step.what}{count}", file=sys.stderr, flush=True)


def _write_metrics(path: Path, text: str) -> None:
    """Whole or not at all: a collector may look at any moment."""
    try:
        temporary = path.with_name(path.name + ".tmp")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise CommandFailed(f"{path}: {error}") from None


def until_interrupted() -> Callable[[], bool]:
    """True after the first Ctrl-C or SIGTERM, which then end the job and not the process."""
    import signal

    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    return asked.is_set
