"""A usable model in the first minute: the Gaussian process on frozen features of a part of the images."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from kmcl.durations import spell_duration
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import mean_average_precision
from kmcl.features.batches import Features
from kmcl.methods import find_method
from kmcl.models.classifier import Classifier
from kmcl.models.description import FittedPart
from kmcl.models.folder import DESCRIPTION_FILE, save_model
from kmcl.options import read_options
from kmcl.posthoc.frozen_gp import FrozenFeatureGP
from kmcl.training.finalise import completed_rules
from kmcl.training.states import Prepared

TRAIN_IMAGES, LEAST_TRAIN_IMAGES, VAL_IMAGES = 640, 192, 320
METHOD, PART = "bce", FrozenFeatureGP.Options().name
"""Its head is a linear one of zeros, so that the part alone decides."""
ROWS = 64
FIRST_MODEL_SECONDS = 50.0
"""Of the run, until the features of the first model are computed; fitting and saving it takes a few more."""


@dataclass(frozen=True)
class FirstModel:
    """What the model was fitted on, and its mAP on some images of val."""

    num_train: int
    num_val: int
    val_map: float


def save_first_model(prepared: Prepared) -> FirstModel | None:
    """Fit the part on some training images, choose thresholds and calibration on some of val, and save it.

    Where features are cached and the run has something to choose first. The classifier is not changed.
    """
    folder, dataset, clock = prepared.folder, prepared.dataset, prepared.clock
    has_model = (folder.model / DESCRIPTION_FILE).is_file()
    if has_model or not (prepared.undecided and prepared.data.from_rows and "val" in dataset.splits):
        return None
    classifier, cache = prepared.classifier, prepared.data.cache
    train, val = dataset.splits["train"], dataset.splits["val"]
    val_rows, val_indices = cache.sample(val, "val", VAL_IMAGES)
    # Fewer training images are used where features are slow.
    seconds_left = FIRST_MODEL_SECONDS - (clock.elapsed if clock else 0.0)
    fitting = seconds_left / (cache.seconds_per_image or 1e-9)
    most = int(min(TRAIN_IMAGES, max(LEAST_TRAIN_IMAGES, fitting)))
    train_rows, train_indices = cache.sample(train, "train", most)
    encoder = copy.deepcopy(classifier.encoder).with_taps()  # a part of its own, whose mode may change
    options = read_options({"name": METHOD}).for_model()
    head = find_method(METHOD).build_head(encoder, len(dataset.labels), options)
    for parameter in head.parameters():
        parameter.detach().zero_()
    part = FrozenFeatureGP(encoder, len(dataset.labels))
    device = next(classifier.parameters()).device
    first = Classifier(encoder, head).to(device).eval()
    part.to(device)
    observed = _observe(first, part, train_rows, device)
    targets = prepared.data.unknown.for_fitting(torch.from_numpy(train.targets[train_indices]))
    part.fit_images(observed, targets.to(device))
    part.set_weight(1.0)
    first.posthoc[PART] = part
    logits = part(_observe(first, part, val_rows, device)).cpu()
    predictions = Predictions.of_split(dataset.labels, val, logits.sigmoid().numpy(), val_indices)
    rules, _ = completed_rules(prepared.description.rules, prepared.settings, train.targets, predictions)
    fitted = (FittedPart(PART, part.sizes),)
    save_model(
        folder.model, first, replace(prepared.description, method=options, rules=rules, posthoc=fitted)
    )
    found = FirstModel(len(train_indices), len(val_indices), mean_average_precision(predictions))
    after = "" if clock is None else f" after {spell_duration(clock.elapsed)}"
    prepared.say(
        f"first model{after}: val mAP {100 * found.val_map:.1f}, a Gaussian process on frozen "
        f"features of {found.num_train} images; usable now, and replaced by better ones"
    )
    return found


@torch.inference_mode()
def _observe(classifier: Classifier, part: FrozenFeatureGP, rows: Features, device: torch.device) -> Tensor:
    seen = []
    for batch in torch.split(torch.from_numpy(rows), ROWS):
        encoded = classifier.encode_rows(batch.to(device))
        if encoded.taps is None:
            raise RuntimeError("rows always come with taps")
        seen.append(part.statistics(encoded.taps))
    return torch.cat(seen)
