"""A trained model in torch: prediction, saving to a folder and to the model hub."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from huggingface_hub import ModelHubMixin

from kmcl.data.augmentation import resize
from kmcl.models.classifier import Classifier
from kmcl.models.folder import (
    DESCRIPTION_FILE,
    FORMAT,
    ModelDescription,
    load_model,
    save_model,
)
from kmcl.serving.hub import download
from kmcl.serving.image_predictor import BatchScores, ImagePredictor
from kmcl.serving.loading import model_folder_of
from kmcl.serving.model_card import write_model_card
from kmcl.serving.predictions import Pixels, Samples

CARD_FILE = "README.md"


class Predictor(ImagePredictor, ModelHubMixin):
    """A classifier with its labels, preprocessing, thresholds and calibration.

    source: the run or model folder it was loaded from, whose metrics its card shows

    `save_pretrained`, `from_pretrained` and `push_to_hub` are those of the hub's mixin.
    """

    def __init__(
        self, classifier: Classifier, description: ModelDescription, source: Path | None = None
    ) -> None:
        encoder = classifier.encoder
        super().__init__(
            description.rules, encoder.input_size, encoder.in_channels if encoder.takes_vectors else None
        )
        self.classifier = classifier.eval()
        self.description = description
        self.source = source

    @property
    def has_unfamiliarity(self) -> bool:
        return self.classifier.gives_unfamiliarity

    @property
    def summary_size(self) -> int:
        return self.classifier.summary_size

    @torch.inference_mode()
    def score(self, images: Samples) -> BatchScores:
        batch = torch.from_numpy(images)
        if self.feature_dim is None:
            batch = batch.permute(0, 3, 1, 2)
        output = self.classifier(batch.to(next(self.classifier.parameters()).device))
        return BatchScores(
            score=output.probabilities.float().cpu().numpy(),
            probability=self.rules.calibrate(output.logits.float().cpu().numpy()),
            sigma=_optional(output.sigma),
            unfamiliarity=_optional(output.unfamiliarity),
            feature_summary=_optional(output.feature_summary),
        )

    def resize(self, image: Pixels) -> Pixels:
        return resize(image, self.image_size, self.image_size)

    def _save_pretrained(self, save_directory: Path) -> None:
        """Write the model with image size and normalisation spelled out, and its card."""
        encoder = self.classifier.encoder
        description = replace(
            self.description, image_size=encoder.input_size or None, mean=encoder.mean, std=encoder.std
        )
        save_model(save_directory, self.classifier, description)
        # The hub counts downloads by this file; loading does not read it.
        config = {"library_name": "kmcl", "format": FORMAT, "architecture": description.encoder}
        (save_directory / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        card = save_directory / CARD_FILE
        if not card.exists():  # the user may have edited it
            card.write_text(self._own_card() or write_model_card(description, self.source), encoding="utf-8")

    def _own_card(self) -> str | None:
        """The card in the folder that the model was loaded from, which may have been edited."""
        if self.source is None or not (self.source / DESCRIPTION_FILE).is_file():
            return None
        card = self.source / CARD_FILE
        return card.read_text(encoding="utf-8") if card.is_file() else None

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> Self:
        wanted = ("revision", "cache_dir", "force_download", "local_files_only", "token")
        folder = Path(model_id)
        if not folder.is_dir():
            folder = download(model_id, **{name: options[name] for name in wanted if name in options})
        return cls(*load_model(model_folder_of(folder)), folder)


def _optional(tensor: torch.Tensor | None) -> npt.NDArray[np.float32] | None:
    return None if tensor is None else tensor.float().cpu().numpy()
