"""``tidelog up``: a local cluster for a terminal or a script, from its start to a clean end.

Everything about the cluster itself is the launcher's (``tidelog.testing.local_cluster``). Here is
what a person sees, the ready file, and what happens when nodes end or signals come: the first
Ctrl-C (or SIGTERM, or a closed terminal) stops the nodes cleanly, a second one kills them.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.cli.node_log import NodeLog
from tidelog.cli.options import DEFAULT_BOOTSTRAP
from tidelog.cli.restarts import Restarts
from tidelog.kernel.settings import InvalidSettings
from tidelog.kernel.settings.load import environment_setting, load
from tidelog.testing.local_cluster import OWN_SETTINGS, ClusterFailed, LocalCluster
from tidelog.testing.local_node import ending
from tidelog.testing.nursery import Nursery
from tidelog.testing.ports import is_port_free

START_S: Final = 60.0
_WATCH_S: Final = 0.2
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class UpOptions:
    nodes: int
    port: int
    data_dir: Path | None
    overrides: Sequence[str]
    ready_file: Path | None
    as_json: bool
    restart: bool
    host: str
    advertised_host: str | None
    level: str


class StopAsked(BaseException):
    """A signal came; raised wherever the main thread happens to be."""


class Screen:
    """Prints for several threads; goes silent when nobody reads (``tidelog up | head``)."""

    def __init__(self, out: TextIO, level: str) -> None:
        self._out = out
        self._log = NodeLog(level, colours=out.isatty() and "NO_COLOR" not in os.environ)
        self._lock = threading.Lock()
        self._is_read = True

    def say(self, text: str) -> None:
        with self._lock:
            if not self._is_read:
                return
            try:
                print(text, file=self._out, flush=True)
            except (BrokenPipeError, ValueError):  # a closed file is a ValueError
                self._is_read = False

    def node_line(self, node_id: int, line: str) -> None:
        shown = self._log.shown(node_id, line)
        if shown is not None:
            self.say(shown)


def run_up(options: UpOptions, server: Sequence[str] | Nursery | None = None) -> None:
    screen = Screen(sys.stderr if options.as_json else sys.stdout, options.level)
    settings = _parse_overrides(options.overrides)
    _refuse_environment()
    if options.ready_file is not None:
        options.ready_file.unlink(missing_ok=True)
    try:
        cluster = LocalCluster(
            options.nodes,
            host=options.host,
            advertised_host=options.advertised_host,
            port=options.port,
            data_dir=options.data_dir,
            settings=settings,
            server=server,
            arguments=("--log-level", options.level),
            on_line=screen.node_line,
        )
    except ClusterFailed as failure:
        raise CommandFailed(str(failure)) from None
    with _stopped_at_the_end(cluster, options, screen):
        _check_settings(cluster)
        for line in warnings(options, cluster):
            screen.say(line)
        cluster.start(START_S)
        _tell_scripts(options, cluster)
        screen.say("\n".join(greeting(options, cluster)))
        _watch(options, cluster, screen)


@contextmanager
def _stopped_at_the_end(
    cluster: LocalCluster, options: UpOptions, screen: Screen
) -> Iterator[None]:
    def first_signal(number: int, frame: object) -> None:
        for each in _SIGNALS:
            signal.signal(each, lambda number, frame: cluster.kill_all())
        raise StopAsked

    before = {number: signal.signal(number, first_signal) for number in _SIGNALS}
    try:
        yield
    except StopAsked:
        screen.say("Stopping; once more to kill the nodes instead.")
    except ClusterFailed as failure:
        raise CommandFailed(str(failure)) from None
    finally:
        if options.ready_file is not None:
            options.ready_file.unlink(missing_ok=True)
        cluster.stop()
        for number, handler in before.items():
            signal.signal(number, handler)
    screen.say("Stopped.")


# --- before the start ---------------------------------------------------------------------------


def _parse_overrides(overrides: Sequence[str]) -> dict[str, str]:
    settings = {}
    for override in overrides:
        name, equals, value = override.partition("=")
        if not equals or not name.strip():
            raise WrongUse(f"-o {override}: must be name=value")
        settings[name.strip()] = value
    return settings


def _refuse_environment() -> None:
    for variable in sorted(os.environ):
        name = environment_setting(variable)
        if name in OWN_SETTINGS:
            raise WrongUse(
                f"the environment variable {variable} would give every node the same {name}; "
                "unset it"
            )


def _check_settings(cluster: LocalCluster) -> None:
    """Better one complaint here than one from each node."""
    text = cluster.properties(cluster.nodes[1])
    try:
        load(file_text=text, file_name="-o", environment=dict(os.environ))
    except InvalidSettings as invalid:
        raise WrongUse("\n".join(map(_without_line, invalid.errors))) from None


def _without_line(error: str) -> str:
    """The line of a file that nobody has written tells nobody anything."""
    return re.sub(r"^-o line \d+:", "-o", error)


def warnings(options: UpOptions, cluster: LocalCluster) -> list[str]:
    lines = [
        f"Port {taken} is taken; using {given} instead." for taken, given in cluster.moved_ports
    ]
    if not _is_loopback(options.host):
        lines.append(
            f"WARNING: clients on other machines may connect to {options.host}, "
            "and nothing is authenticated or encrypted."
        )
    return lines


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# --- once it serves -----------------------------------------------------------------------------


def greeting(options: UpOptions, cluster: LocalCluster) -> list[str]:
    count = "1 node" if options.nodes == 1 else f"{options.nodes} nodes"
    kept = "removed at the end" if cluster.is_ephemeral else "kept"
    settings = [f"  {name}={value}" for name, value in cluster.settings.items()]
    return [
        "",
        f"Tidelog serves: {count}, cluster {cluster.cluster_id}",
        f"Data: {cluster.data_dir} ({kept})",
        f"Bootstrap server: {cluster.bootstrap}",
        "Settings:",
        *settings,
        "",
        "Try in another terminal:",
        *(f"  {line}" for line in suggestions(cluster)),
        "Ctrl-C stops the cluster.",
        "",
    ]


def suggestions(cluster: LocalCluster) -> list[str]:
    first = str(cluster.nodes[1].kafka)
    where = "" if first == DEFAULT_BOOTSTRAP else f" -b {first}"
    command = _own_command()
    lines = [
        f"{command} topic create hello --partitions 3{where}",
        f"echo 'Hello, tide' | {command} produce hello{where}",
        f"{command} consume hello --from-beginning --max-messages 1{where}",
    ]
    last = cluster.nodes[len(cluster.nodes)]
    if len(cluster.nodes) > 2 and last.process is not None:
        lines += [
            f"kill -9 {last.process.pid}; {command} topic describe hello{where}",
            f"{command} server --config {shlex.quote(str(last.config))}   # and it is back",
        ]
    return lines


def _own_command() -> str:
    """How the reader would type it: `make run` does not put it on the path."""
    if shutil.which("tidelog") is not None:
        return "tidelog"
    here = os.path.relpath(sys.argv[0])
    if os.path.basename(here) != "tidelog":
        return "tidelog"
    return sys.argv[0] if here.startswith("..") else here


def _tell_scripts(options: UpOptions, cluster: LocalCluster) -> None:
    text = json.dumps(cluster.description())
    if options.as_json:
        print(text, flush=True)
    _write_ready_file(options.ready_file, text)


def _write_ready_file(path: Path | None, text: str) -> None:
    """Whoever sees the file sees all of it."""
    if path is None:
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(f"{text}\n", encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        raise CommandFailed(f"--ready-file: {error}") from None


def _watch(options: UpOptions, cluster: LocalCluster, screen: Screen) -> None:
    """Until a signal comes, or nothing is left to watch."""
    restarts = Restarts()
    while True:
        for node in cluster.fallen():
            node.is_wanted = False
            screen.say(f"Node {node.node_id} ended with {ending(node.exit_code)}.")
            if options.restart:
                delay_s = restarts.ended(node.node_id, time.monotonic())
                screen.say(f"Starting it again in {delay_s:g} s.")
        for node_id in restarts.due(time.monotonic()):
            cluster.start_node(node_id)
            _write_ready_file(options.ready_file, json.dumps(cluster.description()))
            screen.say(f"Node {node_id} was started again.")
        if not options.restart and not _is_anything_left(cluster):
            raise CommandFailed("all nodes have ended; their last words are above")
        time.sleep(_WATCH_S)


def _is_anything_left(cluster: LocalCluster) -> bool:
    """A node started again by hand is not ours, but it is there."""
    nodes = cluster.nodes.values()
    return any(node.is_running for node in nodes) or not all(
        is_port_free(node.kafka) for node in nodes
    )
