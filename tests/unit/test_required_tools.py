"""A missing tool skips a test on a laptop and fails it in CI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Require = Callable[[str], None]


@pytest.fixture
def empty_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_a_missing_tool_skips_and_names_the_command(
    require: Require, empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_REQUIRE", "java,docker")
    with pytest.raises(pytest.skip.Exception, match="kcat is missing; to have it: apt install"):
        require("kcat")


@pytest.mark.parametrize("tool", ["kcat", "java", "docker", "netns", "browser"])
def test_a_missing_tool_fails_where_it_is_required(
    require: Require, empty_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    monkeypatch.setenv("TIDELOG_REQUIRE", "kcat,java,docker,netns,browser")
    with pytest.raises(pytest.fail.Exception, match=f"{tool} is missing"):
        require(tool)


def test_a_tool_that_is_there_passes(
    require: Require, empty_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_REQUIRE", "kcat")
    tool = empty_path / "kcat"
    tool.write_text("#!/bin/sh\n", encoding="utf-8")
    tool.chmod(0o755)
    require("kcat")


def test_an_unknown_tool_is_a_mistake_in_the_test(require: Require) -> None:
    with pytest.raises(KeyError):
        require("cattle")
