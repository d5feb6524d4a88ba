"""What ``tidelog.testing.containers`` says when an image cannot be had."""

from __future__ import annotations

import pytest

docker_errors = pytest.importorskip("docker.errors")

from tidelog.testing.containers import ImageMissing, ReaperMissing, missing_image  # noqa: E402

PULL = "500 Server Error for http+docker://localhost/v1.41/images/create?fromImage={}: no such host"


def test_our_own_image() -> None:
    for error in (
        docker_errors.ImageNotFound("404: no such image: tidelog:latest"),
        docker_errors.APIError(PULL.format("tidelog&tag=latest")),
    ):
        found = missing_image("tidelog:latest", error)
        assert isinstance(found, ImageMissing)
        assert "`make image`" in str(found)


def test_the_reaper_s_image_is_not_taken_for_ours() -> None:
    found = missing_image("tidelog:latest", docker_errors.APIError(PULL.format("x%2Fryuk")))
    assert isinstance(found, ReaperMissing)
    assert "TESTCONTAINERS_RYUK_DISABLED=true" in str(found) and "make image" not in str(found)


def test_other_failures_are_left_as_they_are() -> None:
    error = docker_errors.APIError("409 Conflict: the name is in use")
    assert missing_image("tidelog:latest", error) is None
