"""``tidelog group …``: the arguments of the commands on consumer groups."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, reported

if TYPE_CHECKING:
    from tidelog.cli.offset_reset import Way

app = typer.Typer(help="List, describe, reset and delete consumer groups.", no_args_is_help=True)

FAILED = "Error: "

GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]
GroupNames = Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="Names of groups.")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[:0,1]", help="Only this topic; repeatable."),
]


@app.command("list")
def list_(
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="STATE", help="Only groups in this state; repeatable."),
    ] = None,
    group_type: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help="Only classic or consumer; repeatable."),
    ] = None,
    long: Annotated[bool, typer.Option("--long", "-l", help="With type and state.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Print the names of groups."""
    from tidelog.cli.group_actions import print_list

    with reported(FAILED):
        print_list(
            bootstrap_server,
            states=_split(state),
            types=_split(group_type),
            with_state=long or bool(state),
            with_type=long or bool(group_type),
            as_json=json,
        )


def _split(values: list[str] | None) -> list[str]:
    return [part for value in values or () for part in value.split(",") if part]


@app.command()
def describe(
    groups: GroupNames = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="All that there are.")] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="How far in each partition (the default).")
    ] = False,
    members: Annotated[bool, typer.Option("--members", help="Who is in the group.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With --members: who has which partitions.")
    ] = False,
    state: Annotated[bool, typer.Option("--state", help="State and coordinator.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Print offsets and lag, members or state of groups, as kafka-consumer-groups does."""
    from tidelog.cli.group_actions import DescribeOptions, print_descriptions

    if bool(groups) == all_groups:
        raise typer.BadParameter("name groups, or give --all-groups")
    if offsets + members + state > 1:
        raise typer.BadParameter("one of --offsets, --members and --state")
    if verbose and not members:
        raise typer.BadParameter("--verbose goes with --members")
    options = DescribeOptions(all_groups, members, verbose, state, json)
    with reported(FAILED):
        print_descriptions(bootstrap_server, groups or [], options)


AllTopics = Annotated[
    bool, typer.Option("--all-topics", help="All that the group has offsets for.")
]
ToEarliest = Annotated[bool, typer.Option("--to-earliest", help="To the first record.")]
ToLatest = Annotated[bool, typer.Option("--to-latest", help="To the end.")]
ToCurrent = Annotated[bool, typer.Option("--to-current", help="To where it is.")]
ToOffset = Annotated[
    int | None, typer.Option("--to-offset", min=0, metavar="N", help="To this offset.")
]
ShiftBy = Annotated[
    int | None, typer.Option("--shift-by", metavar="N", help="So many on, or back (-N).")
]
ToDatetime = Annotated[
    str | None,
    typer.Option("--to-datetime", metavar="TIME", help="2026-01-31T12:00:00.000 (UTC)."),
]
ByDuration = Annotated[
    str | None, typer.Option("--by-duration", metavar="PnDTnHnMnS", help="So long ago.")
]
FromFile = Annotated[
    Path | None,
    typer.Option(
        "--from-file", metavar="FILE", exists=True, dir_okay=False, help="What --export printed."
    ),
]
Execute = Annotated[bool, typer.Option("--execute", help="Do it.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show what would be done (the default).")
]
Export = Annotated[bool, typer.Option("--export", help="Print as CSV for --from-file.")]


@app.command("reset-offsets")
def reset_offsets(
    group: GroupName,
    topic: Topics = None,
    all_topics: AllTopics = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOffset = None,
    shift_by: ShiftBy = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    from_file: FromFile = None,
    execute: Execute = False,
    dry_run: DryRun = False,
    export: Export = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Set the offsets of a group that has no members. Changes nothing without --execute."""
    from tidelog.cli.group_actions import reset_offsets as reset

    if execute and dry_run:
        raise typer.BadParameter("one of --execute and --dry-run")
    if from_file is None and bool(topic) == all_topics:
        raise typer.BadParameter("name topics with --topic, or give --all-topics")
    ways = {
        "--to-earliest": to_earliest or None,
        "--to-latest": to_latest or None,
        "--to-current": to_current or None,
        "--to-offset": to_offset,
        "--shift-by": shift_by,
        "--to-datetime": to_datetime,
        "--by-duration": by_duration,
        "--from-file": from_file,
    }
    with reported(FAILED):
        way = _way(group, ways)
        topics = topic or None
        reset(bootstrap_server, group, way, topics, execute=execute, export=export, as_json=json)


def _way(group: str, given: dict[str, bool | int | str | Path | None]) -> Way:
    from tidelog.cli import offset_reset as ways
    from tidelog.cli.failures import WrongUse
    from tidelog.cli.group_actions import now_ms

    chosen = [(name, value) for name, value in given.items() if value is not None]
    if len(chosen) != 1:
        raise typer.BadParameter(f"say where to: exactly one of {', '.join(given)}")
    match chosen[0]:
        case ("--to-earliest", _):
            return ways.ToEarliest()
        case ("--to-latest", _):
            return ways.ToLatest()
        case ("--to-offset", int(offset)):
            return ways.ToOffset(offset)
        case ("--shift-by", int(by)):
            return ways.ShiftBy(by)
        case ("--to-datetime", str(text)):
            return ways.ToTime(ways.parse_datetime_ms(text))
        case ("--by-duration", str(text)):
            return ways.ToTime(now_ms() - ways.parse_duration_ms(text))
        case ("--from-file", Path() as path):
            try:
                lines = path.read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise WrongUse(f"{path}: {error}") from None
            return ways.ToGiven(ways.parse_csv(lines, group))
        case _:
            return ways.ToCurrent()


@app.command()
def delete(
    groups: GroupNames = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Delete groups that have no members, and their offsets."""
    from tidelog.cli.group_actions import delete_groups

    if not groups:
        raise typer.BadParameter("name a group")
    with reported(FAILED):
        delete_groups(bootstrap_server, groups, as_json=json)


@app.command("delete-offsets")
def delete_offsets(
    group: GroupName,
    topic: Topics = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Forget a group's offsets in topics that it does not read any more."""
    from tidelog.cli.group_actions import delete_offsets as forget

    if not topic:
        raise typer.BadParameter("name a topic: --topic")
    with reported(FAILED):
        forget(bootstrap_server, group, topic, as_json=json)


@app.command()
def explain(
    group: GroupName,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Say why the group rebalanced lately, how long it took, and who held it up."""
    from tidelog.cli.group_explain import explain as tell

    with reported(FAILED):
        tell(bootstrap_server, group, as_json=json)
