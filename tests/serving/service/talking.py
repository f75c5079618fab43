"""How the tests talk to a service: images sent, refusals read, a model that can be held."""

from __future__ import annotations

import threading
import time

from starlette.testclient import TestClient

from kmcl.serving.service.schemas import Error


def refusal(response) -> tuple[int, str]:
    """Status and code; the body must be of the one shape."""
    return response.status_code, Error.model_validate_json(response.content).error.code


def send(client: TestClient, *contents: bytes, **parameters: object):
    files = [("images", (f"{number}.png", content)) for number, content in enumerate(contents)]
    return client.post("/v1/predict", files=files, params=parameters)


class SlowPredictor:
    """A real predictor that waits for a sign before it scores."""

    def __init__(self, predictor) -> None:
        self._predictor = predictor
        self.go = threading.Event()
        self.batches: list[int] = []
        self.holds = False

    def __getattr__(self, name: str):
        return getattr(self._predictor, name)

    def score(self, images):
        if self.holds:
            self.batches.append(len(images))
            assert self.go.wait(20)
        return self._predictor.score(images)


def wait_until(condition) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)
