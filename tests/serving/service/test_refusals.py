"""What is no image, no upload or no business of the sender is told so, and nothing breaks."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image
from starlette.testclient import TestClient

from .conftest import make_image
from .talking import SlowPredictor, refusal, send


def test_what_is_no_image(client: TestClient):
    photograph = make_image(0, 200, 200, "JPEG")
    assert refusal(send(client, b"just text")) == (415, "unsupported_image")
    assert refusal(send(client, b"")) == (415, "unsupported_image")
    assert refusal(send(client, b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")) == (
        415,
        "unsupported_image",
    )
    cut = send(client, make_image(1), photograph[: len(photograph) // 2])
    assert refusal(cut) == (422, "broken_image")
    assert "1.png cannot be decoded" in cut.text


def test_damaged_images_are_refused_or_read_but_never_fail(client: TestClient):
    rng = np.random.default_rng(0)
    for file_format in ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP"):
        whole = np.frombuffer(make_image(1, file_format=file_format), dtype=np.uint8)
        for _ in range(8):
            damaged = whole.copy()
            places = rng.integers(0, len(whole), 4)
            damaged[places] = rng.integers(0, 256, 4)
            answer = send(client, damaged.tobytes())
            assert answer.status_code in (200, 413, 415, 422), answer.text


def test_bodies_that_are_no_upload(client: TestClient):
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    assert refusal(client.post("/v1/predict", json={"images": []})) == (415, "unsupported_body")
    assert refusal(client.post("/v1/predict")) == (415, "unsupported_body")
    assert refusal(client.post("/v1/predict", content=b"", headers=form))[0] in (400, 422)
    assert refusal(client.post("/v1/predict", content=b"nonsense", headers=form)) == (400, "broken_body")
    no_boundary = {"Content-Type": "multipart/form-data"}
    assert refusal(client.post("/v1/predict", content=b"--x", headers=no_boundary)) == (400, "broken_body")
    other = client.post("/v1/predict", files={"pictures": ("a.png", make_image(0))})
    assert refusal(other) == (422, "unknown_field")
    text = client.post("/v1/predict", files={"images": (None, "text")})
    assert refusal(text) == (415, "unsupported_image")
    nameless = client.post("/v1/predict", files={"images": (None, make_image(0))})
    assert nameless.json()["images"][0]["name"] == "image 1"


def test_wrong_parameters_paths_and_methods(client: TestClient):
    assert refusal(send(client, make_image(0), saliency="perhaps")) == (422, "invalid_request")
    assert refusal(send(client, make_image(0), saliency_label="fly")) == (422, "unknown_label")
    assert refusal(client.get("/v1/nothing")) == (404, "not_found")
    answer = client.get("/v1/predict")
    assert refusal(answer) == (405, "method_not_allowed")
    assert answer.headers["Allow"] == "POST"


def test_a_failure_inside_tells_nothing(client_of, predictor):
    class Failing(SlowPredictor):
        def score(self, images):
            if self.holds:
                raise RuntimeError("secret path /home/x")
            return self._predictor.score(images)

    failing = Failing(predictor)
    client = client_of(failing)
    failing.holds = True
    client._transport.raise_server_exceptions = False
    answer = send(client, make_image(0))
    assert refusal(answer) == (500, "internal_error")
    assert "secret" not in answer.text
    failing.holds = False
    assert send(client, make_image(0)).status_code == 200  # the thread of the model lives on


def test_token(client_of):
    client = client_of(token="s3cret")
    right = {"Authorization": "Bearer s3cret"}
    for path in ("/v1/labels", "/metrics"):
        for headers in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": "Basic s3cret"}):
            answer = client.get(path, headers=headers)
            assert refusal(answer) == (401, "unauthorized")
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert client.get(path, headers=right).status_code == 200
    assert refusal(send(client, make_image(0))) == (401, "unauthorized")
    non_ascii = client.get("/v1/labels", headers={"Authorization": "Bearer s3cr\u00e9t".encode("latin-1")})
    assert refusal(non_ascii) == (401, "unauthorized")
    for path in ("/", "/page.js", "/healthz", "/openapi.json"):
        assert client.get(path).status_code == 200


def test_metrics_count_what_happened(client_of, cores):
    cores(1)  # more would share the two images between them
    client = client_of()
    send(client, make_image(0), make_image(1))
    send(client, b"text")
    client.get("/nowhere/at/all")
    text = client.get("/metrics").text
    assert 'kmcl_requests_total{path="/v1/predict",status="200"} 1.0' in text
    assert 'kmcl_requests_total{path="/v1/predict",status="415"} 1.0' in text
    assert 'kmcl_requests_total{path="other",status="404"} 1.0' in text
    assert "kmcl_images_total 2.0" in text
    assert 'kmcl_batch_images_bucket{le="2.0"} 1.0' in text
    assert "kmcl_waiting_images 0.0" in text


def test_a_photograph_upright_by_its_exif(client: TestClient):
    image = Image.open(io.BytesIO(make_image(4, 40, 60)))
    turned = image.transpose(Image.Transpose.ROTATE_90)
    exif = turned.getexif()
    exif[0x0112] = 6  # to be turned by 90 degrees to the right, which undoes it
    buffer = io.BytesIO()
    turned.save(buffer, "PNG", exif=exif)
    plain, upright = send(client, make_image(4, 40, 60), buffer.getvalue()).json()["images"]
    assert plain["labels"] == upright["labels"]
