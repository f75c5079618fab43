"""Cleanlab's scores of multi-label annotations, in the environment it is installed in.

    python score_cleanlab.py IN.npz OUT.npz

IN has `targets` (N x L of 0 and 1) and `probabilities` (N x L), or `features` (N x D) from which these are
computed as in Cleanlab's tutorials: logistic regression, one label against the rest, in five folds. OUT has
`labels` (N x L) and `images` (N), higher for what is more likely right.
"""

from __future__ import annotations

import sys

import numpy as np


def main(source: str, destination: str) -> None:
    from cleanlab import Datalab
    from cleanlab.internal.multilabel_utils import onehot2int
    from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class

    with np.load(source) as given:
        targets = given["targets"]
        probabilities = (
            given["probabilities"]
            if "probabilities" in given
            else own_probabilities(given["features"], targets)
        )
    labels = onehot2int(targets)
    lab = Datalab(data={"labels": labels}, label_name="labels", task="multilabel", verbosity=0)
    lab.find_issues(pred_probs=probabilities, issue_types={"label": {}})
    by_label = get_label_quality_scores_per_class(labels, probabilities)
    np.savez(
        destination,
        labels=np.stack(by_label, axis=1) if isinstance(by_label, list) else np.asarray(by_label),
        images=lab.get_issues("label")["label_score"].to_numpy(),
    )


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
