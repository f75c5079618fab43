"""The networks of a study, each with every choice of post-hoc parts.

    kmcl compare table:labels.csv --methods asl,bce,kmcl --seeds 0,1,2 --posthoc none --output STUDY
    python benchmarks/parts.py STUDY [--reference asl] [--choices none,frozen_gp,frozen_gp+kernel_vote]

Parts are fitted on train and weighted on val as at the end of a training; then test is predicted. The mean of
the seeds' mAP and its standard deviation, and the difference to the reference with the same parts (95 %
paired bootstrap over test images, over the seeds of both). Predictions are kept in STUDY/parts, so that
running it again goes on where it was.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from rich.console import Console

from kmcl.encoders.weights import default_weights
from kmcl.evaluation.bootstrap import compare_mean_map
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import mean_average_precision
from kmcl.models.folder import build_classifier, load_model
from kmcl.posthoc import find_part
from kmcl.posthoc.interface import PosthocPart
from kmcl.studies.member import Member
from kmcl.studies.plan import read_plan
from kmcl.training.inference import predict_split
from kmcl.training.posthoc_fitting import Observations, Observed, auc_of_logits, corrected, prepare_parts
from kmcl.training.run_data import RunData, open_run_dataset
from kmcl.training.settings import TrainingSettings

NONE = "none"
CHOICES = (NONE, "frozen_gp", "kernel_vote", "frozen_gp+kernel_vote")


class Networks:
    """Fits parts to the networks of members; what depends on the frozen stages alone is fitted once."""

    def __init__(self) -> None:
        self._processes: dict[str, PosthocPart] = {}

    def predict(self, member: Member, choices: Sequence[str]) -> dict[str, Predictions]:
        """Predictions of test with each choice of parts."""
        settings = member.settings
        classifier, description = load_model(member.run.model, taps=True)
        names = list(dict.fromkeys(name for choice in choices for name in _parts_of(choice)))
        weights = settings.encoder.weights or default_weights(settings.encoder.name)
        options = [find_part(name).Options() for name in names]
        encoder = build_classifier(description, weights, taps=True).encoder
        parts = prepare_parts(options, encoder, len(description.rules.labels))
        dataset = open_run_dataset(settings)
        data = RunData(dataset, settings, classifier, Console(quiet=True), "cpu")
        observed = {}
        for split in ("train", "val", "test"):
            observations = Observations(parts)
            predictions = predict_split(
                classifier,
                dataset.labels,
                dataset.splits[split],
                data.eval_loader(split),
                from_rows=data.from_rows,
                on_batch=observations.add,
            )
            observed[split] = Observed(predictions, observations)
        logits = observed["train"].observations.logits
        targets = data.unknown.for_fitting(torch.from_numpy(observed["train"].predictions.targets), logits)
        for name, option in zip(names, options, strict=True):
            place = _images_of(settings)
            if name == "frozen_gp" and place in self._processes:
                parts[name] = self._processes[place]
                continue
            parts[name].fit(observed["train"].observations.of(name), targets, option, member.seed)
            if name == "frozen_gp":
                self._processes[place] = parts[name]
        return {choice: _with(choice, parts, observed["val"], observed["test"]) for choice in choices}


def _with(choice: str, parts: dict[str, PosthocPart], val: Observed, test: Observed) -> Predictions:
    chosen = {name: parts[name] for name in _parts_of(choice)}
    score, logits = auc_of_logits(val.predictions), val.observations.logits.double()
    for name, part in chosen.items():
        logits = part.tune(val.observations.of(name), logits, score)
    return corrected(test, chosen)


def _parts_of(choice: str) -> list[str]:
    return [] if choice == NONE else choice.split("+")


def _images_of(settings: TrainingSettings) -> str:
    """What the process of a run depends on: its frozen features and the labels of its training images."""
    drawn = settings.optimisation.seed if settings.data.train_fraction < 1 else None
    described = settings.model_dump(mode="json", include={"data", "encoder"})
    return json.dumps([described, drawn], sort_keys=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path)
    parser.add_argument("--reference", default="asl")
    parser.add_argument("--choices", default=",".join(CHOICES))
    arguments = parser.parse_args()
    choices = arguments.choices.split(",")
    kept = arguments.study / "parts"
    kept.mkdir(exist_ok=True)
    networks, found = Networks(), {}
    for member in read_plan(arguments.study).members(arguments.study):
        if not member.is_finished:
            continue
        files = {choice: kept / f"{member.name.replace('/', '-')}-{choice}.npz" for choice in choices}
        if not all(file.is_file() for file in files.values()):
            for choice, predictions in networks.predict(member, choices).items():
                predictions.save(files[choice])
        for choice, file in files.items():
            found[member.variant, choice, member.seed] = Predictions.load(file)
    print_table(found, choices, arguments.reference)


def print_table(
    found: dict[tuple[str, str, int], Predictions], choices: Sequence[str], reference: str
) -> None:
    print("| method | seeds | " + " | ".join(choices) + " |\n|---|---|" + "---|" * len(choices))
    for variant in dict.fromkeys(name for name, _, _ in found):
        seeds = [seed for name, choice, seed in found if (name, choice) == (variant, choices[0])]
        cells = []
        for choice in choices:
            own = [found[variant, choice, seed] for seed in seeds]
            values = 100 * np.array([mean_average_precision(predictions) for predictions in own])
            cell = f"{values.mean():.2f}"
            if len(values) > 1:
                cell += f" ± {values.std(ddof=1):.2f}"
            both = [seed for seed in seeds if (reference, choice, seed) in found]
            if variant != reference and both:
                other = [found[reference, choice, seed] for seed in both]
                mine = [found[variant, choice, seed] for seed in both]
                paired = compare_mean_map(mine, other, np.random.default_rng(0)).difference
                estimate, low, high = (100 * value for value in (paired.estimate, paired.low, paired.high))
                cell += f", {estimate:+.2f} ({low:+.2f} to {high:+.2f})"
            cells.append(cell)
        print(f"| {variant} | {len(seeds)} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
