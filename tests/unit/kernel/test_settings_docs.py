"""The page about configuration is made from the tables."""

from __future__ import annotations

from pathlib import Path

from tidelog.kernel.settings.broker_table import BROKER_SETTINGS
from tidelog.kernel.settings.docs import render

PAGE = Path(__file__).parents[3] / "docs" / "CONFIGURATION.md"


def test_the_page_is_current() -> None:
    make = "python -m tidelog.kernel.settings.docs > docs/CONFIGURATION.md"
    assert PAGE.read_text() == render(), f"run: {make}"


def test_the_page_shows_every_broker_setting_once() -> None:
    page = render()
    section = page[page.index("## Brokers") : page.index("## Groups")]
    for name in BROKER_SETTINGS:
        assert section.count(f"\n| `{name}`") == 1
    assert "internal.segment.bytes" not in page
