"""Processes of tests are forked from one with everything imported, which takes longer than all they do.

Python has one such process for all, started with the first: what it imports is therefore said in one place.
"""

from __future__ import annotations

import multiprocessing

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["kmcl.cli.app", "kmcl.training.pipeline", "kmcl.reports.run_summary"])
