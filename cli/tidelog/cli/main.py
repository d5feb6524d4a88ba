"""The entry of the ``tidelog`` command.

A node is started through here too (``tidelog server``, ``tidelog controller``), and a node should
not carry the command line's libraries through its life. So those two are recognised before typer
is imported. ``tidelog up`` starts such nodes: what they need is imported by another process while
this one imports what the command line needs.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tidelog.cli.nodes import NODE_COMMANDS, run_node
from tidelog.wire.protocol.kio_import import keep_hypothesis_out

if TYPE_CHECKING:
    from tidelog.testing.nursery import Nursery


def main() -> None:
    arguments = sys.argv[1:]
    if arguments and arguments[0] in NODE_COMMANDS:
        sys.exit(run_node(arguments[0], arguments[1:]))
    keep_hypothesis_out()
    nursery = _begin_nursery() if _wants_nodes(arguments) else None
    from tidelog.cli.app import app

    app(obj=nursery)


def _wants_nodes(arguments: list[str]) -> bool:
    return arguments[:1] == ["up"] and not {"-h", "--help"}.intersection(arguments)


def _begin_nursery() -> Nursery:
    from tidelog.testing.nursery import Nursery

    return Nursery()
