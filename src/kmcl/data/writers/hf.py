"""Parquet files that Hugging Face's `datasets` opens: images as bytes, and a list of class labels.

data/train-00000-of-00002.parquet ...     image, labels, and where there are any: group, unknown_labels
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from typing import Any

from kmcl.data.dataset import UNKNOWN, Dataset
from kmcl.data.groups import join_groups
from kmcl.data.writers.images import OnImage, WrittenImage, written_images
from kmcl.errors import InputError

SPLIT_FILES = {"train": "train", "val": "validation", "test": "test"}
ROWS_OF_GROUP = 100
BYTES_OF_SHARD = 500_000_000


def write_hf(dataset: Dataset, folder: Path, on_image: OnImage | None) -> str:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise InputError("Parquet needs the package pyarrow: pip install 'kmcl[train]'") from None
    (folder / "data").mkdir()
    for split, images in groupby(written_images(dataset, on_image), key=lambda image: image.split):
        shards: list[Path] = []
        writer = None
        pending: list[WrittenImage] = []
        num_bytes = 0
        for image in images:
            if writer is None:
                shards.append(folder / "data" / f"{split}-{len(shards)}.partial")
                writer = _Shard(shards[-1], dataset)
            pending.append(image)
            num_bytes += len(image.content)
            if len(pending) == ROWS_OF_GROUP:
                writer.write(pending)
                pending = []
                if num_bytes > BYTES_OF_SHARD:
                    writer.close()
                    writer, num_bytes = None, 0
        if writer is not None:
            writer.write(pending)
            writer.close()
        for number, path in enumerate(shards):
            name = f"{SPLIT_FILES.get(split, split)}-{number:05d}-of-{len(shards):05d}.parquet"
            path.rename(path.with_name(name))
    return f"hf:{folder}"


class _Shard:
    """One Parquet file, written a row group at a time."""

    def __init__(self, path: Path, dataset: Dataset) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        splits = dataset.splits.values()
        self._labels = dataset.labels
        self._has_groups = join_groups(splits) is not None
        self._has_unknown = any((split.targets == UNKNOWN).any() for split in splits)
        text, strings = {"dtype": "string", "_type": "Value"}, pa.list_(pa.string())
        image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
        class_label = {"names": list(dataset.labels), "_type": "ClassLabel"}
        columns: list[tuple[str, Any, dict[str, Any]]] = [
            ("image", image, {"_type": "Image"}),
            ("labels", pa.list_(pa.int64()), {"feature": class_label, "_type": "Sequence"}),
        ]
        if self._has_groups:
            columns.append(("group", pa.string(), text))
        if self._has_unknown:
            columns.append(("unknown_labels", strings, {"feature": text, "_type": "Sequence"}))
        features = {name: feature for name, _, feature in columns}
        self._schema = pa.schema(
            [(name, kind) for name, kind, _ in columns],
            metadata={"huggingface": json.dumps({"info": {"features": features}})},
        )
        self._writer = pq.ParquetWriter(path, self._schema)

    def write(self, images: list[WrittenImage]) -> None:
        import pyarrow as pa

        if images:
            rows = [self._row(image) for image in images]
            self._writer.write_table(pa.Table.from_pylist(rows, schema=self._schema))

    def _row(self, image: WrittenImage) -> dict[str, Any]:
        targets = image.targets.tolist()
        row: dict[str, Any] = {
            "image": {"bytes": image.content, "path": image.name},
            "labels": [label for label, target in enumerate(targets) if target == 1],
        }
        if self._has_groups:
            row["group"] = image.group
        if self._has_unknown:
            row["unknown_labels"] = [
                self._labels[label] for label, target in enumerate(targets) if target == UNKNOWN
            ]
        return row

    def close(self) -> None:
        self._writer.close()
