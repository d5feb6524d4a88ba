"""The modules that decide do not act: they import nothing that reaches time, chance, disk or net.

What they need of the outside world comes in through the ports. Because of that the whole cluster
can run in one process from one seed. Such a module may import others of the project only if those
keep to the rule too.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Relative to the top of the repository; a folder stands for all below it.
PURE = [
    "kernel/tidelog/kernel",
    "wire/tidelog/wire",
    "storage/tidelog/storage",
    "controller/tidelog/controller/decisions",
    "controller/tidelog/controller/liveness.py",
    "controller/tidelog/controller/metadata",
    "controller/tidelog/controller/raft",
    "client/tidelog/client/config.py",
    "client/tidelog/client/errors.py",
    "client/tidelog/client/records.py",
    "client/tidelog/client/serializers.py",
    "client/tidelog/client/settings.py",
    "coordinator/tidelog/coordinator",
    "replication/tidelog/replication",
    "pipeline/tidelog/pipeline",
    "chaos/tidelog/chaos/availability.py",
    "chaos/tidelog/chaos/checkers",
    "chaos/tidelog/chaos/history.py",
    "chaos/tidelog/chaos/history_lines.py",
    "chaos/tidelog/chaos/report",
    "chaos/tidelog/chaos/run_summary.py",
    "chaos/tidelog/chaos/run_summary_text.py",
    "chaos/tidelog/chaos/verdict.py",
    "chaos/tidelog/chaos/verdict_text.py",
]
# The shells among them: the ports of a real machine, and what runs on the event loop.
SHELLS = [
    "kernel/tidelog/kernel/real",
    "storage/tidelog/storage/cleaner/shell.py",
    "storage/tidelog/storage/cleaner/worker.py",
    "storage/tidelog/storage/flusher.py",
    "storage/tidelog/storage/log_dir.py",
    "coordinator/tidelog/coordinator/runtime",
    "pipeline/tidelog/pipeline/__init__.py",
    "pipeline/tidelog/pipeline/cluster.py",
    "pipeline/tidelog/pipeline/connection.py",
    "pipeline/tidelog/pipeline/coordinators.py",
    "pipeline/tidelog/pipeline/fetching.py",
    "pipeline/tidelog/pipeline/producing.py",
    "pipeline/tidelog/pipeline/jobs/aggregate.py",
    "pipeline/tidelog/pipeline/jobs/archive.py",
    "pipeline/tidelog/pipeline/jobs/audit.py",
    "pipeline/tidelog/pipeline/jobs/lake.py",
    "pipeline/tidelog/pipeline/jobs/lake_files.py",
    "pipeline/tidelog/pipeline/jobs/records.py",
    "pipeline/tidelog/pipeline/jobs/replay.py",
    "pipeline/tidelog/pipeline/jobs/session.py",
    "pipeline/tidelog/pipeline/jobs/snapshot.py",
    "pipeline/tidelog/pipeline/jobs/verify.py",
    "pipeline/tidelog/pipeline/segments_source.py",
    "pipeline/tidelog/pipeline/sink.py",
    "pipeline/tidelog/pipeline/sink_once.py",
    "pipeline/tidelog/pipeline/source.py",
    "pipeline/tidelog/pipeline/streaming.py",
    "replication/tidelog/replication/alarm.py",
    "replication/tidelog/replication/cleaners.py",
    "replication/tidelog/replication/controller_calls.py",
    "replication/tidelog/replication/fetch_answer.py",
    "replication/tidelog/replication/fetch_messages.py",
    "replication/tidelog/replication/fetch_service.py",
    "replication/tidelog/replication/fetcher.py",
    "replication/tidelog/replication/housekeeping.py",
    "replication/tidelog/replication/log_keeper.py",
    "replication/tidelog/replication/partition.py",
    "replication/tidelog/replication/partition_following.py",
    "replication/tidelog/replication/partition_reads.py",
    "replication/tidelog/replication/replicas.py",
    "replication/tidelog/replication/waiting.py",
]

IMPURE = {
    "aiohttp", "asyncio", "concurrent", "confluent_kafka", "fcntl", "glob", "grpc", "http", "mmap",
    "multiprocessing", "os", "pathlib", "queue", "random", "sched", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "socketserver", "ssl", "subprocess", "tempfile",
    "threading", "time", "uvloop",
}  # fmt: skip


def modules_below(entry: str) -> set[str]:
    place = ROOT / entry
    paths = place.rglob("*.py") if place.is_dir() else [place]
    return {str(path.relative_to(ROOT)) for path in paths}


def below_any(entries: list[str]) -> set[str]:
    return set[str]().union(*map(modules_below, entries))


PURE_MODULES = sorted(below_any(PURE) - below_any(SHELLS))
DOTTED = {
    path.removesuffix(".py").removesuffix("/__init__").split("/", 1)[1].replace("/", ".")
    for path in PURE_MODULES
}


def impure_imports(source: str) -> list[str]:
    names: list[tuple[str, ...]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [(alias.name,) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            module = node.module or ""
            names += [(module, f"{module}.{alias.name}") for alias in node.names]
    return sorted({name[-1] for name in names if not _is_pure(name)})


def _is_pure(name: tuple[str, ...]) -> bool:
    if name[0].split(".")[0] == "tidelog":
        return any(form in DOTTED for form in name)
    return name[0].split(".")[0] not in IMPURE


@pytest.mark.parametrize("entry", PURE + SHELLS)
def test_what_is_listed_exists(entry: str) -> None:
    assert (ROOT / entry).exists()


def test_a_pure_module_imports_nothing_that_acts() -> None:
    found = {
        path: impure_imports((ROOT / path).read_text(encoding="utf-8")) for path in PURE_MODULES
    }
    assert {path: acts for path, acts in found.items() if acts} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import os", ["os"]),
        ("import os.path as p", ["os.path"]),
        ("from time import monotonic", ["time.monotonic"]),
        ("def f():\n    import random", ["random"]),
        ("from tidelog.kernel.real import disk", ["tidelog.kernel.real.disk"]),
        ("import tidelog.kernel.real", ["tidelog.kernel.real"]),
        ("from tidelog.kernel.ids import Offset", []),
        ("from tidelog.kernel import ids", []),
        ("import struct\nfrom dataclasses import dataclass\nimport numpy as np", []),
    ],
)
def test_an_impure_import_is_found(source: str, found: list[str]) -> None:
    assert impure_imports(source) == found
