"""Limits a reviewer should not have to count: a function fits a screen, a file tells one story."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
FUNCTION_LINES = 70
FILE_LINES = 600
PROMISES = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|NotImplemented" + r"Error)\b")


def is_generated(path: Path) -> bool:
    return path.stem.endswith(("_pb2", "_pb2_grpc"))


CODE = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*/tidelog/**/*.py", "bench/**/*.py")
    for path in ROOT.glob(pattern)
    if not is_generated(path)
)
TESTS = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/*.py"))


def long_functions(source: str) -> list[str]:
    functions = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    # A command's options are a table and not logic: the signature does not count.
    sizes = (
        (node.name, (node.end_lineno or node.lineno) - node.body[0].lineno + 1)
        for node in functions
    )
    return [f"{name}: {lines} lines" for name, lines in sizes if lines > FUNCTION_LINES]


def found_in(paths: list[str], look: Callable[[str], object]) -> dict[str, object]:
    """What ``look`` found in the text of each file, of those where it found something."""
    found = {path: look((ROOT / path).read_text(encoding="utf-8")) for path in paths}
    return {path: what for path, what in found.items() if what}


def test_a_function_fits_a_screen() -> None:
    assert found_in(CODE, long_functions) == {}


def test_a_file_tells_one_story() -> None:
    assert found_in(CODE, lambda text: len(text.splitlines()) > FILE_LINES) == {}


def test_no_file_makes_promises() -> None:
    assert found_in(CODE + TESTS, PROMISES.findall) == {}


def test_a_long_function_is_found() -> None:
    body = "\n".join(["    x = 1"] * (FUNCTION_LINES + 1))
    assert long_functions(f"def f():\n{body}\n") == [f"f: {FUNCTION_LINES + 1} lines"]
    assert long_functions(f"class A:\n  async def f():\n{body}\n") != []
    assert long_functions("def f():\n    return 1\n") == []
