"""The datasets of the released checkpoints: their labels in order, and the normalisation of pixels.

The files contain neither (ASL's contain the labels), so both are taken from the published training code.
"""

from __future__ import annotations

from dataclasses import dataclass

from kmcl.data.readers.chestxray14 import FINDINGS
from kmcl.data.readers.voc2007 import VOC_LABELS

# fmt: off
COCO_LABELS = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow",
    "elephant", "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee",
    "skis", "snowboard", "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard",
    "tennis racket", "bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple",
    "sandwich", "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch",
    "potted plant", "bed", "dining table", "toilet", "tv", "laptop", "mouse", "remote", "keyboard",
    "cell phone", "microwave", "oven", "toaster", "sink", "refrigerator", "book", "clock", "vase", "scissors",
    "teddy bear", "hair drier", "toothbrush",
)
# fmt: on
"""The categories by their numbers in the annotations, as in the reader `coco2014`."""

ADP_LABELS = tuple("ECHSAMNGT")
"""The first level of the histological taxonomy."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ReleasedDataset:
    """mean, std: of the pixels, between 0 and 1, that the KMCL checkpoints expect."""

    labels: tuple[str, ...]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


RELEASED_DATASETS = {
    "coco2014": ReleasedDataset(COCO_LABELS, IMAGENET_MEAN, IMAGENET_STD),
    "voc2007": ReleasedDataset(VOC_LABELS, IMAGENET_MEAN, IMAGENET_STD),
    "chestxray14": ReleasedDataset(FINDINGS, (0.50576189,) * 3, (1.0, 1.0, 1.0)),
    "adp": ReleasedDataset(
        ADP_LABELS, (0.81233799, 0.64032477, 0.81902153), (0.18129702, 0.25731668, 0.16800649)
    ),
}
"""By the name of the reader. The four differ in their number of labels, which identifies a checkpoint's."""
