"""Tidelog in containers, for tests of programs that use it; needs the extra ``containers``.

``TidelogContainer`` is a single node, used as testcontainers' own ``KafkaContainer`` is::

    with TidelogContainer() as tidelog:
        producer = Producer({"bootstrap.servers": tidelog.get_bootstrap_server()})

``TidelogCluster`` is several nodes on a network of their own, with faults::

    with TidelogCluster() as cluster:
        cluster.kill(1)             # SIGKILL; also pause and disconnect
        cluster.start_node(1)       # and unpause and reconnect

A broker tells its clients where to find it, so the port on this machine is chosen before the
container starts and is the same inside and outside. It stays the same over all faults.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

from docker.errors import (  # type: ignore[import-untyped]
    APIError,
    DockerException,
    ImageNotFound,
)
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from tidelog.testing.ports import Ports

DEFAULT_IMAGE: Final = "tidelog:latest"
"""What `make image` builds."""

CLIENT_PORT: Final = 9092
PEER_PORT: Final = 9093
HTTP_PORT: Final = 9644
SERVING_TIMEOUT_S: Final = 60.0
_POLL_S: Final = 0.1
_ASK_TIMEOUT_S: Final = 2.0
_LAST_LINES: Final = 30
_REAPER: Final = "ryuk"
_LOCAL: Final = ("localhost", "127.0.0.1")
_NO_SETTINGS: Final[Mapping[str, str]] = MappingProxyType({})


class ImageMissing(Exception):
    """The image is not on this machine and cannot be pulled."""

    def __init__(self, image: str) -> None:
        super().__init__(
            f"there is no image {image}, and none can be pulled; `make image` in a checkout of"
            f" Tidelog builds {DEFAULT_IMAGE}"
        )


class ReaperMissing(Exception):
    """The image of testcontainers' own helper cannot be had, which has nothing to do with ours."""

    def __init__(self) -> None:
        super().__init__(
            "the image of testcontainers' reaper (ryuk) is not here and cannot be pulled; set"
            " TESTCONTAINERS_RYUK_DISABLED=true to do without: only containers of a killed process"
            " are left behind then"
        )


class NotServing(Exception):
    """A container ended, or did not serve in time; the text has its last words."""


def missing_image(image: str, error: APIError) -> ImageMissing | ReaperMissing | None:
    """Which image a call to the engine failed for, if that is what it failed for."""
    is_pull = "/images/create" in str(error)
    if not is_pull and not isinstance(error, ImageNotFound):
        return None
    return ReaperMissing() if _REAPER in str(error) else ImageMissing(image)


def environment_variable(setting: str) -> str:
    """The variable that gives a setting: ``log.segment.bytes`` is TIDELOG_LOG_SEGMENT_BYTES."""
    marks = {".": "_", "_": "__", "-": "___"}
    return "TIDELOG_" + "".join(marks.get(letter, letter) for letter in setting).upper()


class TidelogContainer(DockerContainer):
    """One node: a cluster of its own unless the settings say otherwise.

    ``settings`` are those of docs/CONFIGURATION.md by name. Use ``with_network`` and
    ``with_network_aliases`` to let other containers reach it, then give these
    ``get_internal_bootstrap_server()``.
    """

    def __init__(
        self,
        image: str = DEFAULT_IMAGE,
        *,
        settings: Mapping[str, str] = _NO_SETTINGS,
        serving_timeout_s: float = SERVING_TIMEOUT_S,
        **arguments: Any,
    ) -> None:
        super().__init__(image, **arguments)
        ports = Ports()
        self._client_port = ports.draw(_LOCAL[1]).port
        self._http_port = ports.draw(_LOCAL[1]).port
        self._settings = dict(settings)
        self._serving_timeout_s = serving_timeout_s

    # --- where it is -------------------------------------------------------------------

    def get_bootstrap_server(self) -> str:
        """For clients on this machine."""
        return f"{self._host}:{self._client_port}"

    def get_internal_bootstrap_server(self) -> str:
        """For clients in containers of the same network."""
        return f"{self._internal_name}:{CLIENT_PORT}"

    def get_http_url(self) -> str:
        """Metrics, health and /v1."""
        return f"http://{self._host}:{self._http_port}"

    @property
    def _host(self) -> str:
        """Where published ports of the engine are reached from here."""
        host = str(self.get_docker_client().host())
        return _LOCAL[1] if host in _LOCAL else host

    @property
    def _internal_name(self) -> str:
        return self._network_aliases[0] if self._network_aliases else "localhost"

    # --- life --------------------------------------------------------------------------

    def start(self) -> Self:
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self) -> None:
        """Start without waiting; a node of several is ready only when others are there."""
        try:
            super().start()
        except APIError as error:
            if (missing := missing_image(self.image, error)) is not None:
                raise missing from error
            raise

    def wait_until_ready(self) -> None:
        """Until /readyz says so; ``NotServing`` if the container ends or takes too long."""
        deadline = time.monotonic() + self._serving_timeout_s
        while not (readiness := self.readiness())[0]:
            self.reload()
            if self.status in ("exited", "dead"):
                raise NotServing(f"the container ended:\n{self.last_words()}")
            if time.monotonic() > deadline:
                raise NotServing(
                    f"not ready after {self._serving_timeout_s:.0f} s: {readiness[1]}\n"
                    + self.last_words()
                )
            time.sleep(_POLL_S)

    def readiness(self) -> tuple[bool, str]:
        """Whether the node is ready, and its reasons if not."""
        try:
            with urllib.request.urlopen(f"{self.get_http_url()}/readyz", timeout=_ASK_TIMEOUT_S):
                return True, ""
        except urllib.error.HTTPError as error:
            return False, ", ".join(json.loads(error.read()).get("reasons", []))
        except OSError as error:
            return False, str(error)

    def last_words(self) -> str:
        logs = self.get_wrapped_container().logs(tail=_LAST_LINES)
        return bytes(logs).decode("utf-8", "replace")

    def _configure(self) -> None:
        """Called by ``start`` when the network and its aliases are known."""
        at = "" if self._host != _LOCAL[1] else _LOCAL[1]
        self.ports.update(
            {str(self._client_port): (at, self._client_port), str(HTTP_PORT): (at, self._http_port)}  # type: ignore[dict-item]  # as docker-py takes it
        )
        for name, value in {**self._addresses(), **self._settings}.items():
            self.env.setdefault(environment_variable(name), value)

    def _addresses(self) -> dict[str, str]:
        host, internal = self.get_bootstrap_server(), self.get_internal_bootstrap_server()
        return {
            "listeners": f"INTERNAL://:{CLIENT_PORT},HOST://:{self._client_port},"
            f"CONTROLLER://:{PEER_PORT}",
            "advertised.listeners": f"INTERNAL://{internal},HOST://{host}",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,HOST:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
        }


