"""From the unfamiliarity of images to the decision that they are unlike the training images.

The unfamiliarity of an image is the share of val that is less unlike the training images; see
`kmcl.posthoc.unfamiliarity`. Comparing it with 1 - r therefore gives false alarms at the rate r.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FALSE_ALARM_RATE = 0.05
UNFAMILIAR_FROM = 1 - FALSE_ALARM_RATE
"""From here on an image counts as unfamiliar."""
SENTENCE = "This picture is unlike the training images: its labels may be wrong."


def is_unfamiliar(unfamiliarity: npt.NDArray[np.floating]) -> npt.NDArray[np.bool_]:
    """Which of N images count as unfamiliar."""
    return np.asarray(unfamiliarity >= UNFAMILIAR_FROM)
