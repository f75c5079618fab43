"""A real server of the S3 protocol on loopback: moto's, where the package is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from label_studio_server import free_port, wait_for


@contextmanager
def running_s3(folder: Path) -> Iterator[dict[str, str]]:
    """A new server in a process of its own: the environment with which boto3 finds it."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    settings = {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "s3.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ})
        try:
            wait_for(url + "/moto-api/", process, 120, folder / "s3.log")
            yield settings
        finally:
            process.terminate()
            process.wait(60)
