"""One thread per process, and none that spins while it waits, for the tests and the processes they start.

Importing this module sets it, which must happen before torch is loaded: its OpenMP reads these variables
once. With a thread per core, each of which spins at every barrier, processes on a busy machine mostly wait
for one another; several workers of pytest-xdist or a study with two members are busy enough. Variables that
are set already are kept.
"""

from __future__ import annotations

import os

VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
}

for name, value in VARIABLES.items():
    os.environ.setdefault(name, value)
