"""Send a broker what was sent to Apache Kafka 4.3.1, and print where its answers differ.

    python tests/conformance/differential.py HOST:PORT [--suite errors|wire|epochs ...] [--kafka]

``errors`` wants a new broker: node id 1, alone, with the settings that ``--settings`` prints.
``wire`` deletes all topics. ``epochs`` wants two brokers or more. With ``--kafka`` the differences
that are known of Tidelog are not expected. The exit code is 1 if there is one that is not known.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "support")]

import differential_epochs  # noqa: E402
import differential_errors  # noqa: E402
import differential_wire  # noqa: E402
from differential import Finding, judge, unequal  # noqa: E402
from golden_replay import error_setup  # noqa: E402
from known_differences import (  # noqa: E402
    ADMINISTRATION,
    DATA,
    LIVE_ADMINISTRATION,
    WIRE,
    Difference,
    Key,
)
from live_target import Target  # noqa: E402

SUITES = ("errors", "wire", "epochs")
KNOWN: dict[str, dict[Key, Difference]] = {
    "errors": ADMINISTRATION | LIVE_ADMINISTRATION | DATA,
    "wire": WIRE,
    "epochs": {},
}


def replay(target: Target, suite: str) -> tuple[int, list[Finding]]:
    """How many calls were compared, and those with another answer than Kafka's."""
    match suite:
        case "errors":
            return differential_errors.replay(target, differential_errors.set_up(target))
        case "epochs":
            return differential_epochs.replay(target, differential_epochs.set_up(target))
        case _:
            replayed = [
                differential_wire.replay(target, run) for run in differential_wire.runs(target)
            ]
            return sum(n for n, _ in replayed), [f for _, found in replayed for f in found]


def describe(finding: Finding) -> Iterator[str]:
    api, note = finding.call.key
    yield f"{api} v{finding.call.version}, {note}: {finding.our_codes}, Kafka {finding.their_codes}"
    yield from (f"    {line}" for line in unequal(finding.ours, finding.theirs))


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("bootstrap", nargs="?", metavar="HOST:PORT")
    parser.add_argument("--suite", action="append", choices=SUITES)
    parser.add_argument("--kafka", action="store_true", help="expect no known differences")
    parser.add_argument("--settings", action="store_true", help="print what errors needs")
    arguments = parser.parse_args(argv)
    if arguments.settings:
        print("\n".join(error_setup()["serverProperties"]))
        return 0
    if arguments.bootstrap is None:
        parser.error("the address of a broker is missing")
    is_as_expected = True
    for suite in arguments.suite or SUITES:
        known = {} if arguments.kafka else KNOWN[suite]
        calls, findings = replay(Target(arguments.bootstrap), suite)
        judgement = judge(findings, known)
        for finding in judgement.unexpected:
            print("\n".join(describe(finding)))
        for key in judgement.stale:
            print(f"no difference any more: {key}")
        print(
            f"{suite}: {calls} calls, {len(findings)} differ, {len(judgement.unexpected)} unknown"
        )
        is_as_expected &= not any(judgement)
    return 0 if is_as_expected else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
