"""The image by itself: its size, who runs in it, and what it says to bad input."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from compose_cluster import run

pytestmark = [pytest.mark.docker, pytest.mark.timeout(120)]

SIZE_GOAL_MB = 200
SMALL_BASE = "tidelog-base:bookworm"
ONE_OF_THREE = {
    "KAFKA_NODE_ID": "1",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@a:9093,2@b:9093,3@c:9093",
    "KAFKA_LISTENERS": "PLAINTEXT://:9092,CONTROLLER://:9093",
}


def layers(name: str) -> list[str]:
    found = subprocess.run(
        ["docker", "image", "inspect", "-f", "{{range .RootFS.Layers}}{{println .}}{{end}}", name],
        capture_output=True,
        text=True,
        check=False,
    )
    return found.stdout.split()


def attempt(image: str, *options: str, **environment: str) -> tuple[int, str]:
    """The exit code and the errors of a node that is expected not to start."""
    variables = [part for item in environment.items() for part in ("-e", "=".join(item))]
    command = ["docker", "run", "--rm", *options, *variables, image]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, ended.stderr


def test_it_is_small(image: str) -> None:
    size_mb = int(run("docker", "image", "inspect", "-f", "{{.Size}}", image)) / 1e6
    is_on_small_base = layers(image)[:1] == layers(SMALL_BASE)[:1]
    print(f"{size_mb:.0f} MB (goal {SIZE_GOAL_MB} on the small base)")
    if is_on_small_base:
        assert size_mb <= SIZE_GOAL_MB


def test_it_does_not_run_as_root(image: str) -> None:
    assert run("docker", "run", "--rm", "--entrypoint", "id", image, "-u").strip() == "10001"


def test_it_has_the_command_line(image: str) -> None:
    assert "random-uuid" in run("docker", "run", "--rm", image, "storage", "--help")


def test_a_slip_in_a_variable_is_told(image: str) -> None:
    code, words = attempt(image, KAFKA_NOD_ID="1")
    assert code == 2
    assert "KAFKA_NOD_ID" in words and "did you mean node.id?" in words


def test_a_wrong_value_is_told(image: str) -> None:
    code, words = attempt(image, KAFKA_LOG_SEGMENT_BYTES="many")
    assert code == 2
    assert "KAFKA_LOG_SEGMENT_BYTES" in words


def test_a_node_of_several_needs_the_id_of_its_cluster(image: str) -> None:
    code, words = attempt(image, **ONE_OF_THREE)
    assert code == 2
    assert "CLUSTER_ID" in words and "random-uuid" in words


def test_a_node_whose_peers_are_out_of_reach_says_so_and_stops_when_asked(image: str) -> None:
    """As PID 1, which the kernel would not end for it."""
    variables = {
        **ONE_OF_THREE,
        "CLUSTER_ID": "pGtQJ3fGQ3m9dXcVb8nTfA",
        "KAFKA_BROKER_SESSION_TIMEOUT_MS": "1000",
        "KAFKA_BROKER_HEARTBEAT_INTERVAL_MS": "200",
    }
    given = [part for item in variables.items() for part in ("-e", "=".join(item))]
    node = run("docker", "run", "-d", *given, image).strip()
    try:
        words = wait_for_words(node, "has reached no active controller")
        assert "controller 2: " in words and "b:9093" in words, words
        began = time.monotonic()
        run("docker", "stop", "-t", "50", node)
        assert time.monotonic() - began < 20
        assert run("docker", "inspect", "-f", "{{.State.ExitCode}}", node).strip() == "0"
    finally:
        run("docker", "rm", "-f", "-v", node)


def wait_for_words(container: str, words: str) -> str:
    """All that it has said, once these are among it."""
    deadline = time.monotonic() + 60
    while True:
        done = subprocess.run(["docker", "logs", container], capture_output=True, text=True)
        if words in done.stderr:
            return done.stderr
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.2)


def test_a_read_only_volume_is_told(image: str, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    code, words = attempt(image, "-v", f"{tmp_path}:/var/lib/tidelog:ro")
    assert code == 2
    assert "Read-only file system" in words and "volume" in words


def test_a_mounted_file_is_read(image: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("node.id=7\nlog.segment.byte=1\n", encoding="utf-8")
    file.chmod(0o644)
    tmp_path.chmod(0o755)
    code, words = attempt(image, "-v", f"{file}:/etc/tidelog/server.properties:ro")
    assert code == 2
    assert "server.properties line 2" in words and "log.segment.bytes" in words


def test_data_of_another_node_is_refused(image: str) -> None:
    """A volume mixed up between nodes, which would otherwise be a node id used twice."""
    volume = run("docker", "volume", "create").strip()
    mount = ("-v", f"{volume}:/var/lib/tidelog")
    first = run("docker", "run", "-d", *mount, image).strip()
    try:
        file = "/var/lib/tidelog/data/meta.properties"
        wait = f"until grep -q node.id {file}; do sleep 0.1; done"
        run("docker", "exec", first, "sh", "-c", wait)
        run("docker", "kill", first)
        code, words = attempt(
            image, *mount, KAFKA_NODE_ID="2", KAFKA_CONTROLLER_QUORUM_VOTERS="2@localhost:9093",
            KAFKA_LISTENERS="PLAINTEXT://:9092,CONTROLLER://:9093",
        )  # fmt: skip
    finally:
        run("docker", "rm", "-f", first)
        run("docker", "volume", "rm", volume)
    assert code == 2
    assert "formatted for node 1, not for 2" in words
