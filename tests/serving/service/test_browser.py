"""The page in headless Chromium, used as a person would: choose images, look, move, hover, tab, download."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn

from chromium import CHROMIUM, Chromium
from kmcl.serving.service.application import create_application
from kmcl.serving.service.settings import ServiceSettings

from .conftest import make_image, make_predictor

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed to open the page with")

CUTOFF = 0.3
"""The probability of an error above which one of the services leaves a decision to a person."""


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    """The page of an open service, and of one that asks for a token and leaves decisions to a person."""
    predictor = make_predictor()
    servers, threads, found = [], [], {}
    for name, token, cutoff in (("open", None, None), ("closed", "s3cret", CUTOFF)):
        application = create_application(
            predictor, ServiceSettings(token=token, max_images=4), "bugs", cutoff
        )
        opened = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(application, log_level="warning"))
        thread = threading.Thread(target=lambda s=server, o=opened: asyncio.run(s.serve([o])), daemon=True)
        thread.start()
        servers.append(server)
        threads.append(thread)
        found[name] = f"http://127.0.0.1:{opened.getsockname()[1]}/"
    yield found
    for server, thread in zip(servers, threads, strict=True):
        server.should_exit = True
        thread.join(20)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium") / "one") as opened:
        yield opened


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    paths = []
    for seed in range(3):
        paths.append(folder / f"picture {seed}.png")
        paths[-1].write_bytes(make_image(seed, 120, 160))
    (folder / "broken.png").write_bytes(make_image(0)[:60])
    return [*paths, folder / "broken.png"]


def row(label: str, card: int = 0) -> str:
    """An expression for the row of a label."""
    return (
        f"[...document.querySelectorAll('.card')[{card}].querySelectorAll('.row')]"
        f".find(row => row.querySelector('.name').textContent.endsWith('{label}'))"
    )


def test_a_click_through(page: Chromium, addresses, pictures):
    page.messages.clear()
    page.requests.clear()
    page.open(addresses["open"], 1280, 900)
    page.wait_for("document.getElementById('model').textContent.includes('4 labels')")
    page.choose_files("#files", pictures[:3])
    page.wait_for("document.querySelectorAll('.verdict').length === 3")

    # Bars, intervals and decisions are those of the service's answer.
    shown = page.evaluate(
        "[...document.querySelectorAll('.card')[0].querySelectorAll('.row')].map(row => ({"
        "text: row.getAttribute('aria-label'), present: row.classList.contains('present'),"
        "fill: parseFloat(row.querySelector('.fill').style.width),"
        "interval: ['left', 'width'].map(side => parseFloat(row.querySelector('.interval').style[side])),"
        "tick: parseFloat(row.querySelector('.tick').style.left)}))"
    )
    assert len(shown) == 4
    assert [one["fill"] for one in shown] == sorted((one["fill"] for one in shown), reverse=True)
    for one in shown:
        assert one["interval"][0] <= one["fill"] <= sum(one["interval"])
        assert one["present"] == (one["fill"] >= one["tick"])
        assert re.fullmatch(
            r".+: [<>]?\d+ %, between .* and .*, (present|absent)\. Shows its heat map", one["text"]
        )

    # Hovering shows where the evidence lies, and leaving hides it.
    page.hover(row("bee"))
    page.wait_for("document.querySelector('.card canvas').classList.contains('shown')")
    assert "bee" in page.evaluate("document.querySelector('.card figcaption').textContent")
    colours = page.evaluate(
        "new Set(new Uint32Array(document.querySelector('.card canvas').getContext('2d')"
        ".getImageData(0, 0, 256, 256).data.buffer)).size"
    )
    assert colours > 50
    page.hover("document.querySelector('h1')")
    page.wait_for("!document.querySelector('.card canvas').classList.contains('shown')")

    # The threshold: all labels at 0, none at 100, and back.
    present = "document.querySelectorAll('.row.present').length"
    own = page.evaluate(present)
    page.click("document.getElementById('threshold')")
    page.press("Home", 36)
    page.wait_for(f"{present} === 12")
    page.press("End", 35)
    page.wait_for(f"{present} === 0")
    assert page.evaluate("document.getElementById('threshold-value').textContent") == "100 %"
    assert "0 labels in 3 images" in page.evaluate("document.getElementById('status').textContent")
    page.click("document.getElementById('own')")
    assert page.evaluate(present) == own
    assert 0 < own < 12

    # Labels that often occur together with those present.
    together = page.evaluate(
        "[...document.querySelectorAll('.cooccurring')].map(one => one.textContent).join()"
    )
    assert re.search(
        r"ant often with bee 75 %|bee often with ant 50 %|emu often with cat & dog 30 %", together
    )

    # The download.
    page.click("document.getElementById('download')")
    file = page.folder / "downloads" / "bugs-labels.json"
    for _ in range(200):
        if file.is_file():
            break
        time.sleep(0.05)
    saved = json.loads(file.read_text())
    assert (saved["model"], saved["common_threshold"]) == ("bugs", None)
    assert [image["name"] for image in saved["images"]] == [path.name for path in pictures[:3]]
    assert sum(label["present"] for image in saved["images"] for label in image["labels"]) == own

    # Removing.
    page.click("document.querySelector('.remove')")
    page.wait_for("document.querySelectorAll('.card').length === 2")
    assert page.evaluate("document.activeElement.className") == "remove"
    page.click("document.getElementById('clear')")
    page.wait_for("document.querySelectorAll('.card').length === 0")

    assert page.messages == []
    outside = [one for one in page.requests if not one.startswith((addresses["open"], "blob:", "data:"))]
    assert outside == []


def test_by_keyboard_alone(page: Chromium, addresses, pictures):
    page.open(addresses["open"], 1280, 900)
    page.wait_for("document.getElementById('model').textContent.includes('4 labels')")
    page.choose_files("#files", pictures[:1])
    page.wait_for("document.querySelectorAll('.verdict').length === 1")
    order = []
    for _ in range(12):
        page.press("Tab", 9)
        order.append(page.evaluate("document.activeElement.id || document.activeElement.className || 'body'"))
    assert order[:5] == ["skip", "files", "threshold", "download", "clear"]
    assert order[5] == "remove"
    assert [name.split(" ")[0] for name in order[6:10]] == ["row"] * 4
    # The last row has focus after ten steps back to it: its map is shown without a pointer.
    page.evaluate("document.querySelector('.remove').focus()")
    page.press("Tab", 9)
    page.wait_for("document.querySelector('.card canvas').classList.contains('shown')")
    assert "Heat map of" in page.evaluate("document.getElementById('status').textContent")
    unnamed = page.evaluate(
        "[...document.querySelectorAll('button, input:not([hidden])')].filter(one => "
        "!one.textContent.trim() && !one.getAttribute('aria-label') && !one.labels?.length).length"
    )
    assert unnamed == 0


def test_errors_are_told_on_the_card(page: Chromium, addresses, pictures):
    page.open(addresses["open"], 1280, 900)
    page.wait_for("document.getElementById('model').textContent.includes('4 labels')")
    page.choose_files("#files", pictures[3:])
    problem = page.wait_for("document.querySelector('.problem')?.textContent")
    assert problem.startswith("broken.png cannot be decoded")
    assert page.evaluate("document.getElementById('download').disabled")


def test_a_token_is_asked_for_and_decisions_are_left_to_the_reader(page: Chromium, addresses, pictures):
    page.open(addresses["closed"], 1280, 900)
    page.wait_for("!document.getElementById('token-form').hidden")
    for text, expected in (("wrong", "That was not the right token."), ("s3cret", None)):
        page.evaluate(f"document.getElementById('token').value = '{text}'")
        page.click("document.querySelector('#token-form button')")
        if expected:
            page.wait_for(f"document.getElementById('token-error').textContent === '{expected}'")
    page.wait_for("document.getElementById('token-form').hidden")
    page.choose_files("#files", pictures[:1])
    page.wait_for("document.querySelectorAll('.verdict').length === 1")
    (predicted,) = make_predictor().predict(pictures[0])
    unsure = [label for label in predicted.leaving(CUTOFF).labels if label.unsure]
    names = ", ".join(label.label for label in sorted(unsure, key=lambda label: -label.probability))
    assert 0 < len(unsure) < 4
    assert page.evaluate("document.querySelector('.left').textContent") == f"For you to decide: {names}"
    assert "above 30 % are left to you" in page.evaluate("document.getElementById('abstains').textContent")
    for label in predicted.leaving(CUTOFF).labels:
        shown = page.evaluate(f"{row(label.label)}.querySelector('.check').textContent")
        assert shown == ("?" if label.unsure else "✓" if label.present else "")
    # At a threshold of one's own nothing is known about errors.
    page.click("document.getElementById('threshold')")
    page.press("Home", 36)
    page.wait_for("document.querySelector('.left').hidden")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280], ids=["phone", "desktop"])
def test_it_fits_and_can_be_read(page: Chromium, addresses, pictures, width: int, dark: bool):
    page.open(addresses["open"], width, 850, dark=dark)
    page.wait_for("document.getElementById('model').textContent.includes('4 labels')")
    page.choose_files("#files", pictures[:2])
    page.wait_for("document.querySelectorAll('.verdict').length === 2")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    small = page.evaluate(
        "[...document.querySelectorAll('button, .button')].filter(one => one.offsetParent && "
        "(one.getBoundingClientRect().height < 24 || one.getBoundingClientRect().width < 24))"
        ".map(one => one.className)"
    )
    assert small == []
    pairs = page.evaluate(
        "[...document.querySelectorAll('h1, h2, p, .name, .percent, .range, .button, button, label, li')]"
        ".filter(one => one.offsetParent && !one.disabled && one.textContent.trim()).map(one => {"
        "let ground = one; while (getComputedStyle(ground).backgroundColor === 'rgba(0, 0, 0, 0)' && "
        "ground.parentElement) ground = ground.parentElement;"
        "return [one.textContent.trim().slice(0, 30), getComputedStyle(one).color, "
        "getComputedStyle(ground).backgroundColor]; })"
    )
    assert len(pairs) > 20
    faint = [pair for pair in pairs if contrast(pair[1], pair[2]) < 4.5]
    assert faint == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (luminance(ground) < 0.1) == dark


def luminance(colour: str) -> float:
    """Relative luminance as WCAG defines it."""
    channels = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    linear = [value / 12.92 if value <= 0.03928 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(ink: str, ground: str) -> float:
    lighter, darker = sorted((luminance(ink), luminance(ground)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)
