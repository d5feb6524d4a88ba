"""``tidelog log …``: the arguments of the commands that look at the files of a log.

Exit codes: 0 all is well, 1 a problem was found, 2 the command was used wrongly.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.options import AsJson

app = typer.Typer(
    help="Look at, check and mend the files of a log, of Tidelog or of Apache Kafka.",
    no_args_is_help=True,
)

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        exists=True,
        dir_okay=False,
        readable=True,
        help=".log, .index, .timeindex, .txnindex, .snapshot, or a checkpoint or properties file.",
    ),
]
Directory = Annotated[
    Path,
    typer.Argument(
        metavar="DIR",
        exists=True,
        file_okay=False,
        readable=True,
        help="A data directory, or the directory of one partition.",
    ),
]


@app.command()
def dump(
    files: Files,
    print_data_log: Annotated[
        bool,
        typer.Option("--print-data-log", help="Print keys and values; implies --deep-iteration."),
    ] = False,
    deep_iteration: Annotated[
        bool, typer.Option("--deep-iteration", help="Print records, not only batches.")
    ] = False,
    verify_index_only: Annotated[
        bool,
        typer.Option("--verify-index-only", help="Check indexes against logs, print no entries."),
    ] = False,
    index_sanity_check: Annotated[
        bool,
        typer.Option("--index-sanity-check", help="Check that indexes would load at start-up."),
    ] = False,
    max_bytes: Annotated[
        int | None,
        typer.Option("--max-bytes", min=0, metavar="N", help="Read only so much of each .log."),
    ] = None,
    skip_record_metadata: Annotated[
        bool,
        typer.Option("--skip-record-metadata", help="Of records, print only keys and values."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Print what is in files, as kafka-dump-log does."""
    from tidelog.cli.dump import DumpOptions, dump_files

    options = DumpOptions(
        print_data=print_data_log,
        deep=deep_iteration or print_data_log,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
        max_bytes=max_bytes,
        skip_record_metadata=skip_record_metadata,
    )
    raise typer.Exit(dump_files([str(file) for file in files], options, as_json=json))


@app.command()
def verify(directory: Directory, json: AsJson = False) -> None:
    """Check all files below a data directory and list what is wrong."""
    from tidelog.cli.verify import verify_command

    raise typer.Exit(verify_command(str(directory), as_json=json))


@app.command()
def reindex(
    directory: Directory,
    index_interval_bytes: Annotated[
        int,
        typer.Option(
            "--index-interval-bytes",
            min=0,
            metavar="N",
            help="How many bytes of log lie between two entries; the topic's setting.",
        ),
    ] = 4096,
    json: AsJson = False,
) -> None:
    """Make .index, .timeindex and .txnindex anew from the .log files."""
    from tidelog.cli.reindex import reindex_command

    raise typer.Exit(reindex_command(str(directory), index_interval_bytes, as_json=json))


@app.command()
def compact(
    directory: Directory,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing. Required: nodes compact their logs.")
    ] = False,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="NAME=VALUE", help="A topic setting; may be repeated."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Tell what compaction would keep and drop, and what holds it back."""
    from tidelog.cli import exit_codes
    from tidelog.cli.compact import compact_command

    settings = [given.partition("=") for given in config or []]
    wrong = [name for name, equals, _ in settings if not (name and equals)]
    if not dry_run or wrong:
        reason = (
            f"--config takes NAME=VALUE, not {wrong[0]!r}"
            if wrong
            else ("a running node compacts its logs by itself; --dry-run tells what it would do")
        )
        typer.echo(reason, err=True)
        raise typer.Exit(exit_codes.USAGE)
    overrides = {name: value for name, _, value in settings}
    raise typer.Exit(compact_command(str(directory), overrides, as_json=json))
