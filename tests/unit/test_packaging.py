"""A room is installed, typed and checked because lists name it; here the lists meet the folders.

hatchling leaves out a listed folder that is absent, and never sees one that is not listed, both
without a word. An ``__init__.py`` in the wrong place closes the namespace ``tidelog`` for all
other rooms.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CONFIG: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS = {path.parent.name for path in ROOT.glob("*/tidelog") if any(path.rglob("*.py"))}


def packages() -> list[Path]:
    """The top package of every room: storage/tidelog/storage, proto/tidelog/v1 and so on."""
    return [path for room in ROOMS for path in (ROOT / room / "tidelog").iterdir() if path.is_dir()]


def test_the_installed_rooms_are_the_rooms_there_are() -> None:
    build = CONFIG["tool"]["hatch"]["build"]
    in_wheel = {path.split("/")[0] for path in build["targets"]["wheel"]["packages"]}
    assert set(build["dev-mode-dirs"]) == ROOMS
    assert in_wheel == ROOMS


def test_the_type_checked_rooms_are_the_rooms_there_are() -> None:
    mypy = CONFIG["tool"]["mypy"]
    assert {path.rpartition("/")[2] for path in mypy["mypy_path"]} == ROOMS | {"support"}
    assert set(mypy["files"]) == ROOMS | {"tests", "bench"}


def test_no_room_closes_the_namespace() -> None:
    assert [*ROOT.glob("*/__init__.py"), *ROOT.glob("*/tidelog/__init__.py")] == []


def test_every_package_is_marked_as_typed() -> None:
    assert [path for path in packages() if not (path / "py.typed").is_file()] == []


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {module.parent for top in packages() for module in top.rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def test_the_tests_of_a_room_are_no_packages() -> None:
    """Base names repeat between rooms; import-mode=importlib copes with that only in folders."""
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_git_ignores_nothing_that_is_shipped_or_tested() -> None:
    """hatchling obeys .gitignore, and a stock Python one has ``*.log``, as does our test data."""
    lines = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert not {"*.log", "*.index", "*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py"} & set(lines)
