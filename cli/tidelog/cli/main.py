"""The entry of the ``tidelog`` command.

A node is started through here too (``tidelog server``, ``tidelog controller``), and a node should
not carry the command line's libraries through its life. So those two are recognised before typer
is imported.
"""

from __future__ import annotations

import sys

from tidelog.cli.nodes import NODE_COMMANDS, run_node


def main() -> None:
    arguments = sys.argv[1:]
    if arguments and arguments[0] in NODE_COMMANDS:
        sys.exit(run_node(arguments[0], arguments[1:]))
    from tidelog.cli.app import app

    app()
