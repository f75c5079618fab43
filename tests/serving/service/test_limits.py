"""Every limit is answered with its status and the one shape of error."""

from __future__ import annotations

import asyncio
import struct
import threading
import time
import zlib

import pytest

from kmcl.errors import InputError
from kmcl.serving.service.application import create_application
from kmcl.serving.service.settings import ServiceSettings

from .conftest import make_image
from .talking import SlowPredictor, refusal, send, wait_until


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few hundred bytes that says it is that large."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + data + chunk(b"IEND", b"")


def test_pixels(client_of):
    client = client_of(max_image_pixels=10_000)
    assert send(client, make_image(0, 100, 100)).status_code == 200
    answer = send(client, make_image(0, 100, 101))
    assert refusal(answer) == (413, "too_many_pixels")
    assert "0.png has 101 x 100 pixels; at most 10,000" in answer.text
    start = time.perf_counter()
    for side in (20_000, 2**31 - 1):  # the second is beyond what Pillow itself opens
        assert refusal(send(client, bomb(side, side))) == (413, "too_many_pixels")
    assert time.perf_counter() - start < 2


def test_number_of_images_and_maps(client_of):
    client = client_of(max_images=3, max_maps=4)
    images = [make_image(seed) for seed in range(5)]
    assert send(client, *images[:3]).status_code == 200
    assert refusal(send(client, *images[:4])) == (413, "too_many_images")
    assert refusal(send(client, *images)) == (413, "too_many_images")
    assert send(client, *images[:2], saliency_label=["ant", "bee"]).status_code == 200
    assert refusal(send(client, *images[:3], saliency_label=["ant", "bee"])) == (413, "too_many_maps")


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "streamed"])
def test_body_size(client_of, declared: bool):
    client = client_of(max_body_bytes=20_000)
    head = b'--x\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\n\r\n'
    body = head + bytes(30_000) + b"\r\n--x--\r\n"
    content = body if declared else (body[place : place + 1000] for place in range(0, len(body), 1000))
    answer = client.post(
        "/v1/predict", content=content, headers={"Content-Type": "multipart/form-data; boundary=x"}
    )
    assert refusal(answer) == (413, "body_too_large")
    assert send(client, make_image(0)).status_code == 200


def call(application, body: list[dict], headers: dict[bytes, bytes]) -> tuple[int, int]:
    """POST by hand; returns the status and how many messages of the body were taken."""
    taken, answered = 0, []

    async def receive():
        nonlocal taken
        if taken == len(body):
            await asyncio.sleep(3600)
        taken += 1
        return body[taken - 1]

    async def send_message(message):
        answered.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/predict",
        "raw_path": b"/v1/predict",
        "query_string": b"",
        "headers": [(b"content-type", b"multipart/form-data; boundary=x"), *headers.items()],
        "http_version": "1.1",
        "scheme": "http",
        "server": ("x", 80),
        "client": ("y", 1),
        "root_path": "",
    }

    async def run():
        async with application.router.lifespan_context(application):
            await application(scope, receive, send_message)

    asyncio.run(run())
    return answered[0]["status"], taken


def test_an_endless_body_is_not_read_to_its_end(predictor):
    """Whether it declares nothing or too little: what was read is bounded."""
    chunk = {"type": "http.request", "body": bytes(1000), "more_body": True}
    head = b'--x\r\nContent-Disposition: form-data; name="images"; filename="a"\r\n\r\n'
    first = {"type": "http.request", "body": head, "more_body": True}
    settings = ServiceSettings(max_body_bytes=10_000)
    for headers in ({}, {b"content-length": b"5"}, {b"content-length": b"99999999999"}):
        status, taken = call(create_application(predictor, settings), [first] + [chunk] * 1000, headers)
        assert status == 413
        assert taken <= 25
    # A body that is broken from its first byte is not read to its end either.
    status, taken = call(create_application(predictor, settings), [chunk] * 1000, {})
    assert (status, taken <= 25) == (400, True)
    status, taken = call(create_application(predictor, settings), [chunk], {b"content-length": b"-3"})
    assert status == 400


