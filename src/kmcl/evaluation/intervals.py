"""The intervals of mAP that metrics.json, `kmcl evaluate`, `compare` and reports show.

One number of resamples and one seed for all of them: the same runs have the same interval and p-value
wherever they are shown.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kmcl.evaluation.bootstrap import BootstrapInterval, PairedDifference, bootstrap_map, compare_mean_map
from kmcl.evaluation.predictions import Predictions

RESAMPLES = 1000
SEED = 0


def map_interval(
    predictions: Predictions, num_resamples: int = RESAMPLES, seed: int = SEED
) -> BootstrapInterval:
    """mAP with its 95 % interval."""
    return bootstrap_map(predictions, np.random.default_rng(seed), num_resamples)


def paired_difference(
    models: Sequence[Predictions],
    references: Sequence[Predictions],
    num_resamples: int = RESAMPLES,
    seed: int = SEED,
) -> PairedDifference:
    """Mean mAP of the models minus that of the references, with its 95 % interval and p-value.

    Raises InputError unless all were made from the same images, labels and targets, in the same order.
    """
    return compare_mean_map(models, references, np.random.default_rng(seed), num_resamples)
