"""docs/CLIENT.md lists the settings there are."""

from __future__ import annotations

from pathlib import Path

from tidelog.client.settings import TABLES, Role, Setting

DOCS = Path(__file__).parents[3] / "docs" / "CLIENT.md"


def cell(row: Setting | None) -> str:
    if row is None:
        return ""
    words = {"None": "–", "": '""', "True": "true", "False": "false"}
    text = words.get(str(row.default), str(row.default))
    return f"[{text}]" if row.fixed else text


def test_the_table_of_settings_is_that_of_the_code() -> None:
    roles = (Role.PRODUCER, Role.CONSUMER, Role.ADMIN)
    names = sorted({name for role in roles for name in TABLES[role]})
    expected = [
        f"| `{name}` | {' | '.join(cell(TABLES[role].get(name)) for role in roles)} |"
        for name in names
    ]
    text = DOCS.read_text(encoding="utf-8")
    table = text.split("| setting | producer | consumer | admin |\n|---|---|---|---|\n")[1]
    assert table.split("\n\n")[0].splitlines() == expected
