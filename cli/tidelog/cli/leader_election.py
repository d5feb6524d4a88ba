"""Leaders elected on demand: the preferred ones, or whoever is left (KIP-460)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from tidelog.cli.brokers import Brokers, Place, by_topic, error_text, patiently
from tidelog.cli.failures import CommandFailed
from tidelog.cli.partition_files import dashed
from tidelog.cli.questions import question
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey

ELECTIONS: Final = {"preferred": 0, "unclean": 1}
EXAMPLE: Final = '{"partitions": [{"topic": "orders", "partition": 0}]}'
_TIMEOUT_MS: Final = 30_000


def elect_leaders(
    bootstrap: str, election: str, places: Sequence[Place] | None, *, as_json: bool
) -> None:
    """``places`` None: wherever the leader is not the one wanted."""
    asked = None
    if places is not None:
        asked = [{"topic": topic, "partitions": ps} for topic, ps in by_topic(places).items()]
    request = question(
        ApiKey.ELECT_LEADERS,
        2,
        election_type=ELECTIONS[election],
        topic_partitions=asked,
        timeout=_TIMEOUT_MS,
    )
    with Brokers(bootstrap) as brokers:
        answer = patiently(lambda: brokers.any.ask(request))
    elected: list[str] = []
    valid: list[str] = []
    failed: dict[str, str] = {}
    for topic in answer.replica_election_results:
        for one in topic.partition_result:
            name = dashed((str(topic.topic), int(one.partition_id)))
            if int(one.error_code) == ErrorCode.ELECTION_NOT_NEEDED:
                valid.append(name)
            elif (text := error_text(one)) is not None:
                failed[name] = text
            else:
                elected.append(name)
    if not failed and (text := error_text(answer)) is not None:
        raise CommandFailed(f"no leader was elected: {text}")
    _report(election, elected, valid, failed, as_json=as_json)


def _report(
    election: str, elected: list[str], valid: list[str], failed: dict[str, str], *, as_json: bool
) -> None:
    if as_json:
        print(json.dumps({"elected": elected, "already_valid": valid, "failed": failed}))
    else:
        kind = election.upper()
        if elected:
            print(
                f"Successfully completed leader election ({kind}) for partitions "
                f"{', '.join(elected)}"
            )
        if valid:
            print(f"Valid replica already elected for partitions {', '.join(valid)}")
        if not elected and not valid and not failed:
            print("Valid replica already elected for all partitions")
    if failed:
        raise CommandFailed(
            "\n".join(
                f"Error completing leader election for {name}: {text}"
                for name, text in failed.items()
            )
        )