class TidelogCluster:
    """Nodes 1 to ``nodes``, each broker and controller; use as a context manager."""

    def __init__(
        self,
        nodes: int = 3,
        image: str = DEFAULT_IMAGE,
        *,
        settings: Mapping[str, str] = _NO_SETTINGS,
        serving_timeout_s: float = SERVING_TIMEOUT_S,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"nodes ({nodes}) must be at least 1")
        self.image = image
        self._names = {node_id: f"tidelog{node_id}" for node_id in range(1, nodes + 1)}
        self._settings = {**_replicated(nodes), **settings}
        self._serving_timeout_s = serving_timeout_s
        self._cluster_id = uuid.uuid4().hex[:22]
        self._life = ExitStack()
        self.nodes: dict[int, TidelogContainer] = {}
        self.network: Network | None = None

    # --- where it is -------------------------------------------------------------------

    def get_bootstrap_servers(self) -> str:
        """For clients on this machine."""
        return ",".join(node.get_bootstrap_server() for node in self.nodes.values())

    def get_internal_bootstrap_servers(self) -> str:
        """For clients in containers that are on ``network``."""
        return ",".join(node.get_internal_bootstrap_server() for node in self.nodes.values())

    # --- life --------------------------------------------------------------------------

    def start(self) -> Self:
        self.network = self._life.enter_context(Network())
        for node_id in self._names:
            self.nodes[node_id] = self._container(node_id)
        for node in self.nodes.values():
            self._life.callback(node.stop)
            node.launch()
        self.wait_until_ready()
        return self

    def stop(self) -> None:
        """Remove the containers, their data and the network."""
        self._life.close()
        self.nodes.clear()
        self.network = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def wait_until_ready(self) -> None:
        for node in self.nodes.values():
            node.wait_until_ready()

    # --- faults ------------------------------------------------------------------------

    def kill(self, node_id: int) -> None:
        """SIGKILL: nothing is flushed, nothing handed over. Undone by ``start_node``."""
        self._wrapped(node_id).kill()

    def stop_node(self, node_id: int) -> None:
        """SIGTERM: leadership is handed over first. Undone by ``start_node``."""
        self._wrapped(node_id).stop(timeout=30)

    def start_node(self, node_id: int) -> None:
        """With the data it had; returns when it is ready."""
        self._wrapped(node_id).start()
        self.nodes[node_id].wait_until_ready()

    def pause(self, node_id: int) -> None:
        """The processes stand still and keep their connections. Undone by ``unpause``."""
        self._wrapped(node_id).pause()

    def unpause(self, node_id: int) -> None:
        self._wrapped(node_id).unpause()

    def disconnect(self, node_id: int) -> None:
        """From the other nodes and from this machine. Undone by ``reconnect``."""
        self._joined().disconnect(self._wrapped(node_id), force=True)

    def reconnect(self, node_id: int) -> None:
        self._joined().connect(self._wrapped(node_id), aliases=[self._names[node_id]])

    # --- parts -------------------------------------------------------------------------

    def _container(self, node_id: int) -> TidelogContainer:
        assert self.network is not None
        voters = ",".join(f"{one}@{name}:{PEER_PORT}" for one, name in self._names.items())
        settings = {
            "node.id": str(node_id),
            "process.roles": "broker,controller",
            "controller.quorum.voters": voters,
            **self._settings,
        }
        container = TidelogContainer(
            self.image, settings=settings, serving_timeout_s=self._serving_timeout_s
        )
        container.with_network(self.network).with_network_aliases(self._names[node_id])
        return container.with_env("CLUSTER_ID", self._cluster_id)

    def _wrapped(self, node_id: int) -> Any:
        if node_id not in self.nodes:
            raise KeyError(f"there is no node {node_id}; there are {sorted(self.nodes)}")
        return self.nodes[node_id].get_wrapped_container()

    def _joined(self) -> Any:
        assert self.network is not None, "the cluster is not started"
        return self.network._network  # the library offers no faults


def _replicated(nodes: int) -> dict[str, str]:
    """As many replicas as nodes allow, up to three; one may be lost without losing service."""
    replicas = min(nodes, 3)
    in_sync = str(max(1, replicas - 1))
    return {
        "default.replication.factor": str(replicas),
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": in_sync,
    }


def engine_problem() -> str | None:
    """Why containers cannot be had here, or None."""
    import docker  # type: ignore[import-untyped]

    try:
        client = docker.from_env(timeout=5)
        client.ping()
    except (DockerException, OSError) as error:
        return f"no Docker engine answers ({error}); `make docker-engine` starts one on Debian"
    client.close()
    return None
