"""The routes of Label Studio, with requests in the form of the real server's (1.23.2)."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from kmcl.data.writers.labelstudio import labeling_interface
from kmcl.serving.service import label_studio
from kmcl.serving.service.application import create_application
from kmcl.serving.service.label_studio_host import LabelStudioHost
from kmcl.serving.service.settings import ServiceSettings
from kmcl.serving.service.task_images import TaskImages

from .conftest import LABELS, make_image
from .studio_server import LEGACY, StudioServer
from .talking import SlowPredictor, refusal, send

CAPTURED = json.loads(Path(__file__).with_name("label_studio_requests.json").read_text())
"""Bodies that Label Studio sent for a project with two uploaded images: setup, predict, webhook."""
INTERFACE = labeling_interface(LABELS)
Serve = Callable[..., TestClient]


def reference(number: int) -> str:
    return f"/data/upload/1/0a1b2c3d-{number}.png"


def predict_body(num: int = 2, **changes: Any) -> dict[str, Any]:
    """The request of the real server, about images of the test."""
    body = copy.deepcopy(CAPTURED["predict"])
    task = body["tasks"][0]
    body["tasks"] = [task | {"id": number + 1, "data": {"image": reference(number)}} for number in range(num)]
    return body | {"label_config": INTERFACE} | changes


@pytest.fixture
def studio() -> Iterator[tuple[StudioServer, str]]:
    server = StudioServer()
    server.files = {reference(number): make_image(number) for number in range(3)}
    with server.running() as url:
        yield server, url


@pytest.fixture
def serve(predictor, studio: tuple[StudioServer, str]) -> Iterator[Serve]:
    opened = []

    def open_client(model: Any = predictor, **settings: Any) -> TestClient:
        images = TaskImages(LabelStudioHost(studio[1], LEGACY))
        client = TestClient(create_application(model, ServiceSettings(**settings), "bugs", None, images))
        opened.append(client.__enter__())
        return client

    yield open_client
    for client in opened:
        client.__exit__(None, None, None)


def test_health_setup_and_versions(serve: Serve) -> None:
    client = serve()
    assert client.get("/health").json()["status"] == "UP"
    assert client.get("/versions").json() == {"versions": ["bugs"]}
    told = client.post("/setup", json=CAPTURED["setup"] | {"schema": INTERFACE}).json()
    assert told == {"model_version": "bugs", "labels_without_choice": []}


def test_predictions_are_those_of_the_service(serve: Serve, studio: tuple[StudioServer, str]) -> None:
    client = serve()
    answer = client.post("/predict", json=predict_body())
    assert answer.status_code == 200, answer.text
    images = send(client, make_image(0), make_image(1)).json()["images"]
    for result, image in zip(answer.json()["results"], images, strict=True):
        present = [label for label in image["labels"] if label["present"]]
        (choices,) = result["result"]
        assert choices == {
            "from_name": "labels",
            "to_name": "image",
            "type": "choices",
            "value": {"choices": [label["label"] for label in present]},
        }
        probabilities = [label["probability"] for label in present]
        assert probabilities
        assert result["score"] == pytest.approx(sum(probabilities) / len(probabilities), abs=1e-4)
        assert result["model_version"] == answer.json()["model_version"] == "bugs"
    assert "kmcl_images_total 4.0" in client.get("/metrics").text
    assert {header for _, header in studio[0].asked} == {f"Token {LEGACY}"}


def test_the_server_and_the_token_of_a_request_are_not_used(
    serve: Serve, studio: tuple[StudioServer, str]
) -> None:
    client = serve()
    with StudioServer().running() as elsewhere:
        setup = CAPTURED["setup"] | {"schema": INTERFACE, "hostname": elsewhere, "access_token": "stolen"}
        assert client.post("/setup", json=setup).status_code == 200
        body = predict_body(1)
        assert client.post("/predict", json=body).status_code == 200
        body["tasks"][0]["data"]["image"] = elsewhere + reference(0)
        assert refusal(client.post("/predict", json=body)) == (422, "no_image_read")
    assert [header for _, header in studio[0].asked] == [f"Token {LEGACY}"]


def test_labels_that_the_interface_lacks_are_left_out_and_named(serve: Serve, caplog) -> None:
    client = serve()
    full = client.post("/predict", json=predict_body(1)).json()["results"][0]["result"][0]["value"]["choices"]
    interface = labeling_interface((full[0], "unheard of"))
    told = client.post("/setup", json={"schema": interface}).json()
    assert told["labels_without_choice"] == [label for label in LABELS if label != full[0]]
    assert "lacks" in caplog.text
    answer = client.post("/predict", json=predict_body(1, label_config=interface)).json()
    assert answer["results"][0]["result"][0]["value"] == {"choices": [full[0]]}


def test_images_that_cannot_be_read_get_no_prediction(serve: Serve, studio, caplog) -> None:
    client = serve()
    studio[0].files[reference(1)] = b"no image"
    body = predict_body(4)
    body["tasks"][2]["data"] = {"text": "no image here"}
    answer = client.post("/predict", json=body).json()
    assert [bool(result) for result in answer["results"]] == [True, False, False, False]
    assert answer["results"][1:] == [[], [], []]
    first, second, third = answer["not_predicted"]
    assert first.startswith("task 2: its image is not an image of a supported format")
    assert second == "task 3: its data name no image"
    assert third == "task 4: Label Studio answered 404"
    assert "no prediction for 3 of 4 tasks; task 2" in caplog.text


def test_many_tasks_are_scored_a_few_at_a_time(serve: Serve, predictor) -> None:
    slow = SlowPredictor(predictor)
    client = serve(slow, max_images=2, max_waiting=2)
    slow.holds = True
    slow.go.set()
    answer = client.post("/predict", json=predict_body(3))
    assert [len(result["result"]) for result in answer.json()["results"]] == [1, 1, 1]
    assert sum(slow.batches) == 3
    assert max(slow.batches) <= 2


def test_what_is_not_done_in_time_gets_no_prediction(serve: Serve, predictor) -> None:
    class Stopping(SlowPredictor):
        def score(self, images):
            self.holds = sum(self.batches) >= 3  # the image of the start, and the first two
            self.batches.append(len(images))
            return super().score(images)

    stopping = Stopping(predictor)
    client = serve(stopping, max_images=2, timeout_seconds=3)
    answer = client.post("/predict", json=predict_body(3)).json()
    stopping.go.set()
    assert [bool(result) for result in answer["results"]] == [True, True, False]
    assert answer["not_predicted"] == [f"task 3: {label_studio.TOO_LATE}"]


def test_a_webhook_changes_nothing_and_nothing_is_trained(serve: Serve) -> None:
    client = serve()
    assert client.post("/webhook", json=CAPTURED["webhook"]).json() == {"status": "ok"}
    training = client.post("/webhook", json={"action": "START_TRAINING", "project": {"id": 1}})
    assert refusal(training) == (422, "no_training")


def test_the_token_as_a_password(serve: Serve) -> None:
    client = serve(token="s3cret")

    def basic(text: str) -> dict[str, str]:
        return {"Authorization": "Basic " + base64.b64encode(text.encode()).decode()}

    for path, method in (("/health", "GET"), ("/versions", "GET"), ("/setup", "POST"), ("/predict", "POST")):
        body = None if method == "GET" else predict_body(1) | {"schema": INTERFACE}
        for headers in (
            {},
            basic("label-studio:wrong"),
            basic("s3cret"),
            {"Authorization": "Basic ä".encode()},
        ):
            assert refusal(client.request(method, path, json=body, headers=headers)) == (401, "unauthorized")
        for headers in (basic("label-studio:s3cret"), {"Authorization": "Bearer s3cret"}):
            assert client.request(method, path, json=body, headers=headers).status_code == 200
    assert refusal(client.get("/v1/labels", headers=basic("label-studio:s3cret")))[0] == 401
    assert client.get("/healthz").status_code == 200


def test_without_the_flag_there_are_no_such_routes(client: TestClient) -> None:
    for path in ("/health", "/setup", "/predict", "/webhook", "/versions"):
        assert refusal(client.post(path, json={})) == (404, "not_found")


DEEP = "[" * 100_000
BILLION = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><View>&b;</View>'


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe\x00", 400),
        (DEEP.encode(), 400),
        (b'{"a":' + DEEP.encode(), 400),
        (b"[]", 422),
        (b"7", 422),
        (b"{}", 422),
        (b'{"label_config": 7, "schema": 7}', 422),
        (b"9" * 5000, 400),
    ],
    ids=["empty", "cut", "bytes", "deep", "deep inside", "list", "number", "object", "types", "digits"],
)
def test_bodies_that_are_none(serve: Serve, content: bytes, status: int) -> None:
    client = serve()
    for path in ("/predict", "/setup"):
        assert refusal(client.post(path, content=content))[0] == status
    assert client.post("/webhook", content=content).status_code in (200, status)


@pytest.mark.parametrize(
    "interface",
    [
        "",
        "<View>",
        "\x00",
        "\ud800",
        BILLION,
        "<a>" * 100_000,
        "<View/>",
        INTERFACE.replace("<Image", "<Text"),
        INTERFACE.replace("multiple", "single"),
        INTERFACE.replace('choice="multiple"', 'choice="multiple" perRegion="true"'),
        labeling_interface(("other",)),
        "<View>" + " " * 1_000_001 + "</View>",
    ],
    ids=[
        *("empty", "cut", "null", "surrogate", "entities", "deep", "nothing", "no image", "single"),
        *("regions", "other labels", "long"),
    ],
)
def test_unsuitable_interfaces(serve: Serve, interface: str) -> None:
    client = serve()
    for path, key in (("/predict", "label_config"), ("/setup", "schema")):
        content = json.dumps(predict_body(1) | {key: interface})
        assert refusal(client.post(path, content=content)) == (422, "unsuitable_interface")


@pytest.mark.parametrize(
    "tasks", [None, 7, {}, [7], [[]], "tasks"], ids=["none", "number", "object", "numbers", "lists", "text"]
)
def test_tasks_of_another_form(serve: Serve, tasks: Any) -> None:
    assert refusal(serve().post("/predict", json=predict_body(tasks=tasks))) == (422, "invalid_request")


@pytest.mark.parametrize(
    "task",
    [{}, {"data": 7}, {"data": {"image": {"a": 1}}}, {"id": [[]], "data": {"image": "file:///etc/passwd"}}],
    ids=["empty", "number", "object", "file"],
)
def test_tasks_without_an_image_that_can_be_read(serve: Serve, task: Any) -> None:
    answer = serve().post("/predict", json=predict_body(tasks=[task]))
    assert refusal(answer) == (422, "no_image_read")
    assert "task number 1" in answer.text


def test_tasks_and_bytes_are_bounded(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client = serve()
    monkeypatch.setattr(label_studio, "MOST_TASKS", 2)
    assert client.post("/predict", json=predict_body(2)).status_code == 200
    assert refusal(client.post("/predict", json=predict_body(3))) == (413, "too_many_tasks")
    monkeypatch.setattr(label_studio, "LONGEST_BODY", 100)
    assert refusal(client.post("/predict", json=predict_body(2))) == (413, "body_too_large")
    assert refusal(client.post("/setup", json={"schema": INTERFACE})) == (413, "body_too_large")


def test_no_task_at_all(serve: Serve) -> None:
    assert serve().post("/predict", json=predict_body(tasks=[])).json()["results"] == []
