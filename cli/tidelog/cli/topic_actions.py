"""What the commands on topics do: choose the topics, ask the cluster, say what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

from tidelog.cli.ask import Connection
from tidelog.cli.failures import CommandFailed
from tidelog.cli.topic_changes import (
    add_partitions,
    alter_configs,
    create_topic,
    delete_topic,
    parse_assignment,
    parse_configs,
)
from tidelog.cli.topic_text import Only, as_objects, description
from tidelog.cli.topics import describe_topics, list_topics, select


@dataclass(frozen=True, slots=True)
class CreateOptions:
    partitions: int | None
    replication_factor: int | None
    assignment: str | None
    configs: Sequence[str]
    if_not_exists: bool


@dataclass(frozen=True, slots=True)
class AlterOptions:
    partitions: int | None
    assignment: str | None
    configs: Sequence[str]
    deleted_configs: Sequence[str]


def create_topics(
    bootstrap: str, names: Sequence[str], options: CreateOptions, *, as_json: bool
) -> None:
    configs = parse_configs(options.configs)
    assignment = None if options.assignment is None else parse_assignment(options.assignment)
    created = []

    def create(connection: Connection, name: str) -> None:
        one = create_topic(
            connection,
            name,
            partitions=options.partitions,
            replication_factor=options.replication_factor,
            assignment=assignment,
            configs=configs,
            if_not_exists=options.if_not_exists,
        )
        if one is not None:
            created.append(asdict(one))
            if not as_json:
                print(f"Created topic {name}.")

    with Connection(bootstrap) as connection:
        _each(names, lambda name: create(connection, name))
    if as_json:
        print(json.dumps(created))


def print_names(
    bootstrap: str, wanted: Sequence[str], *, exclude_internal: bool, as_json: bool
) -> None:
    with Connection(bootstrap) as connection:
        names = select(list_topics(connection), wanted, exclude_internal=exclude_internal)
    if as_json:
        print(json.dumps(names))
    else:
        for name in names:
            print(name)


def print_descriptions(
    bootstrap: str,
    wanted: Sequence[str],
    *,
    only: Collection[Only],
    with_overrides: bool,
    exclude_internal: bool,
    if_exists: bool,
    as_json: bool,
) -> None:
    with Connection(bootstrap) as connection:
        there = list_topics(connection)
        names = _existing(there, wanted, if_exists=if_exists, exclude_internal=exclude_internal)
        topics = describe_topics(connection, names)
    if as_json:
        chosen = [topic for topic in topics if topic.configs or not with_overrides]
        print(json.dumps(as_objects(chosen, only)))
    else:
        for line in description(topics, only, with_overrides=with_overrides):
            print(line)


def alter_topics(
    bootstrap: str,
    wanted: Sequence[str],
    options: AlterOptions,
    *,
    if_exists: bool,
    as_json: bool,
) -> None:
    configs = parse_configs(options.configs)
    assignment = None if options.assignment is None else parse_assignment(options.assignment)

    def alter(connection: Connection, name: str) -> None:
        if options.partitions is not None:
            add_partitions(connection, name, options.partitions, assignment)
        if configs or options.deleted_configs:
            alter_configs(connection, name, configs, options.deleted_configs)

    _change(bootstrap, wanted, alter, "altered", if_exists=if_exists, as_json=as_json)


def delete_topics(bootstrap: str, wanted: Sequence[str], *, if_exists: bool, as_json: bool) -> None:
    _change(bootstrap, wanted, delete_topic, "deleted", if_exists=if_exists, as_json=as_json)


def _change(
    bootstrap: str,
    wanted: Sequence[str],
    change: Callable[[Connection, str], None],
    done: str,
    *,
    if_exists: bool,
    as_json: bool,
) -> None:
    changed: list[str] = []

    def change_one(connection: Connection, name: str) -> None:
        change(connection, name)
        changed.append(name)
        if not as_json:
            print(f"{done.capitalize()} topic {name}.")

    with Connection(bootstrap) as connection:
        names = _existing(list_topics(connection), wanted, if_exists=if_exists)
        _each(names, lambda name: change_one(connection, name))
    if as_json:
        print(json.dumps({done: changed}))


def _existing(
    there: Mapping[str, bool],
    wanted: Sequence[str],
    *,
    if_exists: bool,
    exclude_internal: bool = False,
) -> list[str]:
    for one in wanted:
        if not if_exists and not select(there, [one], exclude_internal=exclude_internal):
            raise CommandFailed(f"Topic '{one}' does not exist as expected")
    return select(there, wanted, exclude_internal=exclude_internal)


def _each(names: Sequence[str], act: Callable[[str], None]) -> None:
    """One that fails does not keep the others from being tried."""
    failures = []
    for name in names:
        try:
            act(name)
        except CommandFailed as failure:
            failures.append(str(failure))
    if failures:
        raise CommandFailed("\n".join(failures))
