"""A real browser opens a report: the charts are drawn and the page fits the screen."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chaos_pages import example_run

from tidelog.chaos.report import render_report
from tidelog.chaos.verdict import judge

# Says for every image how large it is, and of what is in it what takes part in the picture.
PROBE = """
<pre id="probe"></pre><script>
const found = {wide: document.documentElement.scrollWidth, screen: innerWidth, images: {}};
for (const svg of document.querySelectorAll('svg')) {
  const box = svg.getBoundingClientRect();
  const curves = {};
  for (const path of svg.querySelectorAll('path.curve')) {
    curves[path.getAttribute('class')] = {
      length: path.getTotalLength(), stroke: getComputedStyle(path).stroke,
      height: path.getBBox().height,
    };
  }
  const filled = (selector) => [...svg.querySelectorAll(selector)].filter((one) => {
    const box = one.getBoundingClientRect();
    return box.width > 0 && box.height > 0 && getComputedStyle(one).fill !== 'none';
  });
  found.images[svg.id] = {
    width: box.width, height: box.height, curves,
    bands: filled('rect.tint').length, marks: filled('rect.mark').length,
    lanes: filled('rect.lane').length, dots: filled('circle.dot').length,
    colours: [...new Set(filled('rect').map((one) => getComputedStyle(one).fill))],
    texts: [...svg.querySelectorAll('text')].map((one) => one.textContent),
  };
}
document.getElementById('probe').textContent = JSON.stringify(found);
</script>
"""


def opened(page: str, directory: Path, width: int) -> Any:
    """What the probe found in a page of that width."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    assert browser is not None
    path = directory / "report.html"
    path.write_text(page.replace("</body>", f"{PROBE}</body>"), encoding="utf-8")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
        "--hide-scrollbars", "--no-first-run", f"--user-data-dir={directory}/profile",
        f"--window-size={width},1400", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    probe = re.search(r'<pre id="probe">(.*?)</pre>', done.stdout.decode("utf-8"), re.DOTALL)
    assert probe is not None, done.stderr.decode("utf-8", "replace")[-2000:]
    return json.loads(html.unescape(probe[1]))


@pytest.fixture(scope="module")
def page() -> str:
    history = example_run(lost=3)
    return render_report(history, judge(history))


def test_the_charts_are_drawn(require: Callable[[str], None], page: str, tmp_path: Path) -> None:
    require("browser")
    found = opened(page, tmp_path, 1200)
    images = found["images"]
    assert set(images) == {"timeline", "leadership", "gaps"}
    assert all(one["width"] > 1000 and one["height"] > 80 for one in images.values())
    timeline = images["timeline"]
    for name in ("curve throughput", "curve p50", "curve p99"):
        curve = timeline["curves"][name]
        assert curve["length"] > 900, name
        assert curve["stroke"].startswith("rgb"), name
    assert timeline["curves"]["curve throughput"]["height"] > 20
    assert timeline["curves"]["curve p99"]["height"] > 20
    assert timeline["bands"] == timeline["marks"] == 5
    assert "0:30" in timeline["texts"]
    assert images["leadership"]["lanes"] > 10
    assert "events-0" in images["leadership"]["texts"]
    assert len(images["leadership"]["colours"]) > 4
    assert images["gaps"]["dots"] == 5
    assert found["wide"] <= found["screen"]


def test_the_page_fits_a_narrow_screen(
    require: Callable[[str], None], page: str, tmp_path: Path
) -> None:
    require("browser")
    found = opened(page, tmp_path, 500)
    assert found["wide"] <= found["screen"] <= 500
    # A chart keeps a width at which it can be read, and scrolls in its box.
    assert found["images"]["timeline"]["width"] >= 800
