"""The report shows what a reader needs, escapes what it shows, and stays small."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from chaos_pages import example_run
from chaos_scripts import Script, header

from tidelog.chaos.history import (
    FaultBand,
    History,
    Note,
    PartitionState,
    RunEnd,
    Sample,
)
from tidelog.chaos.report import render_report
from tidelog.chaos.report.drawing import TimeScale, clock_time, decades, round_steps
from tidelog.chaos.report.lanes import MOST_PARTITIONS
from tidelog.chaos.report.tables import SHOWN_PER_KIND
from tidelog.chaos.verdict import judge

VOID = {"meta"}


def rendered(history: History) -> str:
    return render_report(history, judge(history))


def drawings(page: str) -> dict[str, ElementTree.Element]:
    """The images by their ids; that they can be read says that they are well formed."""
    found = [ElementTree.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]
    return {image.attrib["id"]: image for image in found}


def of_class(image: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    return [one for one in image.iter() if name in one.get("class", "").split()]


class _Nesting(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_needs_nothing_but_itself() -> None:
    page = rendered(example_run(lost=3))
    nesting = _Nesting()
    nesting.feed(page)
    assert nesting.open == []
    assert not nesting.tags & {"script", "link", "img", "iframe"}
    assert re.findall(r"https?:|url\(|@import", page) == []


def test_it_says_what_ran_and_how_to_repeat_it() -> None:
    page = rendered(example_run())
    for text in ("append on local", "seed 7", "tidelog chaos run --seed 7", "0.1.0", "no anomaly"):
        assert text in page


def test_the_timeline_has_a_band_per_fault_and_three_curves() -> None:
    history = example_run()
    image = drawings(rendered(history))["timeline"]
    assert len(of_class(image, "mark")) == len(history.faults)
    assert len(of_class(image, "tint")) == len(history.faults)
    for name in ("throughput", "p50", "p99"):
        (curve,) = of_class(image, name)
        assert len(curve.attrib["d"]) > 100
    first = history.faults[0]
    title = of_class(image, "mark")[0].find("title")
    assert title is not None
    assert title.text is not None
    assert first.detail in title.text


def test_the_lanes_show_leaders_isr_and_nodes() -> None:
    image = drawings(rendered(example_run()))["leadership"]
    titles = [one.text or "" for one in image.iter("title")]
    assert any(text.startswith("events-0: leader 1 (epoch 0); ISR 1, 2, 3") for text in titles)
    assert any(text.startswith("events-0: leader 2 (epoch 1); ISR 2, 3") for text in titles)
    assert any(text.startswith("events-0: no leader") for text in titles)
    assert any(text.startswith("node 1: not up") for text in titles)
    assert of_class(image, "isr")


def test_gaps_are_drawn_and_told_per_fault() -> None:
    history = example_run()
    page = rendered(history)
    assert len(of_class(drawings(page)["gaps"], "dot")) == len(history.faults)
    for fault in history.faults:
        assert fault.detail in page


def test_lost_records_are_named_with_the_operations_that_show_it() -> None:
    history = example_run(lost=3)
    page = rendered(history)
    assert "3 anomalies" in page
    for anomaly in judge(history).anomalies:
        assert anomaly.text in page
        assert f"append {anomaly.operations[0].key}#" in page


def test_of_many_anomalies_the_rest_is_named() -> None:
    script = Script()
    for number in range(SHOWN_PER_KIND + 30):
        script.append("a", number, number)
    script.read_all(end=0)
    page = rendered(script.history())
    assert page.count('class="anomaly"') == SHOWN_PER_KIND
    assert f"<li>a#{SHOWN_PER_KIND + 29} events-0 @{SHOWN_PER_KIND + 29}</li>" in page


def test_whatever_text_there_is_is_escaped() -> None:
    evil = "<script>alert('x')</script>&\"\ud800"
    script = Script()
    script.append(evil, 0, 0, topic=evil)
    script.append(evil, 1, 1, topic=evil)
    script.read_all((0, evil, 0), end=1, topic=evil)
    state = PartitionState(evil, 0, 1, 0, (1,), (1,))
    run = replace(
        header(), command=evil, target=evil, workload=evil, faults=(evil,), started_at=evil,
        environment={evil: evil},
    )  # fmt: skip
    history = History(
        run,
        tuple(replace(one, client=evil, error=evil) for one in script.operations),
        (FaultBand(1, evil, evil, (1,), 1.0, 2.0, evil),),
        (Sample(1.0, 1, (1,), (state,)),),
        (Note(1.0, evil),),
        RunEnd(10.0, False, (evil,)),
    )
    page = rendered(history)
    page.encode("utf-8")
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 10


def test_a_caveat_stands_near_the_top() -> None:
    script = Script()
    script.append("a", 0, 0)
    page = rendered(script.history())
    assert "1 acknowledged writes of events-0 were not looked for" in page
    assert page.index("were not looked for") < page.index("Throughput and latency")


@pytest.mark.parametrize("is_whole", [True, False])
def test_an_empty_run_has_a_report_too(is_whole: bool) -> None:
    page = rendered(Script().history(is_whole=is_whole))
    assert "There were none." in page
    assert "timeline" in drawings(page)


def test_more_operations_make_no_larger_page() -> None:
    few = example_run(30, every_ms=10)
    many = example_run(30, every_ms=1)
    assert len(many.operations) > 8 * len(few.operations)
    assert len(rendered(many)) < 1.2 * len(rendered(few))


def test_only_so_many_partitions_are_drawn() -> None:
    states = tuple(PartitionState("t", number, 1, 0, (1,), (1,)) for number in range(50))
    history = History(header(), (), samples=(Sample(1.0, 1, (1,), states),), end=RunEnd(2.0, False))
    page = rendered(history)
    assert f"{50 - MOST_PARTITIONS} more partitions are not drawn" in page


@pytest.mark.parametrize(
    ("most", "steps"),
    [
        (0, [0, 1]),
        (3, [0, 1, 2, 3]),
        (100, [0, 25, 50, 75, 100]),
        (2100, [0, 1000, 2000, 3000]),
        (0.4, [0, 0.1, 0.2, 0.3, 0.4]),
    ],
)
def test_steps_are_round_and_reach_far_enough(most: float, steps: list[float]) -> None:
    assert round_steps(most) == pytest.approx(steps)


def test_decades_enclose_their_values() -> None:
    assert decades(2, 900) == [1, 10, 100, 1000]
    assert decades(1, 1) == [1, 10]
    assert decades(0.5, 10) == [0.1, 1, 10]


@pytest.mark.parametrize("end_s", [0, 1, 7, 60, 90, 3600, 7 * 86400])
def test_times_are_marked_but_not_too_often(end_s: int) -> None:
    ticks = list(TimeScale(end_s * 1000.0).ticks_s())
    assert 1 <= len(ticks) <= 13
    assert ticks[-1] <= end_s


def test_times_read_like_a_clock() -> None:
    assert [clock_time(at) for at in (0, 65, 3661.9)] == ["0:00", "1:05", "1:01:01"]
