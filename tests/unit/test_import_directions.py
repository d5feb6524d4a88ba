"""Imports between rooms point downwards only.

``MAY_IMPORT`` is the one place where the directions stand as a table; docs/ARCHITECTURE.md tells
why they are so. A room may always import itself. Change the architecture first, then the table.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The package below `tidelog`, and the packages it may import. `v1` is what proto/ generates.
MAY_IMPORT: dict[str, set[str]] = {
    "kernel": set(),
    "v1": set(),
    "wire": {"kernel"},
    "storage": {"kernel", "wire"},
    "controller": {"kernel", "wire", "storage", "v1"},
    "replication": {"kernel", "wire", "storage", "controller", "v1"},
    "coordinator": {"kernel", "wire", "storage"},
    "console": {"kernel"},
    "broker": {
        "kernel", "wire", "storage", "controller", "replication", "coordinator", "console", "v1",
    },
    "client": {"kernel", "wire"},
    "pipeline": {"kernel", "wire", "storage", "client"},
    "testing": {"kernel", "wire", "storage", "broker", "client"},
    "simulation": {
        "kernel", "wire", "storage", "controller", "replication", "coordinator", "broker", "client",
        "testing", "v1",
    },
    "chaos": {"kernel", "wire", "storage", "client", "testing"},
    "cli": {
        "kernel", "wire", "storage", "controller", "replication", "coordinator", "broker", "client",
        "pipeline", "simulation", "testing", "chaos",
    },
}  # fmt: skip


def modules() -> dict[str, Path]:
    """Every module of every room by its dotted name."""
    found = {}
    for path in sorted(ROOT.glob("*/tidelog/**/*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts[1:]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imported(source: str, module: str) -> Iterator[str]:
    """The dotted names a module imports, at its top or anywhere inside, relative ones resolved."""
    package = module if _is_package(module) else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            climbed = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*climbed, node.module or ""]).strip(".") if node.level else node.module
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _is_package(module: str) -> bool:
    return module in MODULES and MODULES[module].name == "__init__.py"


def wrong_imports(source: str, module: str) -> list[str]:
    room = module.split(".")[1]
    allowed = MAY_IMPORT[room] | {room}
    names = (name.split(".") for name in imported(source, module))
    return sorted(
        {".".join(parts) for parts in names if parts[0] == "tidelog" and parts[1] not in allowed}
    )


def test_every_room_stands_in_the_table() -> None:
    assert {module.split(".")[1] for module in MODULES} <= MAY_IMPORT.keys()


def test_the_table_has_no_circles() -> None:
    settled: set[str] = set()
    while len(settled) < len(MAY_IMPORT):
        free = {room for room, below in MAY_IMPORT.items() if below <= settled} - settled
        assert free, f"these rooms import each other in a circle: {MAY_IMPORT.keys() - settled}"
        settled |= free


def test_a_module_imports_only_what_lies_below_it() -> None:
    found = {
        module: wrong_imports(path.read_text(encoding="utf-8"), module)
        for module, path in MODULES.items()
    }
    assert {module: wrong for module, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import tidelog.storage.segment", ["tidelog.storage.segment"]),
        ("from tidelog.storage import segment", ["tidelog.storage.segment"]),
        ("from tidelog import storage", ["tidelog.storage"]),
        ("def later():\n    import tidelog.broker.wiring", ["tidelog.broker.wiring"]),
        ("from ..storage import segment", ["tidelog.storage.segment"]),
        ("from . import batch", []),
        ("from .batch import Batch", []),
        ("from tidelog.kernel.ids import Offset\nimport numpy", []),
    ],
)
def test_an_upward_import_is_found(source: str, found: list[str]) -> None:
    assert wrong_imports(source, "tidelog.wire.made_up") == found
