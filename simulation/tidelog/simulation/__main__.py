"""``python -m tidelog.simulation``: run seeds, look at one closely, or shrink its faults."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence

from tidelog.simulation.node_log import NodeLog
from tidelog.simulation.runner import KINDS, Order, describe_failure, run_many, run_one, shrunk


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    match arguments.command:
        case "run":
            return _run(arguments)
        case _:
            return _shrink(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tidelog.simulation",
        description="A cluster in one process, driven by a seed: faults, checks, replay.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run seeds and report those that fail")
    run.add_argument("--seed", type=int, default=1, metavar="S", help="the first seed (1)")
    run.add_argument("--count", type=int, default=1, metavar="N", help="how many seeds (1)")
    run.add_argument(
        "--minutes", type=float, metavar="M", help="begin no further seed after so many minutes"
    )
    run.add_argument("--processes", type=int, default=2, metavar="P", help="side by side (2)")
    run.add_argument(
        "--trace", action="store_true", help="of one seed: what its nodes log, and all events"
    )
    run.add_argument("--verbose", action="store_true", help="a line for every seed")
    smaller = commands.add_parser("shrink", help="find a smaller schedule that still fails")
    smaller.add_argument("--seed", type=int, required=True, metavar="S")
    for command in (run, smaller):
        command.add_argument("--kind", choices=sorted(KINDS), default="cluster")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    if arguments.trace:
        return _trace(arguments.kind, arguments.seed)
    order = Order(
        arguments.kind,
        arguments.seed,
        arguments.count,
        arguments.minutes,
        arguments.processes,
        arguments.verbose or arguments.count <= 10,
    )
    return 1 if run_many(order) else 0


def _trace(kind: str, seed: int) -> int:
    logger, node_log = logging.getLogger("tidelog"), NodeLog(sys.stderr)
    logger.addHandler(node_log)
    logger.setLevel(logging.INFO)
    try:
        result = run_one(kind, seed)
    finally:
        logger.removeHandler(node_log)
        logger.setLevel(logging.NOTSET)
    if result.failure is not None:
        print(describe_failure(result))
        return 1
    print(f"{kind} seed {seed}: {result.summary}, {result.events} events, {result.digest}")
    return 0


def _shrink(arguments: argparse.Namespace) -> int:
    result = run_one(arguments.kind, arguments.seed)
    if result.failure is None:
        print(f"{arguments.kind} seed {arguments.seed} does not fail")
        return 1
    schedule = shrunk(result)
    print(describe_failure(run_one(arguments.kind, arguments.seed, schedule)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
