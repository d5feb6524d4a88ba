"""Writes docs/CONFIGURATION.md from the tables: `python -m tidelog.kernel.settings.docs`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Final

from tidelog.kernel.settings.broker_table import BROKER_SETTINGS
from tidelog.kernel.settings.group_table import GROUP_SETTINGS
from tidelog.kernel.settings.load import KNOWN_NAMES
from tidelog.kernel.settings.refusals import NAMES_THAT_MAY_BE_REFUSED, may_be_refused
from tidelog.kernel.settings.topic_table import TOPIC_SETTINGS
from tidelog.kernel.settings.types import Setting, Synonym, Table, to_text

_INTRODUCTION: Final = """\
# Configuration

<!-- Made by `python -m tidelog.kernel.settings.docs > docs/CONFIGURATION.md`; do not edit. -->

Tidelog takes Kafka's settings by Kafka's names. A node reads, strongest first:

1. overrides, `-o name=value`;
2. environment variables `TIDELOG_…`, then `KAFKA_…`: after the prefix `_` stands for a dot, `__`
   for an underscore, `___` for a dash, so `KAFKA_NUM_PARTITIONS=3` is `num.partitions=3`;
3. a properties file;
4. the defaults below.

A setting of Kafka that has no effect here is accepted, and a warning at start lists it. One whose
value promises what Tidelog lacks (encryption, authentication, an authorizer, remote storage,
plug-ins for the JVM) is refused. A name that neither knows is an error; in the environment only if
it looks like a slip of the pen.

The column *change*: **R** takes a restart, **B** can change for one broker while it runs, **C** for
one broker or for all. *Room* is the part of Tidelog that gives the setting its effect. Settings
marked † are Tidelog's own. Sizes are in bytes; the end of a name says the unit of a time.
"""

_REFUSED: Final = """\
## Refused when turned on

Also everything that begins with `sasl.`, `ssl.keystore.`, `ssl.truststore.`, `ssl.key.` or
`config.providers.`, the same under `listener.name.<listener>.`, listeners that would speak `SSL` or
`SASL_…`, and `remote.storage.enable=true` on a topic.
"""


def render() -> str:
    """The whole page."""
    return "\n".join(
        [
            _INTRODUCTION,
            *_section("Topics", "Each may be given per topic and changed while it is in use. Where"
                      " a topic gives none, the first broker setting listed counts.",
                      TOPIC_SETTINGS, "broker setting"),
            *_section("Brokers and controllers", "Given per node.", BROKER_SETTINGS, "else"),
            *_section("Groups", "Each may be given per consumer group.", GROUP_SETTINGS,
                      "broker setting"),
            _REFUSED,
            *_list(NAMES_THAT_MAY_BE_REFUSED),
            "",
            "## Accepted without effect",
            "",
            *_list(n for n in KNOWN_NAMES if n not in BROKER_SETTINGS and not may_be_refused(n)),
            "",
        ]
    )  # fmt: skip


def _section(title: str, text: str, rows: Table, synonyms: str) -> list[str]:
    return [
        f"## {title}",
        "",
        text,
        "",
        f"| setting | type | default | allowed | {synonyms} | change | room | what it does |",
        "|---|---|---|---|---|---|---|---|",
        *(_line(row) for row in rows.values() if not row.hidden),
        "",
    ]


def _line(row: Setting) -> str:
    cells = (
        f"`{row.name}`" + (" †" if row.ours else ""),
        row.kind.name.lower(),
        _default(row),
        "" if row.allowed is None else str(row.allowed),
        ", ".join(_synonym(one) for one in row.synonyms),
        row.update.value,
        row.room.value,
        row.doc,
    )
    return "| " + " | ".join(cells) + " |"


def _default(row: Setting) -> str:
    text = to_text(row.default)
    if text is None:
        return "**required**" if row.required else "none"
    return f"`{text}`" if text else "empty"


def _synonym(synonym: Synonym) -> str:
    times = f" × {synonym.factor}" if synonym.factor != 1 else ""
    return f"`{synonym.name}`{times}"


def _list(names: Iterable[str]) -> list[str]:
    text = ", ".join(f"`{name}`" for name in sorted(names))
    return textwrap.wrap(text, 100, break_on_hyphens=False, break_long_words=False)


if __name__ == "__main__":
    print(render(), end="")
