"""Results of `make bench-peers`: samples become medians and ratios, and runs merge."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from bench.peers import __main__ as command
from bench.peers.experiments import (
    EXPERIMENTS,
    FULL,
    Attempts,
    Sample,
    longest_gap,
    percentile,
    turns,
)
from bench.peers.kafka_speakers import Kafka, Tidelog
from bench.peers.nats_peer import Nats
from bench.peers.peer import Absence, Peer, PeerFailed
from bench.peers.plots import chosen
from bench.peers.results import Results, gather, markdown, print_results

FAST = "produce 100 B, page cache"
SLOW = "failover gap"


def samples(peer: str, measure: str, *values: float) -> list[Sample]:
    better: Literal["higher", "lower"] = "lower" if measure == SLOW else "higher"
    return [Sample(peer, measure, value, "u", better) for value in values]


def results_of(*some: list[Sample]) -> Results:
    results = Results()
    for one in some:
        results.add(gather("e", "2026-01-01T00:00:00Z", one))
    return results


def test_a_ratio_is_of_medians() -> None:
    results = results_of(samples("tidelog", FAST, 10, 30, 20), samples("kafka", FAST, 10, 1, 99))
    [(row, at)] = results.rows()
    assert (row.name, row.value, row.unit) == (f"{FAST}: tidelog / kafka", 2.0, "×")
    assert (row.goal_text, row.met) == ("≥ 1.50", True)
    assert at == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(("own", "met"), [(0.7, True), (0.9, False)])
def test_a_time_has_a_goal_that_is_an_upper_bound(own: float, met: bool) -> None:
    results = results_of(samples("tidelog", SLOW, own), samples("kafka", SLOW, 10.0))
    [(row, _)] = results.rows()
    assert (row.goal_text, row.met) == ("≤ 0.080", met)


def test_other_peers_have_no_goal() -> None:
    results = results_of(samples("tidelog", FAST, 1), samples("nats", FAST, 2))
    [(row, _)] = results.rows()
    assert row.goal is None


def test_a_peer_alone_and_a_zero_give_no_ratio() -> None:
    results = results_of(samples("kafka", FAST, 5), samples("tidelog", SLOW, 1))
    results.add(gather("e", "t", samples("kafka", SLOW, 0.0)))
    assert results.rows() == []


def test_runs_merge_and_a_newer_one_replaces_what_it_measured(tmp_path: Path) -> None:
    path = tmp_path / "peers.json"
    first = results_of(samples("tidelog", FAST, 1, 2, 3), samples("kafka", FAST, 4))
    first.tell("versions", {"kafka": "1"})
    first.tell_absence("nats", "all", Absence("not here", "make setup-peers"))
    first.save(path)

    second = Results.load(path)
    assert second.measured == first.measured
    second.add(gather("e", "later", samples("tidelog", FAST, 2) + samples("kafka", FAST, 8)))
    second.tell("versions", {"tidelog": "2"})
    second.save(path)

    stored = json.loads(path.read_text(encoding="utf-8"))
    assert stored["benchmark"] == "peers"
    [row] = stored["rows"]
    assert (row["value"], row["at"], row["met"]) == (0.25, "later", False)
    assert stored["about"]["versions"] == {"kafka": "1", "tidelog": "2"}
    assert "nats: all" in stored["about"]["skipped"]


def test_a_peer_is_compared_with_what_tidelog_did_in_the_same_run() -> None:
    results = Results()
    results.add(gather("e", "1", samples("tidelog", FAST, 10) + samples("kafka", FAST, 5)))
    results.add(gather("e", "2", samples("tidelog", FAST, 40) + samples("nats", FAST, 10)))
    results.add(gather("e", "3", samples("tidelog", FAST, 60) + samples("nats", FAST, 20)))
    assert [(row.name[-5:], row.value, at) for row, at in results.rows()] == [
        ("kafka", 2.0, "1"),
        (" nats", 3.0, "3"),
    ]
    assert [one.at for one in results.measured if one.peer == "tidelog"] == ["1", "3"]
    shown = results.of("tidelog", FAST)
    assert shown is not None
    assert shown.median == 10


def test_all_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    results = results_of(samples("tidelog", FAST, 30), samples("kafka", FAST, 10))
    results.tell_absence("nats", "all", Absence("not here", "make setup-peers"))
    print_results(results, ["kafka", "redis"])
    printed = capsys.readouterr().out
    assert "10.0 (3.00×)" in printed
    assert "skipped nats: all: not here; to have it: make setup-peers" in printed


def test_a_table_for_the_docs() -> None:
    results = results_of(samples("tidelog", SLOW, 1.0), samples("kafka", SLOW, 10.0))
    assert markdown(results, ["kafka"]).splitlines() == [
        "| measure | unit | tidelog | kafka | goal | met |",
        "|---|---|---:|---:|---|---|",
        "| failover gap | u | 1.00 | 10.0 (0.100×) | ≤ 0.080 | **no** |",
    ]


def test_a_picture_shows_what_can_be_compared() -> None:
    results = results_of(
        samples("tidelog", FAST, 1), samples("kafka", FAST, 1), samples("kafka", SLOW, 1)
    )
    assert chosen(results, ("produce", "failover")) == [FAST]


def test_peers_take_turns() -> None:
    own, other, third = Tidelog(), Kafka(), Nats()
    assert [peer for _, peer in turns([own, other, third], 2)] == [own, other, third, own, other]


def test_a_gap_is_the_longest_silence_behind_the_kill() -> None:
    assert longest_gap([0.0, 5.0, 5.1, 7.1, 7.2], since=5.05) == pytest.approx(2.0)


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 3), (0.99, 4), (1.0, 4)])
def test_percentiles(share: float, value: float) -> None:
    assert percentile([4, 1, 3, 2], share) == value


def test_an_unknown_peer_or_experiment_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--peers", "kafka,pulsar"], ["--only", "speed"]):
        with pytest.raises(SystemExit) as ended:
            command.parse(arguments)
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert arguments[1].split(",")[-1] in said
        assert "kafka" in said or "start" in said


def test_an_experiment_that_fails_keeps_nothing_and_does_not_end_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> Iterator[Sample]:
        yield from samples("tidelog", FAST, 1)
        raise PeerFailed("no tide today")

    monkeypatch.setattr(command, "EXPERIMENTS", {"start": fails})
    results = Results()
    failure = command.run("start", [Tidelog()], FULL, results)
    assert failure == "start: no tide today"
    assert results.measured == []


def test_a_peer_that_fails_has_no_more_turns_and_the_others_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, other = Tidelog(), Kafka()
    asked = []

    def turn(peer: Peer) -> Iterator[Sample]:
        asked.append(peer.name)
        yield from samples(peer.name, FAST, 1)
        if peer is other:
            raise ValueError("an error of its client's own")

    def takes_turns(peers: Sequence[Peer], _: object) -> Iterator[Sample]:
        attempts = Attempts()
        for _, peer in turns(peers, 2):
            yield from attempts.of(peer, partial(turn, peer))
        attempts.tell()

    monkeypatch.setattr(command, "EXPERIMENTS", {"start": takes_turns})
    results = Results()
    failure = command.run("start", [own, other], FULL, results)
    assert asked == ["tidelog", "kafka", "tidelog"]
    assert failure == 'start: kafka: ValueError("an error of its client\'s own")'
    assert [(one.peer, one.values) for one in results.measured] == [("tidelog", (1, 1))]


def test_options_scale_the_work() -> None:
    full = command.scale_of(command.parse([]))
    quick = command.scale_of(command.parse(["--quick", "--small", "--rounds", "2"]))
    assert (full.rounds, full.log_gb) == (3, 5.0)
    assert (quick.rounds, quick.log_gb) == (2, 0.5)
    assert quick.seconds < full.seconds
    assert set(EXPERIMENTS) >= {"start", "failover", "recovery"}
