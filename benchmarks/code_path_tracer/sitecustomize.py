"""Imported by every Python process of `benchmarks/code_paths.py`: writes down what runs of `kmcl`."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

LOG = os.environ.get("KMCL_CODE_PATHS", "")
SOURCE = os.environ.get("KMCL_CODE_PATHS_SOURCE", "")
COUNTED = {
    ("settings.py", "settings_from_values"): "settings built",
    ("resolution.py", "settings_from_values"): "settings built",
    ("opening.py", "open_encoder"): "encoder opened",
    ("view_images.py", "sample"): "views decoded to name a file",
    ("views.py", "sample"): "views decoded to name a file",
    ("frozen_runtime.py", "_agrees"): "exported stages compared",
    ("runtime.py", "_agrees"): "exported stages compared",
    ("metrics.py", "evaluate_decisions"): "metrics computed",
    ("metrics.py", "rank"): "metrics computed",
}
"""File and function of what is counted, by today's names and earlier ones."""


class Tracer:
    """Appends a line for each module of the package when a function of it first runs, and for each counted
    call; one write a line, so that several processes share the file. What runs while a module is imported,
    such as a decorator, is left out: it says nothing of the way a command goes.
    """

    def __init__(self, log: str, source: str) -> None:
        self.source = source
        self.seen: set[str] = set()
        self.imports: dict[int, int] = {}
        self.log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def __call__(self, frame: Any, event: str, argument: object) -> None:
        code = frame.f_code
        file: str = code.co_filename
        if code.co_name == "_find_and_load" and file.startswith("<frozen importlib"):
            thread, change = threading.get_ident(), {"call": 1, "return": -1}.get(event, 0)
            # This module is itself being imported when tracing begins.
            self.imports[thread] = max(0, self.imports.get(thread, 0) + change)
            return
        if event != "call" or not file.startswith(self.source) or self.imports.get(threading.get_ident()):
            return
        if file not in self.seen:
            self.seen.add(file)
            self._write(f"runs {file.removeprefix(self.source)}")
        counted = COUNTED.get((Path(file).name, code.co_name))
        if counted == "encoder opened" and sys.modules["torch"].get_default_device().type == "meta":
            counted = "shapes of a model checked without weights"
        if counted is not None:
            self._write(f"counts {counted}")

    def _write(self, line: str) -> None:
        os.write(self.log, f"{line}\n".encode())


if LOG:
    tracer = Tracer(LOG, SOURCE)
    threading.setprofile(tracer)
    sys.setprofile(tracer)