def test_an_upload_that_stalls(predictor):
    settings = ServiceSettings(timeout_seconds=0.3)
    body = [{"type": "http.request", "body": b"--x\r\n", "more_body": True}]
    start = time.perf_counter()
    assert call(create_application(predictor, settings), body, {})[0] == 408
    assert time.perf_counter() - start < 5


def test_a_client_that_goes_away(predictor):
    body = [{"type": "http.request", "body": b"--x\r\n", "more_body": True}, {"type": "http.disconnect"}]
    assert call(create_application(predictor), body, {})[0] == 400


def test_a_model_that_takes_too_long(client_of, cores, predictor):
    cores(1)
    slow = SlowPredictor(predictor)
    client = client_of(slow, timeout_seconds=0.4)
    slow.holds = True
    assert refusal(send(client, make_image(0))) == (504, "timeout")
    # The second was cancelled while it waited: the model never sees it.
    assert refusal(send(client, make_image(1))) == (504, "timeout")
    slow.go.set()
    assert send(client, make_image(2)).status_code == 200
    assert slow.batches == [1, 1]


def test_a_full_queue_says_when_to_come_back(client_of, cores, predictor):
    cores(1)
    slow = SlowPredictor(predictor)
    client = client_of(slow, max_images=3, max_waiting=4)
    slow.holds = True
    answers = []

    def ask(number: int) -> None:
        answers.append(send(client, *[make_image(seed) for seed in range(number)]).status_code)

    threads = [threading.Thread(target=ask, args=(1,)) for _ in range(1)]
    threads[0].start()
    wait_until(lambda: slow.batches == [1])  # the first is with the model, so it waits no more
    for number in (3, 1):
        threads.append(threading.Thread(target=ask, args=(number,)))
        threads[-1].start()
    batcher = client.app.state.service.batcher
    wait_until(lambda: batcher.num_waiting == 4)
    refused = send(client, make_image(9))
    assert refusal(refused) == (429, "queue_full")
    assert int(refused.headers["Retry-After"]) >= 1
    assert batcher.num_waiting == 4
    slow.go.set()
    for thread in threads:
        thread.join()
    assert answers == [200, 200, 200]
    assert slow.batches == [1, 4]  # what waited together was scored together
    assert send(client, make_image(9)).status_code == 200


def test_too_many_requests_are_refused_before_their_bodies(client_of, predictor):
    slow = SlowPredictor(predictor)
    client = client_of(slow, max_requests=1)
    slow.holds = True
    thread = threading.Thread(target=send, args=(client, make_image(0)))
    thread.start()
    wait_until(lambda: slow.batches)
    refused = send(client, make_image(1))
    assert refusal(refused) == (429, "too_many_requests")
    assert refused.headers["Retry-After"] == "1"
    assert client.get("/healthz").status_code == 200
    slow.go.set()
    thread.join()
    assert send(client, make_image(1)).status_code == 200


def test_all_bodies_together_are_bounded(client_of, predictor):
    slow = SlowPredictor(predictor)
    content = make_image(0, 300, 300)
    limit = 3 * len(content)
    client = client_of(slow, max_body_bytes=limit, max_held_bytes=limit)
    slow.holds = True
    thread = threading.Thread(target=send, args=(client, content, content))
    thread.start()
    wait_until(lambda: slow.batches)
    assert refusal(send(client, content, content)) == (429, "too_many_bytes")
    slow.go.set()
    thread.join()
    for _ in range(3):  # what was held has been given back
        assert send(client, content, content).status_code == 200


def test_settings_that_make_no_sense():
    with pytest.raises(InputError, match="max_images must be above 0; got 0"):
        ServiceSettings(max_images=0)
    with pytest.raises(InputError, match=r"max_waiting \(5\) must hold at least one request"):
        ServiceSettings(max_waiting=5)
    with pytest.raises(InputError, match="token must be"):
        ServiceSettings(token=" ")
