"""Fixtures for all tests. Tools that may be missing are asked for by ``require``."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import Phase, settings

# For mutants: that something fails is all one wants to know, and making it small takes minutes.
settings.register_profile("as-found", phases=set(Phase) - {Phase.shrink, Phase.explain})


@dataclass(frozen=True, slots=True)
class Tool:
    """Something outside Python that a test may want, and the command that would provide it."""

    is_there: Callable[[], bool]
    provided_by: str


def _on_path(*names: str) -> Callable[[], bool]:
    return lambda: any(shutil.which(name) for name in names)


def _docker_answers() -> bool:
    command = shutil.which("docker")
    if command is None:
        return False
    asked = subprocess.run([command, "info"], capture_output=True, timeout=30, check=False)
    return asked.returncode == 0


def _may_make_network_namespaces() -> bool:
    return os.geteuid() == 0 and shutil.which("ip") is not None


TOOLS = {
    "kcat": Tool(_on_path("kcat"), "apt install kcat"),
    "java": Tool(_on_path("java"), "apt install openjdk-17-jre-headless"),
    "docker": Tool(_docker_answers, "a running Docker engine; on Debian: make docker-engine"),
    "netns": Tool(_may_make_network_namespaces, "apt install iproute2, and run the tests as root"),
    "browser": Tool(_on_path("chromium", "chromium-browser"), "apt install chromium"),
}


def require_tool(name: str) -> None:
    tool = TOOLS[name]
    if tool.is_there():
        return
    reason = f"{name} is missing; to have it: {tool.provided_by}"
    if name in os.environ.get("TIDELOG_REQUIRE", "").split(","):
        pytest.fail(f"{reason} (TIDELOG_REQUIRE names it, so this is no skip)", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def require() -> Callable[[str], None]:
    """``require("kcat")`` skips a test where kcat is missing, or fails it if CI demands kcat."""
    return require_tool
