"""Scoring with Ray Data: reading, decoding and scoring stream through the machines of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kmcl.interop.table_scoring import TableScorer

if TYPE_CHECKING:
    from ray.data import Dataset


def score_dataset(
    images: Dataset,
    model: str | Path,
    *,
    workers: int | tuple[int, int],
    path: str = "path",
    content: str | None = "bytes",
    engine: str = "auto",
    cores: int = 1,
    batch_size: int = 256,
) -> Dataset:
    """A Ray dataset with a row for each image: path, probabilities, unfamiliarity if given, error.

    images:     with the paths, and the bytes of the files if `content` names their column, as those of
                `ray.data.read_binary_files(..., include_paths=True)` on a folder or an S3 prefix
    model:      see `TableScorer`; a path must be there on every machine
    workers:    processes that hold the model, or the fewest and the most of them
    cores:      of each worker
    batch_size: rows that a worker takes at a time: what is done again when it is lost

    Rows come in any order. A lost worker is started again, and what it had not finished is done again.
    """
    from ray.data import ActorPoolStrategy

    fewest, most = (workers, workers) if isinstance(workers, int) else workers
    return images.map_batches(
        TableScorer,
        fn_constructor_args=(str(model),),
        fn_constructor_kwargs={"path": path, "content": content, "engine": engine, "cores": cores},
        batch_format="pandas",
        batch_size=batch_size,
        compute=ActorPoolStrategy(min_size=fewest, max_size=most),
        num_cpus=cores,
    )
