"""Cleanlab's scores of multi-label annotations, in the environment it is installed in.

    python score_cleanlab.py IN.npz OUT.npz

IN has `targets` (S x N x L of 0 and 1, S annotations of the same images) and `probabilities` (S x N x L), or
`features` (N x D) from which these are computed as in Cleanlab's tutorials: logistic regression, one label
against the rest, in five folds. OUT has `labels` (S x N x L) and `images` (S x N), higher for what is more
likely right.
"""

from __future__ import annotations

import sys

import numpy as np


def main(source: str, destination: str) -> None:
    with np.load(source) as given:
        content = dict(given)
    labels, images = [], []
    for place, targets in enumerate(content["targets"]):
        if "features" in content:
            probabilities = own_probabilities(content["features"], targets)
        else:
            probabilities = content["probabilities"][place]
        by_label, by_image = quality_scores(targets, probabilities)
        labels.append(by_label)
        images.append(by_image)
    np.savez(destination, labels=np.stack(labels), images=np.stack(images))


def quality_scores(targets: np.ndarray, probabilities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of labels by the function for them, of images by Datalab."""
    from cleanlab import Datalab
    from cleanlab.internal.multilabel_utils import onehot2int
    from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class

    labels = onehot2int(targets)
    lab = Datalab(data={"labels": labels}, label_name="labels", task="multilabel", verbosity=0)
    lab.find_issues(pred_probs=probabilities, issue_types={"label": {}})
    by_label = np.asarray(get_label_quality_scores_per_class(labels, probabilities))
    by_image = lab.get_issues("label")["label_score"].to_numpy()
    return by_label if by_label.shape == targets.shape else by_label.T, by_image


def own_probabilities(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import KFold, cross_val_predict
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), OneVsRestClassifier(LogisticRegression(max_iter=100)))
    folds = KFold(5, shuffle=True, random_state=0)
    return cross_val_predict(model, features, targets, cv=folds, method="predict_proba")


if __name__ == "__main__":
    main(*sys.argv[1:])
