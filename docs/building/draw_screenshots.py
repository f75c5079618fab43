"""Take the pictures of the gallery: a report and the service's page, in headless Chromium.

    python docs/building/draw_screenshots.py RUN [RUN ...] [--folder FOLDER]

The runs are those of `make demo`, on the embedded scenes: runs/demo/members/kmcl-seed0 and asl-seed0. The
files are kept in docs/figures/gallery, so that the pages read without building anything.
"""

from __future__ import annotations

import argparse
import base64
import io
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import uvicorn
from PIL import Image

from chromium import CHROMIUM, Chromium
from kmcl.data import open_dataset
from kmcl.serving import load
from kmcl.serving.service.application import create_application
from kmcl.serving.service.settings import ServiceSettings

FOLDER = Path(__file__).parents[1] / "figures" / "gallery"
SECTIONS = [
    "summary",
    "comparison",
    "training",
    "scores",
    "labels",
    "features",
    "saliency",
    "uncertainty",
    "examples",
]
WIDTH, MAX_HEIGHT = 1000, 760
COLOURS = 96
"""Of the palette: a third of the bytes, and nothing that is drawn needs more."""
SERVED_IMAGES = (3, 11)
"""Of test, on the service's page."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the pictures")
    given = parser.parse_args()
    if CHROMIUM is None:
        sys.exit("no Chromium is installed to open the pages with")
    given.folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as temporary:
        work = Path(temporary)
        report = [sys.executable, "-m", "kmcl", "report", *map(str, given.runs), "--output", str(work)]
        subprocess.run(report, check=True)
        with Chromium(work / "chromium") as page:
            page.open((work / "report.html").as_uri(), WIDTH, 900)
            for section in SECTIONS:
                save(page, f"#{section}", given.folder / f"report-{section}.png")
            with serving(given.runs[0]) as address:
                page.open(address, WIDTH, 900)
                page.choose_files("#files", write_images(work))
                page.wait_for(f"document.querySelectorAll('.verdict').length === {len(SERVED_IMAGES)}", 120)
                page.hover("document.querySelector('.card .row')")
                page.evaluate("new Promise(done => setTimeout(done, 3000))")  # the saliency of that label
                save(page, "body", given.folder / "service.png")


def write_images(folder: Path) -> list[Path]:
    images = open_dataset("scenes").splits["test"].images
    paths = [folder / f"scene-{index}.png" for index in SERVED_IMAGES]
    for path, index in zip(paths, SERVED_IMAGES, strict=True):
        Image.fromarray(images.load(index)).save(path)
    return paths


@contextmanager
def serving(run: Path) -> Iterator[str]:
    """The service of a run on a free port; yields its address."""
    application = create_application(load(run), ServiceSettings(), "scenes")
    opened = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application, log_level="warning"))
    thread = threading.Thread(target=server.run, args=([opened],), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{opened.getsockname()[1]}/"
    server.should_exit = True
    thread.join(20)


def save(page: Chromium, selector: str, path: Path) -> None:
    """An element, or the upper part of one that is high, as a PNG file with a palette."""
    top, height = page.evaluate(
        f"(() => {{ const box = document.querySelector('{selector}').getBoundingClientRect();"
        " return [box.top + scrollY, box.height]; })()"
    )
    clip = {"x": 0, "y": max(0, top), "width": WIDTH, "height": min(height, MAX_HEIGHT), "scale": 1}
    data = page.command("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
    picture = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
    sys.stdout.write(f"{path.name}: {path.stat().st_size / 1000:.0f} KB\n")


if __name__ == "__main__":
    main()
