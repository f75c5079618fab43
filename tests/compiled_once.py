"""Modules are compiled once for all processes of the tests, also where the environment says otherwise.

With PYTHONDONTWRITEBYTECODE, as images of Docker often set it, each of the many processes that tests start
would compile the whole package, which takes longer than most of them do. Importing this module sets it.
"""

from __future__ import annotations

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
