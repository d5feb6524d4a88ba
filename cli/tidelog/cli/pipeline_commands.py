"""``tidelog pipeline …``: the arguments of the jobs on Spark.

Exit codes: 0 done, 1 it could not be done or an audit found a difference, 2 used wrongly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_type_hints

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, reported

if TYPE_CHECKING:
    from tidelog.cli.pipeline import HowToRun

app = typer.Typer(
    help="Archive, summarise, replay and compare topics on Spark (the extra spark).",
    no_args_is_help=True,
)

PLACE = "TOPIC, TOPIC@HOST:PORT, lake:DIR#TOPIC or segments:DIR#TOPIC."

Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Topics to read.")]
From = Annotated[str, typer.Argument(metavar="FROM", help=PLACE)]
Master = Annotated[
    str | None,
    typer.Option("--master", metavar="URL", help="Where Spark runs; local[*] by default."),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated."),
]
SourceOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--source-option", metavar="NAME=VALUE", help="Of format tidelog or tidelog-segments."
    ),
]
SinkOptions = Annotated[
    list[str] | None,
    typer.Option("--sink-option", metavar="NAME=VALUE", help="Of writing with format tidelog."),
]
MetricsFile = Annotated[
    Path | None,
    typer.Option("--metrics-file", metavar="FILE", help="For Prometheus' textfile collector."),
]
AtLeastOnce = Annotated[
    bool, typer.Option("--at-least-once", help="Faster; a retry may write records twice.")
]


@dataclass(frozen=True, slots=True)
class OnSpark:
    """The options of every job: each field is one."""

    master: Master = None
    conf: Conf = None
    metrics_file: MetricsFile = None
    json: AsJson = False

    def how(self, labels: Mapping[str, str]) -> HowToRun:
        from tidelog.cli.pipeline import HowToRun, pairs

        return HowToRun(
            self.master, pairs("--conf", self.conf), self.json, self.metrics_file, labels
        )


def on_spark(command: Callable[..., None]) -> Callable[..., None]:
    """A command that gets the options of every job as ``spark``; typer sees them one by one."""
    hints = get_type_hints(OnSpark, include_extras=True)
    own = signature(command, eval_str=True).parameters.values()
    shown = [one for one in own if one.name != "spark"] + [
        Parameter(one.name, Parameter.KEYWORD_ONLY, default=one.default, annotation=hints[one.name])
        for one in fields(OnSpark)
    ]

    @wraps(command)
    def run(**given: object) -> None:
        spark = OnSpark(**{name: given.pop(name) for name in hints})  # type: ignore[arg-type]
        command(**given, spark=spark)

    run.__signature__ = Signature(shown)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in shown}
    return run


@app.command()
@on_spark
def archive(
    topics: Topics,
    lake: Annotated[str, typer.Option("--lake", metavar="DIR", help="Where Parquet goes.")],
    follow: Annotated[bool, typer.Option("--follow", help="Run on until Ctrl-C.")] = False,
    max_records_per_batch: Annotated[
        int, typer.Option(min=1, metavar="N", help="Read at most so many at once.")
    ] = 5_000_000,
    max_records_per_file: Annotated[
        int, typer.Option(min=1, metavar="N", help="Write at most so many into one file.")
    ] = 5_000_000,
    min_records_per_batch: Annotated[
        int, typer.Option(min=1, metavar="N", help="With --follow: wait for so many …")
    ] = 100_000,
    max_delay: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="… but no longer than this.")
    ] = 300.0,
    codec: Annotated[
        str, typer.Option("--codec", metavar="CODEC", help="snappy, zstd, gzip, lz4 or none.")
    ] = "snappy",
    allow_data_loss: Annotated[
        bool, typer.Option("--allow-data-loss", help="Go on behind records that are gone.")
    ] = False,
    source_option: SourceOptions = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    *,
    spark: OnSpark,
) -> None:
    """Write topics to a lake of Parquet files, each record once; run again, it goes on."""
    with reported():
        from tidelog.cli.pipeline import pairs, run_until_interrupted
        from tidelog.pipeline.jobs.archive import ArchiveOptions
        from tidelog.pipeline.jobs.archive import archive as run

        options = ArchiveOptions(
            bootstrap_server,
            tuple(topics),
            lake,
            max_records_per_batch=max_records_per_batch,
            max_records_per_file=max_records_per_file,
            codec=codec,
            fail_on_data_loss=not allow_data_loss,
            follow=follow,
            min_records_per_batch=min_records_per_batch,
            max_delay_s=max_delay,
            source_options=pairs("--source-option", source_option),
        )
        how = spark.how({"topics": ",".join(topics)})
        run_until_interrupted("archive", how, run, options, follows=follow)


@app.command()
@on_spark
def snapshot(
    source: From,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="DIR", help="Parquet goes here.")
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    files: Annotated[
        int | None, typer.Option("--files", min=1, metavar="N", help="At most so many files.")
    ] = None,
    source_option: SourceOptions = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    *,
    spark: OnSpark,
) -> None:
    """Write the latest value of each key; keys whose latest is a tombstone are left out."""
    with reported():
        from tidelog.cli.pipeline import pairs, run_job, translated
        from tidelog.pipeline.jobs.records import parse_place
        from tidelog.pipeline.jobs.snapshot import SnapshotOptions
        from tidelog.pipeline.jobs.snapshot import snapshot as run

        with translated():
            more = pairs("--source-option", source_option)
            place = parse_place(source, bootstrap_server, None, more)
        options = SnapshotOptions(place, output, overwrite, files)
        how = spark.how({"from": source})
        run_job("snapshot", how, lambda session, progress: run(session, options, progress=progress))


@app.command()
@on_spark
def replay(
    source: From,
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="Where records go.")],
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="Of this replay; the topic's by default."),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="DIR", help="Keeps how far it is; within a lake unless."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=1, metavar="N", help="Records per second at most.")
    ] = None,
    chunk_records: Annotated[
        int, typer.Option(min=1, metavar="N", help="Note how far it is after so many.")
    ] = 500_000,
    partition_by_key: Annotated[
        bool, typer.Option("--partition-by-key", help="Instead of the original partitions.")
    ] = False,
    at_least_once: AtLeastOnce = False,
    source_option: SourceOptions = None,
    sink_option: SinkOptions = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    *,
    spark: OnSpark,
) -> None:
    """Write records to a topic as they once were: keys, times, headers and partitions."""
    with reported():
        from tidelog.cli.pipeline import pairs, run_job, translated
        from tidelog.pipeline.jobs.records import parse_place
        from tidelog.pipeline.jobs.replay import ReplayOptions
        from tidelog.pipeline.jobs.replay import replay as run

        with translated():
            more = pairs("--source-option", source_option)
            place = parse_place(source, bootstrap_server, to, more)
        options = ReplayOptions(
            place,
            bootstrap_server,
            to,
            name or to,
            state=state,
            records_per_second=rate,
            chunk_records=chunk_records,
            keep_partitions=not partition_by_key,
            exactly_once=not at_least_once,
            sink_options=pairs("--sink-option", sink_option),
        )
        how = spark.how({"from": source, "to": to})
        run_job("replay", how, lambda session, progress: run(session, options, progress=progress))


Schema = Annotated[
    str,
    typer.Option(
        "--schema", metavar="DDL", help="Of the JSON values: 'country STRING, amount DOUBLE'."
    ),
]
Metrics = Annotated[
    list[str],
    typer.Option("--metric", metavar="NAME=SQL", help="total=sum(amount); may be repeated."),
]
Checkpoint = Annotated[
    str, typer.Option("--checkpoint", metavar="DIR", help="Keeps open windows and offsets.")
]
GroupBy = Annotated[
    list[str] | None, typer.Option("--group-by", metavar="COLUMN", help="May be repeated.")
]
Window = Annotated[str, typer.Option("--window", metavar="TIME", help="How long a window is.")]
Slide = Annotated[
    str | None, typer.Option("--slide", metavar="TIME", help="Begin a window so often.")
]
Watermark = Annotated[
    str, typer.Option("--watermark", metavar="TIME", help="How late records may be.")
]
EventTime = Annotated[
    str | None,
    typer.Option("--event-time", metavar="COLUMN", help="Instead of the record's own time."),
]
FailOnMalformed = Annotated[
    bool, typer.Option("--fail-on-malformed", help="Instead of skipping and counting.")
]
FollowEvery = Annotated[
    str | None, typer.Option("--follow", metavar="TIME", help="Run on, a batch so often.")
]


@app.command()
@on_spark
def aggregate(
    topics: Topics,
    to: Annotated[str, typer.Option("--to", metavar="TOPIC", help="Where results go.")],
    schema: Schema,
    metric: Metrics,
    checkpoint: Checkpoint,
    group_by: GroupBy = None,
    window: Window = "1 minute",
    slide: Slide = None,
    watermark: Watermark = "10 seconds",
    event_time: EventTime = None,
    fail_on_malformed: FailOnMalformed = False,
    follow: FollowEvery = None,
    at_least_once: AtLeastOnce = False,
    source_option: SourceOptions = None,
    sink_option: SinkOptions = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    *,
    spark: OnSpark,
) -> None:
    """Aggregate JSON values over windows of time, and write each window to a topic once."""
    with reported():
        from tidelog.cli.pipeline import pairs, run_until_interrupted
        from tidelog.pipeline.jobs.aggregate import AggregateOptions
        from tidelog.pipeline.jobs.aggregate import aggregate as run

        options = AggregateOptions(
            bootstrap_server,
            tuple(topics),
            to,
            checkpoint,
            value_schema=schema,
            metrics=pairs("--metric", metric),
            group_by=tuple(group_by or ()),
            window=window,
            slide=slide,
            watermark=watermark,
            event_time=event_time,
            fail_on_malformed=fail_on_malformed,
            exactly_once=not at_least_once,
            follow_every=follow,
            source_options=pairs("--source-option", source_option),
            sink_options=pairs("--sink-option", sink_option),
        )
        how = spark.how({"topics": ",".join(topics), "to": to})
        run_until_interrupted("aggregate", how, run, options, follows=follow is not None)


@app.command()
@on_spark
def audit(
    left: Annotated[str, typer.Argument(metavar="LEFT", help=PLACE)],
    right: Annotated[str, typer.Argument(metavar="RIGHT", help=PLACE)],
    by_offset: Annotated[
        bool | None,
        typer.Option(
            "--by-offset/--by-content",
            help="Whether offsets must be the same, too; by default if the topics' names are.",
        ),
    ] = None,
    source_option: SourceOptions = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    *,
    spark: OnSpark,
) -> None:
    """Compare a topic with its archive, a copy or another cluster's; exit code 1: they differ."""
    with reported():
        from tidelog.cli.failures import CommandFailed
        from tidelog.cli.pipeline import pairs, run_job, translated
        from tidelog.pipeline.jobs.audit import AuditOptions
        from tidelog.pipeline.jobs.audit import audit as run
        from tidelog.pipeline.jobs.records import LakePlace, parse_place

        with translated():
            one = parse_place(left, bootstrap_server, None, pairs("--source-option", source_option))
            other = parse_place(right, bootstrap_server, one.topic)
        options = AuditOptions(one, other, by_offset)
        how = spark.how({"left": left, "right": right})
        summary = run_job(
            "audit", how, lambda session, progress: run(session, options, progress=progress).summary
        )
        if summary.problems:
            archive_is_there = isinstance(one, LakePlace) or isinstance(other, LakePlace)
            what = "the archive differs" if archive_is_there else "they differ"
            raise CommandFailed(f"{what}: {len(summary.problems)} problems")


@app.command()
@on_spark
def verify(
    history: Annotated[str, typer.Argument(metavar="HISTORY", help="history.jsonl of a run.")],
    *,
    spark: OnSpark,
) -> None:
    """Judge a history of tidelog chaos that is too large for tidelog chaos check; 1: anomalies."""
    with reported():
        from tidelog.cli.chaos_part import judge_part
        from tidelog.cli.failures import CommandFailed
        from tidelog.cli.pipeline import run_job
        from tidelog.pipeline.jobs.verify import verify as run

        how = spark.how({"history": history})
        summary = run_job(
            "verify",
            how,
            lambda session, progress: run(session, history, judge_part, progress=progress).summary,
        )
        if summary.problems:
            raise CommandFailed("the history shows what must not be")


@app.command()
def script(json: AsJson = False) -> None:
    """Print the path of a file to give to spark-submit, in front of a job and its options."""
    from json import dumps

    from tidelog.cli import pipeline_main

    path = pipeline_main.__file__
    typer.echo(dumps({"script": path}) if json else path)
