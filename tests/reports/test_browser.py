"""A report in headless Chromium: no error, pixels in every picture, and a fit on phone and desktop."""

from __future__ import annotations

import html
import json
import re
import subprocess
from pathlib import Path

import pytest

from chromium import CHROMIUM, OPTIONS

REPORT_OPTIONS = [
    *OPTIONS,
    "--allow-file-access-from-files",  # the frames below are files too
    "--enable-logging=stderr",
    "--dump-dom",
]

# The report itself has no script and allows none, so another page looks at it in frames of two sizes.
HARNESS = """<!DOCTYPE html><html><body>
<iframe id="phone" src="REPORT" style="width:390px;height:844px"></iframe>
<iframe id="desktop" src="REPORT" style="width:1280px;height:900px"></iframe>
<script>
function colours(image) {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 48;
  const context = canvas.getContext("2d", {willReadFrequently: true});
  context.drawImage(image, 0, 0, 48, 48);
  const data = new Uint32Array(context.getImageData(0, 0, 48, 48).data.buffer);
  return new Set(data).size;
}
window.onload = () => {
  const results = {};
  for (const name of ["phone", "desktop"]) {
    const page = document.getElementById(name).contentDocument;
    const images = Array.from(page.images);
    page.querySelectorAll("details").forEach(one => { one.open = true; });
    const figures = images.filter(image => image.closest(".figures"));
    results[name] = {
      images: images.length,
      figures: figures.length,
      blank: images.filter(image => !image.naturalWidth || colours(image) < 2).map(image => image.alt),
      mute: images.filter(image => !image.alt).length,
      narrow: figures.filter(image => image.getBoundingClientRect().width < 200).length,
      overflow: page.documentElement.scrollWidth - page.documentElement.clientWidth,
      ground: page.defaultView.getComputedStyle(page.body).backgroundColor,
      ink: page.defaultView.getComputedStyle(page.body).color,
    };
  }
  const out = document.createElement("pre");
  out.id = "result";
  out.textContent = JSON.stringify(results);
  document.body.append(out);
};
</script></body></html>"""


def open_in_chromium(report: Path, folder: Path, dark: bool) -> tuple[dict, list[str]]:
    harness = folder / "harness.html"
    harness.write_text(HARNESS.replace("REPORT", report.as_uri()))
    theme = [f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    result = subprocess.run(
        [CHROMIUM, *REPORT_OPTIONS, *theme, f"--user-data-dir={folder / 'profile'}", harness.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = re.search(r'<pre id="result">(.*?)</pre>', result.stdout, re.DOTALL)
    assert found, result.stderr
    console = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(found[1])), console


def brightness(colour: str) -> float:
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed to open the report with")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_report_in_a_browser(report_of_two, tmp_path, dark):
    results, console = open_in_chromium(report_of_two, tmp_path, dark)
    assert console == []
    for size, found in results.items():
        assert found["figures"] >= 20, size
        assert found["images"] > 60, size
        assert found["blank"] == [], size
        assert found["mute"] == 0, size
        assert found["narrow"] == 0, size
        assert found["overflow"] <= 0, size
        assert (brightness(found["ground"]) < 60) == dark, size
        assert (brightness(found["ink"]) > 180) == dark, size
