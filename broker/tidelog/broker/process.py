"""A node as a process: settings in, signals handled, one node run to its end.

Most of the time that a node takes to start goes into imports. ``load_modules`` does them all at
once, so that a launcher can do them once for several nodes and fork.

Exit codes: 0 after a clean stop, 1 if the node had to give up, 2 if it was never started because
of what it was given.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelog.broker import log_format
from tidelog.kernel.settings import InvalidSettings, Settings
from tidelog.kernel.settings.load import Loaded, load
from tidelog.wire.protocol.kio_import import keep_hypothesis_out

if TYPE_CHECKING:
    from tidelog.broker.node import Node

log = logging.getLogger(__name__)

_OFFLOAD_THREADS: Final = 8
_NODE_MODULES: Final = (
    "tidelog.broker.http.side",
    "tidelog.broker.node",
    "tidelog.broker.port_check",
    "tidelog.broker.real_ports",
    "tidelog.kernel.real.listener",
    "tidelog.kernel.real.peer_server",
    "tidelog.kernel.real.peers",
)
"""Loaded when it is clear that a node will run, and not by whoever only asks for help."""
_BROKER_MODULES: Final = ("tidelog.broker.broker_role", "kio.index", "kio.serial")
"""A node that is only a controller does without these, and is the smaller for it."""
EXIT_GAVE_UP: Final = 1
EXIT_USAGE: Final = 2


def main(argv: Sequence[str]) -> int:
    arguments = _parser().parse_args(argv)
    try:
        loaded = _load(arguments)
    except OSError as error:
        print(f"tidelog server: {error}", file=sys.stderr)
        return EXIT_USAGE
    except InvalidSettings as invalid:
        for error_line in invalid.errors:
            print(f"tidelog server: {error_line}", file=sys.stderr)
        return EXIT_USAGE
    level = arguments.log_level or loaded.settings.get_str("logging.level")
    log_format.configure(level, loaded.settings.get_str("logging.format"))
    for warning in loaded.warnings:
        log.warning("%s", warning)
    _raise_file_limit()
    _settle_allocator()
    load_modules(is_broker="broker" in loaded.settings.get_list("process.roles"))
    return _run(loaded.settings)


def load_modules(*, is_broker: bool = True) -> None:
    """Import all that a node needs. Starts no thread, so that a process may fork afterwards."""
    keep_hypothesis_out()
    for name in _NODE_MODULES + (_BROKER_MODULES if is_broker else ()):
        import_module(name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tidelog server",
        description="Run one node: a broker, a controller, or both (process.roles).",
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="a properties file")
    parser.add_argument(
        "-o",
        dest="overrides",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a setting that beats the file and the environment; may be repeated",
    )
    parser.add_argument(
        "--log-level",
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        help="beats the setting logging.level",
    )
    return parser


def _load(arguments: argparse.Namespace) -> Loaded:
    path: Path | None = arguments.config
    text = "" if path is None else path.read_text(encoding="utf-8")
    return load(
        file_text=text,
        file_name="" if path is None else str(path),
        environment=dict(os.environ),
        overrides=arguments.overrides,
    )


def _raise_file_limit() -> None:
    """Every partition and every client is a descriptor; take all the system gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    log.info("may open %d files", hard)


def _settle_allocator() -> None:
    from tidelog.kernel.real.allocator import keep_large_blocks

    keep_large_blocks()


def _run(settings: Settings) -> int:
    try:
        import uvloop
    except ImportError:
        log.warning("uvloop is not installed; using Python's own event loop")
        return asyncio.run(_serve(settings))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings))


def _bind_http(settings: Settings) -> socket.socket | None:
    """The socket for metrics and health. Taken by another, it stops the node only if it was asked
    for: who starts two nodes on one machine without a word about it wants both."""
    from tidelog.broker.http.side import bind
    from tidelog.broker.real_ports import CannotStart
    from tidelog.kernel.settings.checks import endpoints

    address = endpoints(settings).http
    if address is None:
        return None
    try:
        return bind(address)
    except OSError as error:
        if settings.is_given("http.listener"):
            raise CannotStart(f"http.listener: cannot listen on {address}: {error}") from error
        log.warning("no metrics: cannot listen on %s (http.listener): %s", address, error)
        return None


async def _serve(settings: Settings) -> int:
    from tidelog.broker.http.side import HttpSide
    from tidelog.broker.port_check import refuse_taken_ports
    from tidelog.broker.real_ports import CannotStart, open_ports
    from tidelog.kernel.settings.checks import endpoints

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        async with open_ports(settings, offload_threads=_OFFLOAD_THREADS) as (identity, ports):
            from tidelog.broker.node import Node, NodeFailed

            refuse_taken_ports(endpoints(settings))
            bound = _bind_http(settings)
            node = Node(settings, identity, ports)
            http = None
            if bound is not None:
                http = HttpSide(bound, node, identity.cluster_id, ports.disk)
            try:
                if http is not None:
                    http.start()
                if await _start_unless(stop, node):
                    # What start-up made lives as long as the process: keep it out of collections.
                    gc.collect()
                    gc.freeze()
                    await node.run(stop)
            except NodeFailed as failure:
                log.error("the node stops: %s", failure)
                return EXIT_GAVE_UP
            finally:
                await node.stop()
                if http is not None:
                    await http.close()
    except CannotStart as problem:
        log.error("%s", problem)
        return EXIT_USAGE
    return 0


async def _start_unless(stop: asyncio.Event, node: Node) -> bool:
    """Whether the node serves: it may be told to stop while it waits for the other nodes."""
    starting = asyncio.create_task(node.start())
    told = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({starting, told}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            return True
        log.info("told to stop before the node came into service")
        return False
    finally:
        starting.cancel()
        told.cancel()
        await asyncio.gather(starting, told, return_exceptions=True)
