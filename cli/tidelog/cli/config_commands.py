"""``tidelog config …``: whose settings, and which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidelog.cli.options import DEFAULT_BOOTSTRAP, AsJson, Bootstrap, reported

if TYPE_CHECKING:
    from tidelog.cli.configs import Entity

app = typer.Typer(help="Show and change settings while the cluster runs.", no_args_is_help=True)

Topic = Annotated[
    list[str] | None, typer.Option("--topic", metavar="NAME", help="Of a topic; repeatable.")
]
Broker = Annotated[
    list[int] | None, typer.Option("--broker", metavar="ID", min=0, help="Of a broker; repeatable.")
]
ClusterWide = Annotated[
    bool, typer.Option("--cluster", "--broker-defaults", help="Of all brokers together.")
]
Group = Annotated[
    list[str] | None, typer.Option("--group", metavar="NAME", help="Of a consumer group.")
]
EntityType = Annotated[
    str | None,
    typer.Option(
        "--entity-type", metavar="TYPE", help="As in kafka-configs: topics, brokers, groups."
    ),
]
EntityName = Annotated[
    str | None, typer.Option("--entity-name", metavar="NAME", help="Goes with --entity-type.")
]
EntityDefault = Annotated[
    bool, typer.Option("--entity-default", help="With --entity-type brokers: all brokers.")
]


@app.command()
def describe(
    topic: Topic = None,
    broker: Broker = None,
    cluster: ClusterWide = False,
    group: Group = None,
    entity_type: EntityType = None,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    show_all: Annotated[bool, typer.Option("--all", help="Also what nobody has changed.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Print settings, and where each comes from."""
    from tidelog.cli.configs import print_configs

    entities = _entities(topic, broker, cluster, group)
    entities += _entity(entity_type, entity_name, entity_default)
    _check(entities)
    with reported():
        print_configs(bootstrap_server, entities, show_all=show_all, as_json=json)


@app.command()
def alter(
    topic: Topic = None,
    broker: Broker = None,
    cluster: ClusterWide = False,
    group: Group = None,
    entity_type: EntityType = None,
    entity_name: EntityName = None,
    entity_default: EntityDefault = False,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A new value; repeatable."),
    ] = None,
    add_config: Annotated[
        list[str] | None,
        typer.Option("--add-config", metavar="A=1,B=[X,Y]", help="The same, as in kafka-configs."),
    ] = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--unset", "--delete-config", metavar="NAME,...", help="Back to what it was by default."
        ),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_BOOTSTRAP,
    json: AsJson = False,
) -> None:
    """Change settings; they take effect at once."""
    from tidelog.cli.configs import alter_configs, parse_added
    from tidelog.cli.properties import parse_pairs

    entities = _entities(topic, broker, cluster, group)
    entities += _entity(entity_type, entity_name, entity_default)
    _check(entities)
    with reported():
        values = parse_pairs("--set", set_ or [])
        for text in add_config or ():
            values |= parse_added(text)
        deleted = [name for text in delete_config or () for name in text.split(",") if name]
        if not values and not deleted:
            raise typer.BadParameter("say what to change: --set or --unset")
        alter_configs(bootstrap_server, entities, values, deleted, as_json=json)


def _entities(
    topics: list[str] | None, brokers: list[int] | None, cluster: bool, groups: list[str] | None
) -> list[Entity]:
    from tidelog.cli.configs import Entity, Kind

    return [
        *(Entity(Kind.TOPIC, name) for name in topics or ()),
        *(Entity(Kind.BROKER, str(node)) for node in brokers or ()),
        *([Entity(Kind.CLUSTER, "")] if cluster else []),
        *(Entity(Kind.GROUP, name) for name in groups or ()),
    ]


def _entity(kind: str | None, name: str | None, is_default: bool) -> list[Entity]:
    from tidelog.cli.configs import Entity, Kind

    if kind is None:
        if name is not None or is_default:
            raise typer.BadParameter("--entity-name and --entity-default go with --entity-type")
        return []
    kinds = {"topics": Kind.TOPIC, "brokers": Kind.BROKER, "groups": Kind.GROUP}
    if kind not in kinds:
        raise typer.BadParameter(f"--entity-type {kind}: there are {', '.join(kinds)}")
    if kind == "brokers" and is_default and name is None:
        return [Entity(Kind.CLUSTER, "")]
    if name is None or is_default or (kind == "brokers" and not name.isdigit()):
        raise typer.BadParameter(f"--entity-type {kind} needs --entity-name")
    return [Entity(kinds[kind], name)]


def _check(entities: list[Entity]) -> None:
    if not entities:
        raise typer.BadParameter("say whose: --topic, --broker, --cluster or --group")
