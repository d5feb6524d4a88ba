"""A Docker engine and the image, or a clear skip."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Sequence

import pytest
from compose_cluster import compose_command

from tidelog.testing.containers import DEFAULT_IMAGE


@pytest.fixture(scope="session", autouse=True)
def image(require: Callable[[str], None]) -> str:
    require("docker")
    # The reaper's own image may be out of reach; every test here cleans up after itself.
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    found = subprocess.run(
        ["docker", "image", "inspect", DEFAULT_IMAGE], capture_output=True, check=False
    )
    if found.returncode != 0:
        pytest.fail(f"there is no image {DEFAULT_IMAGE}; build it: make image", pytrace=False)
    return DEFAULT_IMAGE


@pytest.fixture(scope="session")
def compose() -> Sequence[str]:
    command = compose_command()
    if command is None:
        reason = "neither Compose v2 nor docker-compose is here: apt install docker-compose"
        if "docker" in os.environ.get("TIDELOG_REQUIRE", "").split(","):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return command
