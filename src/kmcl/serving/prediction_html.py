"""Predictions as HTML for a notebook: a thumbnail, the labels with bars of their probabilities, errors.

One self-contained fragment: styles are inline and thumbnails data URIs, both bounded in number and size.
Names of images and labels are escaped. Colours work on light and dark backgrounds.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from kmcl.data.files import decode_image
from kmcl.errors import InputError
from kmcl.evaluation.unfamiliarity import SENTENCE
from kmcl.serving.predictions import ImageLike, ImagePrediction, LabelPrediction

MAX_IMAGES = 30
MAX_LABELS = 8
THUMBNAIL_SIDE = 160
MAX_NAME = 200

_GREY, _PRESENT, _ABSENT, _ERROR = "rgba(128,128,128,.22)", "#2f8fc9", "#8d99a5", "#d64541"
_CARD = (
    "display:flex;flex-wrap:wrap;gap:14px;align-items:flex-start;padding:12px 14px;margin:0 0 10px;"
    f"border:1px solid {_GREY};border-radius:8px;max-width:660px;box-sizing:border-box"
)
_ROW = "display:grid;grid-template-columns:minmax(0,9.5em) minmax(0,1fr) 4em;gap:10px;align-items:center"
_CLIPPED = "overflow:hidden;text-overflow:ellipsis;white-space:nowrap"


def predictions_to_html(predictions: Sequence[ImagePrediction]) -> str:
    """The first MAX_IMAGES predictions, each with its present labels and the MAX_LABELS most probable."""
    cards = [_card(prediction) for prediction in list(predictions)[:MAX_IMAGES]]
    left = len(predictions) - len(cards)
    more = f'<div style="opacity:.7">and {left} more images</div>' if left else ""
    empty = "" if predictions else '<div style="opacity:.7">no predictions</div>'
    return (
        '<div style="font:14px/1.45 system-ui,-apple-system,Segoe UI,Roboto,sans-serif;text-align:left">'
        f"{''.join(cards)}{more}{empty}</div>"
    )


def _card(prediction: ImagePrediction) -> str:
    name = escape(prediction.name[:MAX_NAME])
    if prediction.error is not None:
        body = f'<div style="color:{_ERROR};overflow-wrap:anywhere">{escape(prediction.error[:1000])}</div>'
    else:
        body = _labels(prediction)
    return (
        f'<div style="{_CARD}">{_thumbnail(prediction)}'
        '<div style="flex:1 1 260px;min-width:0">'
        f'<div style="font-size:12px;opacity:.7;margin-bottom:6px;{_CLIPPED}" title="{name}">{name}</div>'
        f"{body}</div></div>"
    )


def _labels(prediction: ImagePrediction) -> str:
    by_probability = sorted(prediction.labels, key=lambda label: -label.probability)
    shown = [label for place, label in enumerate(by_probability) if place < MAX_LABELS or label.present]
    present = ", ".join(escape(label.label[:MAX_NAME]) for label in prediction.present)
    heading = present or '<span style="font-weight:400;opacity:.7">no label reaches its threshold</span>'
    warning = f'<div style="color:{_ERROR};margin-bottom:6px">{SENTENCE}</div>'
    left = len(by_probability) - len(shown)
    more = (
        f'<div style="font-size:12px;opacity:.7;margin-top:4px">and {left} more labels</div>' if left else ""
    )
    return (
        '<div style="font-weight:600;font-size:15px;margin-bottom:6px;overflow-wrap:anywhere">'
        f"{heading}</div>{warning if prediction.is_unfamiliar else ''}"
        f"{''.join(map(_bar, shown))}{more}"
    )


def _bar(label: LabelPrediction) -> str:
    name, percent = escape(label.label[:MAX_NAME]), 100 * min(max(label.probability, 0.0), 1.0)
    band = "" if label.low is None else f" ({label.low:.3f} to {label.high:.3f})"
    details = f"{name}: probability {label.probability:.6g}{band}, threshold {label.threshold:.6g}"
    weight, colour = ("600", _PRESENT) if label.present else ("400", _ABSENT)
    return (
        f'<div style="{_ROW};margin:2px 0" title="{details}">'
        f'<div style="font-weight:{weight};{_CLIPPED}">{name}</div>'
        f'<div style="height:9px;border-radius:5px;background:{_GREY};overflow:hidden">'
        f'<div style="height:100%;min-width:2px;width:{percent:.1f}%;background:{colour}"></div></div>'
        '<div style="text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums;'
        f'font-weight:{weight}">'
        f"{_percent_text(percent)}</div></div>"
    )


def _percent_text(percent: float) -> str:
    """Without decimals, but neither 0 nor 100 for what is only close to it."""
    if 0 < percent < 1:
        return "&lt;1 %"
    return "&gt;99 %" if 99 < percent < 100 else f"{percent:.0f} %"


def _thumbnail(prediction: ImagePrediction) -> str:
    picture = None if prediction.error is not None else _small_picture(prediction.source)
    if picture is None:
        return ""
    buffer = BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    data = base64.b64encode(buffer.getvalue()).decode()
    # Smoothing would blur an enlarged tiny picture beyond recognition.
    scale = "width:100%;image-rendering:pixelated" if max(picture.size) < 96 else "max-width:100%"
    return (
        f'<div style="flex:0 0 {THUMBNAIL_SIDE}px;text-align:center">'
        f'<img src="data:image/jpeg;base64,{data}" alt="{escape(prediction.name[:MAX_NAME])}" '
        f'style="{scale};height:auto;border-radius:6px;margin:0"></div>'
    )


def _small_picture(source: ImageLike | None) -> Image.Image | None:
    """At most THUMBNAIL_SIDE pixels wide and high; None where the picture is not available."""
    if source is None or (isinstance(source, np.ndarray) and source.ndim != 3):  # a feature vector
        return None
    try:
        if isinstance(source, str | Path):
            picture = Image.fromarray(decode_image(Path(source), min_side=THUMBNAIL_SIDE))
        elif isinstance(source, Image.Image):
            picture = source.convert("RGB")  # a copy
        else:
            pixels = source if isinstance(source, np.ndarray) else source.load(THUMBNAIL_SIDE)
            picture = Image.fromarray(pixels)
        picture.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    except (InputError, OSError, ValueError):
        return None  # the file has gone, or the image was closed
    return picture
