"""The written BentoML service, started by the real BentoML and asked over HTTP.

KMCL_BENTOML names its program, in an environment of its own: python -m venv ENV, then
ENV/bin/pip install bentoml 'kmcl[onnx]', then KMCL_BENTOML=ENV/bin/bentoml.
"""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import uuid
from contextlib import suppress
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np
import pytest
from PIL import Image

import kmcl
from brightness_onnx import brightness_model
from kmcl.serving.deployment import write_bentoml_service
from label_studio_server import free_port, wait_for

PROGRAM = os.environ.get("KMCL_BENTOML")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no BentoML: KMCL_BENTOML names its program"),
]


def test_bentoml_serves_the_model(tmp_path: Path):
    exported = tmp_path / "model.onnx"
    exported.write_bytes(brightness_model(("bright", "brighter"), unfamiliarity=True))
    service = write_bentoml_service(exported, tmp_path / "bright")
    content = io.BytesIO()
    Image.fromarray(np.full((20, 30, 3), 1, np.uint8)).save(content, "PNG")
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [str(PROGRAM), "serve", "service:Classifier", "--host", "127.0.0.1", "--port", str(port)]
    settings = {"BENTOML_HOME": str(tmp_path / "home"), "BENTOML_DO_NOT_TRACK": "True"}
    with (tmp_path / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=service.parent,
            env=os.environ | settings,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            wait_for(url + "/readyz", process, 600, tmp_path / "log.txt")
            answer = ask(url + "/predict", content.getvalue())
        finally:
            with suppress(ProcessLookupError):  # it has ended, and its log says why
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)
    (expected,) = kmcl.load(exported).predict(Image.open(content))
    assert answer["unfamiliarity"] == pytest.approx(expected.unfamiliarity)
    assert [label["label"] for label in answer["labels"]] == ["bright", "brighter"]
    for found, label in zip(answer["labels"], expected.labels, strict=True):
        assert found["probability"] == pytest.approx(label.probability)
        assert (found["threshold"], found["present"]) == (label.threshold, label.present)


def ask(url: str, image: bytes) -> dict:
    boundary = uuid.uuid4().hex
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n'
        "Content-Type: image/png\r\n\r\n"
    )
    body = head.encode() + image + f"\r\n--{boundary}--\r\n".encode()
    request = Request(url, body, {"Content-Type": f"multipart/form-data; boundary={boundary}"})
    with urlopen(request, timeout=300) as response:
        return json.loads(response.read())
