"""Datasets: one word opens any of them; see `open_dataset`."""

from __future__ import annotations

from kmcl.data.dataset import SPLIT_NAMES, UNKNOWN, Dataset, ImageStore, Split

__all__ = ["SPLIT_NAMES", "UNKNOWN", "Dataset", "ImageStore", "Split", "open_dataset"]


def open_dataset(word: str, **options: object) -> Dataset:
    """Open the dataset that a word names: `digits`, `table:labels.csv`, `voc2007:DIR`, `coco2014:DIR`,
    `adp:DIR`, `chestxray14:DIR` or `medmnist:FILE.npz`.

    word:    the kind of dataset and where it is, separated by a colon.
    options: settings of that kind of dataset (`val_fraction=0.2`); values may be text, as a command line
             gives them. An unknown option is an InputError that suggests the nearest known one.

    Images are decoded only when asked for; labels are read now, and what is wrong with them is an InputError
    that names file and line.
    """
    # The readers need pydantic, Pillow and scikit-learn; `import kmcl.data` stays light without them.
    from kmcl.data.readers import read_dataset

    return read_dataset(word, options)
