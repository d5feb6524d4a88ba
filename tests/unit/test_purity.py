"""The modules that decide do not act: they import nothing that reaches time, chance, disk or net.

Because they are pure, the whole cluster can run in one process from one seed. A pure module may
import others of the project only if those are pure too.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Folders and modules, relative to the top of the repository; a folder stands for all below it.
PURE = [
    "kernel/tidelog/kernel/errors.py",
    "kernel/tidelog/kernel/ids.py",
    "kernel/tidelog/kernel/ports.py",
    "kernel/tidelog/kernel/settings",
    "wire/tidelog/wire",
    "storage/tidelog/storage/epoch_cache.py",
    "storage/tidelog/storage/names.py",
    "storage/tidelog/storage/producer_snapshot.py",
    "storage/tidelog/storage/producer_state.py",
    "storage/tidelog/storage/retention.py",
    "storage/tidelog/storage/roll.py",
    "storage/tidelog/storage/validation.py",
    "controller/tidelog/controller/decisions",
    "controller/tidelog/controller/liveness",
    "controller/tidelog/controller/metadata",
    "controller/tidelog/controller/raft",
]

IMPURE = {
    "aiohttp", "asyncio", "concurrent", "confluent_kafka", "fcntl", "glob", "grpc", "http", "mmap",
    "multiprocessing", "os", "pathlib", "queue", "random", "sched", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "socketserver", "ssl", "subprocess", "tempfile",
    "threading", "time", "uvloop",
}  # fmt: skip


def pure_modules() -> dict[str, Path]:
    paths: list[Path] = []
    for entry in PURE:
        # A machine may be one module or a folder of them.
        place = ROOT / entry
        single = place.with_suffix(".py")
        paths += sorted(place.rglob("*.py")) if place.is_dir() else [single]
    return {str(path.relative_to(ROOT)): path for path in paths if path.is_file()}


PURE_MODULES = pure_modules()
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


@pytest.mark.parametrize("path", PURE_MODULES)
def test_a_pure_module_imports_nothing_that_acts(path: str) -> None:
    assert impure_imports(PURE_MODULES[path].read_text(encoding="utf-8")) == []


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
