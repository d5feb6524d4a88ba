"""The cluster of a compose file, started and harmed through the commands that a person would use.

Both Compose v2 (``docker compose``) and docker-compose 1.29 will do. 1.29 has no ``--wait``, so
readiness is asked of the nodes, as users see it.
"""

from __future__ import annotations

import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
HOST_PORTS: Final[Mapping[int, int]] = {1: 19092, 2: 29092, 3: 39092}
HTTP_PORTS: Final[Mapping[int, int]] = {1: 19644, 2: 29644, 3: 39644}
PATIENCE_S: Final = 90.0
_COMMAND_TIMEOUT_S: Final = 180.0


class CommandFailed(Exception):
    """A command of Docker ended badly; the text is what it said."""


def run(*command: str, stdin: str = "", timeout_s: float = _COMMAND_TIMEOUT_S) -> str:
    """What the command printed."""
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if done.returncode != 0:
        raise CommandFailed(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def compose_command() -> Sequence[str] | None:
    """Compose v2 where it is, else 1.29, else nothing."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]):
            asked = subprocess.run([*command, "version"], capture_output=True, check=False)
            if asked.returncode == 0:
                return command
    return None


class ComposeCluster:
    """Brokers 1 to 3 of one of the compose files; use as a context manager."""

    def __init__(self, command: Sequence[str], file: str, project: str, service: str) -> None:
        self._compose = [*command, "-p", project, "-f", str(DEPLOY / file)]
        self._service = service
        self.network = f"{project}_tidelog"
        self.serving_after_s = 0.0
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in HOST_PORTS.values())
        self.internal_bootstrap = ",".join(f"{service}{node}:9092" for node in HOST_PORTS)

    def __enter__(self) -> ComposeCluster:
        began = time.monotonic()
        try:
            self.compose("up", "-d")
            self.wait_until_serving(PATIENCE_S)
        except BaseException:
            self.__exit__()
            raise
        self.serving_after_s = time.monotonic() - began
        return self

    def __exit__(self, *_: object) -> None:
        self.compose("down", "-v", "--timeout", "10")

    def compose(self, *arguments: str) -> str:
        return run(*self._compose, *arguments)

    def container(self, node: int) -> str:
        return self.compose("ps", "-a", "-q", f"{self._service}{node}").strip()

    def wait_until_serving(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        for node, port in HTTP_PORTS.items():
            while not _is_ready(port):
                if time.monotonic() > deadline:
                    words = self.compose("logs", f"{self._service}{node}")[-3000:]
                    raise TimeoutError(f"node {node} is not ready in {timeout_s:g} s:\n{words}")
                time.sleep(0.05)

    def health(self, node: int) -> str:
        return run("docker", "inspect", "-f", "{{.State.Health.Status}}", self.container(node))[:-1]

    # --- faults ------------------------------------------------------------------------

    def kill(self, node: int) -> None:
        run("docker", "kill", "-s", "KILL", self.container(node))

    def start_node(self, node: int) -> None:
        run("docker", "start", self.container(node))

    def pause(self, node: int) -> None:
        run("docker", "pause", self.container(node))

    def resume(self, node: int) -> None:
        run("docker", "unpause", self.container(node))

    def disconnect(self, node: int) -> None:
        run("docker", "network", "disconnect", "-f", self.network, self.container(node))

    def reconnect(self, node: int) -> None:
        alias = f"{self._service}{node}"
        run("docker", "network", "connect", "--alias", alias, self.network, self.container(node))

    # --- another container -------------------------------------------------------------

    def from_a_container(self, image: str, *command: str, stdin: str = "") -> str:
        """What ``tidelog COMMAND`` prints in a container on the cluster's network."""
        return run(
            "docker", "run", "--rm", "-i", "--network", self.network, image, *command,
            "--bootstrap-server", self.internal_bootstrap, stdin=stdin,
        )  # fmt: skip


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2):
            return True
    except (urllib.error.HTTPError, OSError):
        return False
