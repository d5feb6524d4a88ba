"""``tidelog chaos …``: the arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.chaos_check import check
from tidelog.cli.chaos_summary import summary
from tidelog.cli.options import AsJson, reported

app = typer.Typer(
    help="Break a cluster on purpose and check what its clients saw.", no_args_is_help=True
)

Target = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        metavar="TARGET",
        help="local, netns or compose: a cluster that is started for the run; "
        "or HOST:PORT,… of one that runs, which is loaded but not broken.",
    ),
]
WorkloadName = Annotated[
    str,
    typer.Option(
        "--workload", "-w", metavar="NAME", help="append, copier, groups, table or mixed."
    ),
]
Faults = Annotated[
    str,
    typer.Option(
        "--faults",
        "-f",
        metavar="NAME,…",
        help="Faults and families of faults (tidelog chaos list); '' for none.",
    ),
]
Counts = Annotated[
    str,
    typer.Option(
        "--counts",
        metavar="NAME=N,…",
        help="Instead of --faults: do each so often, the next as soon as all are in sync, and end.",
    ),
]
Duration = Annotated[
    str | None,
    typer.Option(
        "--duration",
        "-d",
        metavar="TIME",
        help="90, 90s, 5m or 1h (90s); of a run with --counts, at most.",
        show_default=False,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", "-s", help="Draws which fault comes when; without it, any."),
]
Nodes = Annotated[int, typer.Option("--nodes", min=1, max=9, help="Of a cluster that is started.")]
Rate = Annotated[
    float, typer.Option("--rate", metavar="N", help="Records per second to write, at most.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="DIR", file_okay=False, help="For history and report (./chaos-TIME)."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "-o", metavar="NAME=VALUE", help="A setting of all nodes that are started; repeatable."
    ),
]
ComposeFile = Annotated[
    Path | None,
    typer.Option(
        "--compose-file",
        metavar="FILE",
        dir_okay=False,
        help="Of target compose (deploy/docker-compose.yml).",
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        file_okay=False,
        help="Keep data and logs of the nodes of local and netns here; without it they go.",
    ),
]
Unsafe = Annotated[
    list[str] | None,
    typer.Option(
        "--unsafe-switch",
        metavar="NAME",
        hidden=True,
        help="Takes a guard away from the nodes, to see that the checkers notice.",
    ),
]


@app.command()
def run(
    target: Target = "local",
    workload: WorkloadName = "mixed",
    faults: Faults = "kill-leader,kill-controller,pause-leader,cut",
    counts: Counts = "",
    duration: Duration = None,
    seed: Seed = None,
    nodes: Nodes = 3,
    rate: Rate = 2_000.0,
    output: Output = None,
    o: Settings = None,
    compose_file: ComposeFile = None,
    data_dir: DataDir = None,
    unsafe_switch: Unsafe = None,
) -> None:
    """Load a cluster, break it, and check the history; exit code 1 if anything is amiss."""
    from tidelog.cli.chaos_run import ChaosOptions, parse_duration, run_chaos
    from tidelog.cli.properties import parse_pairs

    with reported("tidelog chaos run: "):
        options = ChaosOptions(
            target=target,
            workload=workload,
            faults=faults,
            duration_s=None if duration is None else parse_duration(duration),
            seed=seed,
            nodes=nodes,
            rate=rate,
            output=output,
            settings=parse_pairs("-o", o or []),
            unsafe_switches=tuple(unsafe_switch or ()),
            compose_file=compose_file,
            counts=counts,
            data_dir=data_dir,
        )
        exit_code = run_chaos(options)
    raise typer.Exit(exit_code)


@app.command("list")
def list_all(json: AsJson = False) -> None:
    """The workloads, the faults with what each needs, and what this machine can do of them."""
    from tidelog.cli.chaos_list import list_chaos

    with reported("tidelog chaos list: "):
        list_chaos(as_json=json)


app.command("check")(check)
app.command("summary")(summary)
