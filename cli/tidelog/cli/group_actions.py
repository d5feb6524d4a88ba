"""What the commands on groups do: ask, decide, print."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tidelog.cli.brokers import (
    Brokers,
    Place,
    by_topic,
    chosen_places,
    error_text,
    fail_on,
    parse_topic_partitions,
    patiently,
)
from tidelog.cli.failures import CommandFailed
from tidelog.cli.group_text import (
    group_object,
    list_text,
    members_text,
    offsets_text,
    position_object,
    state_text,
    warning,
)
from tidelog.cli.groups import (
    committed_offsets,
    describe_group,
    existing_group,
    list_groups,
    positions,
)
from tidelog.cli.offset_reset import Known, ToGiven, ToTime, Way, as_csv, plan_reset
from tidelog.cli.partition_offsets import EARLIEST, LATEST, UNKNOWN, Found, list_offsets
from tidelog.cli.questions import question
from tidelog.cli.tables import table
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey


def print_list(
    bootstrap: str,
    *,
    states: Sequence[str],
    types: Sequence[str],
    with_state: bool,
    with_type: bool,
    as_json: bool,
) -> None:
    with Brokers(bootstrap) as brokers:
        groups = list_groups(brokers, states, types)
    if as_json:
        print(json.dumps([asdict(one) for one in groups]))
    elif groups:
        print(list_text(groups, with_state=with_state, with_type=with_type))


@dataclass(frozen=True, slots=True)
class DescribeOptions:
    all_groups: bool = False
    members: bool = False
    verbose: bool = False
    state: bool = False
    as_json: bool = False


def print_descriptions(bootstrap: str, names: Sequence[str], options: DescribeOptions) -> None:
    with Brokers(bootstrap) as brokers:
        if options.all_groups:
            names = [one.group for one in list_groups(brokers)]
        groups = [existing_group(brokers, name) for name in names]
        if options.as_json:
            rows = [
                group_object(one)
                | {"offsets": [position_object(row) for row in positions(brokers, one)]}
                for one in groups
            ]
            print(json.dumps(rows))
            return
        if options.state:
            print(state_text(groups))
            return
        for index, group in enumerate(groups):
            if index:
                print()
            if (text := warning(group)) is not None:
                print(text, file=sys.stderr)
            if options.members:
                print(members_text(group, verbose=options.verbose))
            else:
                print(offsets_text(group, positions(brokers, group)))


def reset_offsets(
    bootstrap: str,
    name: str,
    way: Way,
    topics: Sequence[str] | None,
    *,
    execute: bool,
    export: bool,
    as_json: bool,
) -> None:
    """``topics`` None: all that the group has committed something for."""
    with Brokers(bootstrap) as brokers:
        _check_inactive(brokers, name)
        committed = committed_offsets(brokers, name)
        places = _places(brokers, name, way, topics, committed)
        plan = plan_reset(way, _known(brokers, places, committed, way))
        for text in plan.warnings:
            print(text, file=sys.stderr)
        if execute:
            _commit(brokers, name, plan.offsets)
    _print_plan(name, plan.offsets, execute=execute, export=export, as_json=as_json)


def _check_inactive(brokers: Brokers, name: str) -> None:
    group = describe_group(brokers, name)
    if group is not None and group.is_active:
        raise CommandFailed(
            f"Assignments can only be reset if the group '{name}' is inactive, but the current "
            f"state is {group.state}. Stop its {len(group.members)} members first "
            f"(tidelog group describe {name} --members)"
        )


def _places(
    brokers: Brokers,
    name: str,
    way: Way,
    topics: Sequence[str] | None,
    committed: Mapping[Place, int],
) -> dict[Place, int]:
    if isinstance(way, ToGiven):
        wanted = by_topic(way.offsets)
    elif topics is not None:
        wanted = parse_topic_partitions(topics)
    else:
        wanted = by_topic(committed)
    if not wanted:
        raise CommandFailed(f"group {name!r} has no committed offsets; name topics with --topic")
    return chosen_places(brokers, wanted)


def _known(
    brokers: Brokers, leaders: Mapping[Place, int], committed: Mapping[Place, int], way: Way
) -> dict[Place, Known]:
    earliest = _all(list_offsets(brokers, leaders, leaders, EARLIEST))
    latest = _all(list_offsets(brokers, leaders, leaders, LATEST))
    of_time: dict[Place, int] = {}
    if isinstance(way, ToTime):
        of_time = _all(list_offsets(brokers, leaders, leaders, way.timestamp_ms))
    return {
        place: Known(
            earliest[place],
            latest[place],
            committed.get(place),
            None if of_time.get(place, UNKNOWN) == UNKNOWN else of_time[place],
        )
        for place in leaders
    }


def _all(found: Mapping[Place, Found]) -> dict[Place, int]:
    for (topic, partition), one in found.items():
        if one.error is not None:
            raise CommandFailed(f"the offsets of {topic}-{partition}: {one.error}")
    return {place: one.offset for place, one in found.items()}


def _commit(brokers: Brokers, name: str, offsets: Mapping[Place, int]) -> None:
    topics = [
        {
            "name": topic,
            "partitions": [
                {
                    "partition_index": one,
                    "committed_offset": offsets[topic, one],
                    "committed_leader_epoch": -1,
                    "committed_metadata": "",
                }
                for one in partitions
            ],
        }
        for topic, partitions in by_topic(offsets).items()
    ]
    request = question(
        ApiKey.OFFSET_COMMIT,
        8,
        group_id=name,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=topics,
    )

    def first_problem(answer: Any) -> Any:
        rows = [one for topic in answer.topics for one in topic.partitions]
        return next((one for one in rows if int(one.error_code) != ErrorCode.NONE), rows[0])

    result = brokers.ask_coordinator(name, request, first_problem)
    if int(result.error_code) == ErrorCode.UNKNOWN_MEMBER_ID:
        raise CommandFailed(
            f"group {name!r} has members again, so that nothing was reset; stop them first"
        )
    fail_on(result, f"partition {result.partition_index} was not reset")


def _print_plan(
    name: str, offsets: Mapping[Place, int], *, execute: bool, export: bool, as_json: bool
) -> None:
    if as_json:
        rows = [
            {"group": name, "topic": topic, "partition": partition, "new_offset": offset}
            for (topic, partition), offset in sorted(offsets.items())
        ]
        print(json.dumps({"executed": execute, "offsets": rows}))
        return
    if export:
        print(as_csv(offsets))
        return
    header = ("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")
    print(table(header, [(name, *place, offsets[place]) for place in sorted(offsets)]))
    if not execute:
        print("Nothing was changed: add --execute to do it.", file=sys.stderr)


def delete_groups(bootstrap: str, names: Sequence[str], *, as_json: bool) -> None:
    deleted, failures = [], []
    with Brokers(bootstrap) as brokers:
        for name in names:
            request = question(ApiKey.DELETE_GROUPS, 2, groups_names=[name])
            result = brokers.ask_coordinator(name, request, lambda answer: answer.results[0])
            if (text := error_text(result)) is None:
                deleted.append(name)
            else:
                failures.append(f"Group '{name}' could not be deleted: {text}")
    if as_json:
        print(json.dumps({"deleted": deleted}))
    elif deleted:
        listed = ", ".join(f"'{name}'" for name in deleted)
        print(f"Deletion of requested consumer groups ({listed}) was successful.")
    if failures:
        raise CommandFailed("\n".join(failures))


def delete_offsets(bootstrap: str, name: str, topics: Sequence[str], *, as_json: bool) -> None:
    wanted = parse_topic_partitions(topics)
    with Brokers(bootstrap) as brokers:
        committed = committed_offsets(brokers, name)
        places = [
            place
            for place in sorted({*committed, *((t, p) for t, ps in wanted.items() for p in ps)})
            if place[0] in wanted and (not wanted[place[0]] or place[1] in wanted[place[0]])
        ]
        if not places:
            raise CommandFailed(
                f"group {name!r} has no committed offsets for {', '.join(sorted(wanted))}"
            )
        topics_asked = [
            {"name": topic, "partitions": [{"partition_index": one} for one in partitions]}
            for topic, partitions in by_topic(places).items()
        ]
        request = question(ApiKey.OFFSET_DELETE, 0, group_id=name, topics=topics_asked)
        answer = patiently(lambda: brokers.coordinator(name).ask(request))
    fail_on(answer, f"the offsets of group {name!r} were not deleted")
    results = {
        (str(topic.name), int(one.partition_index)): error_text(one)
        for topic in answer.topics
        for one in topic.partitions
    }
    _print_deleted(results, as_json=as_json)


def _print_deleted(results: Mapping[Place, str | None], *, as_json: bool) -> None:
    rows = [(*place, results[place] or "Successful") for place in sorted(results)]
    if as_json:
        objects = [
            {"topic": topic, "partition": partition, "error": results[topic, partition]}
            for topic, partition, _ in rows
        ]
        print(json.dumps(objects))
    else:
        print(table(("TOPIC", "PARTITION", "STATUS"), rows))
    if any(results.values()):
        raise CommandFailed("Some offsets were not deleted.")


def now_ms() -> int:
    return time.time_ns() // 1_000_000
