"""The real tracking server of MLflow, where it is installed: started on loopback.

KMCL_MLFLOW names its program, which has an environment of its own (the extra `mlflow` is the client alone):
python -m venv ENV, then ENV/bin/pip install mlflow, then KMCL_MLFLOW=ENV/bin/mlflow.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from label_studio_server import free_port, wait_for

PROGRAM = os.environ.get("KMCL_MLFLOW")


@contextmanager
def running_mlflow(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A new server with its database and artefacts below the folder: its address, and its process."""
    assert PROGRAM is not None
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [PROGRAM, "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'runs.db'}"]
    command += ["--artifacts-destination", str(folder / "artefacts")]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    environment = os.environ | quiet
    environment.pop("PYTHONPATH", None)
    environment.pop("MLFLOW_TRACKING_URI", None)
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, env=environment, cwd=folder, start_new_session=True
        )
        try:
            wait_for(url + "/health", process, 600, folder / "log.txt")
            yield url, process
        finally:
            with suppress(ProcessLookupError):  # a test may have ended it
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)
