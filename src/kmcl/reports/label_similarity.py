"""Label similarity learned by a model: from its probabilities, and from its kernels in each image."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from kmcl.errors import InputError
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import Values
from kmcl.kernels import KernelMixture, log_bhattacharyya_diagonal, log_bhattacharyya_isotropic
from kmcl.methods.kmcl import KernelMixtureHead, QueryBranch
from kmcl.models.classifier import Classifier

MOST_ELEMENTS = 1_500_000_000
"""Images x labels x labels x dimensions that are compared; beyond that, a random subset of the images."""

BLOCK_ELEMENTS = 4_000_000

SIGMA_TOLERANCE = 1e-3


def find_mixture(classifier: Classifier, predictions: Predictions) -> KernelMixture | None:
    """The kernels of the predicted images, from their stored features.

    None for a model that does not decide by kernels alone, as the paper's does.

    Raises InputError where the features are missing or are not those of this model.
    """
    parts = list(classifier.head.modules())
    head = next((part for part in parts if isinstance(part, KernelMixtureHead)), None)
    if head is None or any(isinstance(part, QueryBranch) for part in parts):
        return None
    if predictions.features is None or predictions.features.shape[1] != head.in_features:
        raise InputError("the predictions hold no features of the model's width, so its kernels are unknown")
    with torch.inference_mode():
        mixture: KernelMixture = head(torch.from_numpy(predictions.features))
    sigma = mixture.label_variances.sqrt().numpy()
    stored = None if predictions.sigma is None else predictions.sigma[:, : sigma.shape[1]]
    if stored is not None and not np.allclose(sigma, stored, rtol=SIGMA_TOLERANCE):
        raise InputError("the stored sigma is not what the model gives for the stored features")
    return mixture


def probability_similarity(probabilities: Values) -> Values:
    """L x L: how likely two labels are to be in an image together, relative to how likely either is.

        S_kl = Σ_n p_k(n) p_l(n) / Σ_n [ p_k(n) + p_l(n) - p_k(n) p_l(n) ]

    the Jaccard index with probabilities p, N x L, in place of labels; the labels of the images n are not
    used. 0 where neither label is ever likely; 1 on the diagonal.
    """
    together, sums = probabilities.T @ probabilities, probabilities.sum(axis=0)
    either = sums[:, None] + sums[None] - together
    similarity = np.divide(together, either, out=np.zeros_like(together), where=either > 0)
    np.fill_diagonal(similarity, 1.0)
    return np.asarray(similarity)


def mean_similarity(
    mixture: KernelMixture, targets: npt.NDArray[np.int8], generator: np.random.Generator
) -> Values:
    """L x L mean Bhattacharyya coefficient between two labels' kernels, over images with either label.

        S_kl = mean over images n with y_nk = 1 or y_nl = 1 of ρ(K_nk, K_nl)

    The images are those in the denominator of the Jaccard index of two labels, so every pair that occurs has
    a value, also labels that never occur together. NaN where neither label occurs; 1 on the diagonal. A
    random subset of the images is used if there are too many.
    """
    carries = torch.from_numpy(targets == 1)
    num_images, num_labels = carries.shape
    per_image = num_labels**2 * (mixture.feature_dim if mixture.family.means_per_dimension else 1)
    rows = torch.arange(num_images)
    if num_images * per_image > MOST_ELEMENTS:
        kept = max(1, MOST_ELEMENTS // per_image)
        rows = torch.from_numpy(np.sort(generator.permutation(num_images)[:kept]))
    sums = torch.zeros(num_labels, num_labels, dtype=torch.float64)
    counts = torch.zeros_like(sums)
    for block in torch.split(rows, max(1, BLOCK_ELEMENTS // per_image)):
        either = carries[block].unsqueeze(2) | carries[block].unsqueeze(1)
        similarity = _within_images(mixture, block).exp()
        sums += (similarity * either).sum(dim=0)
        counts += either.sum(dim=0)
    mean = (sums / counts).numpy()
    np.fill_diagonal(mean, 1.0)
    return np.asarray(mean)


def _within_images(mixture: KernelMixture, rows: torch.Tensor) -> torch.Tensor:
    """B x L x L log-coefficients, in float64: at large D they are far below the smallest float32."""
    means = mixture.means[rows].double()
    variances = mixture.variances[rows].double().expand_as(means)
    if mixture.family.means_per_dimension:
        columns = [
            log_bhattacharyya_diagonal(
                means, variances, means[:, label : label + 1], variances[:, label : label + 1]
            )
            for label in range(means.shape[1])
        ]
        log_similarity = torch.stack(columns, dim=2)
    else:
        log_similarity = log_bhattacharyya_isotropic(
            means.unsqueeze(2),
            variances.unsqueeze(2),
            means.unsqueeze(1),
            variances.unsqueeze(1),
            mixture.feature_dim,
        )
    return log_similarity * mixture.exponent_scale
