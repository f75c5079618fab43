"""scikit-learn's logistic regression, one for each label, on pooled features of the encoder as it is."""

import os

import numpy as np
import sklearn
import torch
from peer_run import open_peer_run
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from starting_weights import ENCODER, offer_weights, timm
from torch.utils.data import DataLoader, Dataset

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1)


class Pixels(Dataset):
    """Whole images at the size of the run, with mean and deviation 0.5."""

    def __init__(self, paths, size):
        self.paths, self.size = list(paths), size

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with Image.open(self.paths[index]) as image:
            image.draft("RGB", (self.size, self.size))
            small = image.convert("RGB").resize((self.size, self.size), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.asarray(small, np.float32) / 127.5 - 1).permute(2, 0, 1)


@torch.inference_mode()
def pooled_features(model, paths, size):
    loader = DataLoader(Pixels(paths, size), batch_size=64, num_workers=len(os.sched_getaffinity(0)))
    return np.concatenate([model(images).numpy() for images in loader])


def main():
    run = open_peer_run()
    offer_weights(run.output)
    model = timm.create_model(ENCODER, pretrained=True, num_classes=0).eval()
    train, val = (pooled_features(model, table.image, run.image_size) for table in (run.train, run.val))
    targets, val_targets = run.train[run.labels].to_numpy(), run.val[run.labels].to_numpy()
    seen = val_targets.any(axis=0)  # a label without positives has no average precision
    best, best_map = None, -1.0
    for strength in STRENGTHS:
        regression = OneVsRestClassifier(LogisticRegression(C=strength, max_iter=1000), n_jobs=-1)
        candidate = make_pipeline(StandardScaler(), regression).fit(train, targets)
        scores = candidate.predict_proba(val)
        val_map = average_precision_score(val_targets[:, seen], scores[:, seen])
        if val_map > best_map:
            best, best_map, chosen = candidate, val_map, strength
    run.describe(
        sklearn.__version__, f"features standardised, C = {chosen:g} by val among {STRENGTHS}, others default"
    )
    run.record(lambda: best.predict_proba(pooled_features(model, run.test.image, run.image_size)))


if __name__ == "__main__":
    main()
