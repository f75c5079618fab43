"""Label Studio's machine learning backend: `/health`, `/setup`, `/predict`, `/versions` and `/webhook`.

Label Studio sends all selected tasks in one request. They are scored a few at a time; those that are not done
within the time of a request get no prediction, and Label Studio asks for them again the next time. The server
and the token that `/setup` names are not used: anybody can send them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from fastapi import FastAPI, Request

from kmcl.errors import InputError
from kmcl.serving.label_studio_predictions import (
    ChoicesControl,
    find_controls,
    labels_without_choice,
    make_prediction,
)
from kmcl.serving.predictions import Pixels
from kmcl.serving.service.decoding import decode_upload
from kmcl.serving.service.errors import ServiceError
from kmcl.serving.service.label_studio_host import ImageError
from kmcl.serving.service.model_service import Service
from kmcl.serving.service.settings import MEGABYTE
from kmcl.serving.service.task_images import TaskImages

READERS = 4
"""Images that are read and decoded at a time."""
LONGEST_BODY = 8 * MEGABYTE
"""Bytes of a request; values in JSON can take twenty times as many in memory. A task has about 600."""
MOST_TASKS = 10_000
TOO_LATE = "there was no time left for it; ask again"

JsonObject = dict[str, Any]
log = logging.getLogger(__name__)


class _Task(NamedTuple):
    """image: what its data name, of any type."""

    name: str
    image: object


class LabelStudioBackend:
    """The model of a service as a backend of Label Studio.

    service: scores the images
    images:  where the images of tasks are
    """

    def __init__(self, service: Service, images: TaskImages) -> None:
        self._service = service
        self._images = images
        self._threads = ThreadPoolExecutor(READERS, thread_name_prefix="kmcl-label-studio")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def health(self) -> JsonObject:
        if not self._service.batcher.is_working:
            raise ServiceError(503, "stopping", "the service is shutting down")
        return {"status": "UP", "model_version": self._service.name}

    def versions(self) -> JsonObject:
        return {"versions": [self._service.name]}

    async def setup(self, request: Request) -> JsonObject:
        """Check a project's labeling interface; response and log name the labels that it lacks."""
        body = await self._receive(request)
        controls = self._controls(body.get("schema"))
        missing = labels_without_choice(controls, self._service.context.labels)
        if missing:
            log.warning("Label Studio: the labeling interface lacks %s", _listed(missing))
        return {"model_version": self._service.name, "labels_without_choice": missing}

    async def webhook(self, request: Request) -> JsonObject:
        """Events are accepted, as Label Studio sends all of them, and change nothing."""
        body = await self._receive(request)
        if body.get("action") == "START_TRAINING":
            raise ServiceError(
                422, "no_training", "the service does not train: export the project and run kmcl train"
            )
        return {"status": "ok"}

    async def predict(self, request: Request) -> JsonObject:
        """Predictions in the order of the tasks; an empty list for a task whose image was not read."""
        service = self._service
        end = time.monotonic() + service.settings.timeout_seconds
        phase = "receiving the tasks"
        results: list[JsonObject | str] = []
        tasks: list[_Task] = []
        try:
            async with asyncio.timeout(service.settings.timeout_seconds):
                body = await self._receive(request)
                controls = self._controls(body.get("label_config"))
                tasks = _read_tasks(body.get("tasks"), controls[0].data_key)
                del body
                phase = "reading and scoring the images"
                size = service.settings.max_images
                for first in range(0, len(tasks), size):
                    results += await self._predict_some(tasks[first : first + size], controls, end)
        except TimeoutError:
            if not results:
                raise service.timed_out(phase) from None
            results += [TOO_LATE] * (len(tasks) - len(results))
        failures = [
            f"task {task.name}: {result}"
            for task, result in zip(tasks, results, strict=True)
            if isinstance(result, str)
        ]
        if failures:
            log.warning(
                "Label Studio: no prediction for %d of %d tasks; %s", len(failures), len(tasks), failures[0]
            )
        if tasks and len(failures) == len(tasks):
            raise ServiceError(422, "no_image_read", f"no image could be read; {failures[0]}")
        return {
            "results": [[] if isinstance(result, str) else result for result in results],
            "model_version": service.name,
            "not_predicted": failures[:100],
        }

    async def _predict_some(
        self, tasks: list[_Task], controls: list[ChoicesControl], end: float
    ) -> list[JsonObject | str]:
        """Predictions, or why there is none."""
        loop = asyncio.get_running_loop()
        reading = [loop.run_in_executor(self._threads, self._read, task, end) for task in tasks]
        try:
            images = await asyncio.gather(*reading)
        finally:
            for one in reading:
                one.cancel()
        readable = [image for image in images if not isinstance(image, str)]
        if not readable:
            return [image for image in images if isinstance(image, str)]
        scores, _ = await self._service.score(np.stack(readable))
        rules = self._service.context.rules
        decided = rules.decide(scores.score, scores.probability)
        predictions = iter(
            make_prediction(controls, rules.labels, probabilities, present, self._service.name)
            for probabilities, present in zip(decided.probabilities, decided.present, strict=True)
        )
        return [image if isinstance(image, str) else next(predictions) for image in images]

    def _read(self, task: _Task, end: float) -> Pixels | str:
        """The pixels of a task's image, or why there are none."""
        settings = self._service.settings
        try:
            content = self._images.read(task.image, settings.max_body_bytes, end - time.monotonic())
            return decode_upload(content, "its image", self._service.predictor, settings.max_image_pixels)
        except (ImageError, ServiceError) as error:
            return str(error)

    def _controls(self, interface: object) -> list[ChoicesControl]:
        if not isinstance(interface, str):
            raise ServiceError(422, "no_interface", "the request has no labeling interface")
        try:
            return find_controls(interface, self._service.context.labels)
        except InputError as error:
            log.warning("Label Studio: %s", error)
            raise ServiceError(422, "unsuitable_interface", str(error)) from None

    async def _receive(self, request: Request) -> JsonObject:
        """The JSON object of a body. It is parsed on the event loop, so that there is one at a time."""
        content = bytearray()
        async for chunk in request.stream():
            content += chunk
            if len(content) > LONGEST_BODY:
                raise ServiceError(
                    413, "body_too_large", f"a request may have at most {LONGEST_BODY / MEGABYTE:g} MiB"
                )
        try:
            body = json.loads(bytes(content))
        except (ValueError, RecursionError) as error:
            raise ServiceError(400, "broken_body", f"the body is not valid JSON: {error}") from None
        if not isinstance(body, dict):
            raise ServiceError(422, "invalid_request", "the body must be a JSON object")
        return body


def add_label_studio(application: FastAPI, backend: LabelStudioBackend) -> None:
    """The routes; they are not a part of the OpenAPI document, as the protocol is Label Studio's."""
    for path, answer in (("/health", backend.health), ("/versions", backend.versions)):
        application.get(path, include_in_schema=False)(answer)
    for path, reply in (
        ("/setup", backend.setup),
        ("/predict", backend.predict),
        ("/webhook", backend.webhook),
    ):
        application.post(path, include_in_schema=False)(reply)


def _read_tasks(tasks: object, data_key: str) -> list[_Task]:
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise ServiceError(422, "invalid_request", "tasks must be a list of objects")
    if len(tasks) > MOST_TASKS:
        raise ServiceError(413, "too_many_tasks", f"a request may have at most {MOST_TASKS:,} tasks")
    found = []
    for number, task in enumerate(tasks, 1):
        name, data = task.get("id"), task.get("data")
        image = data.get(data_key) if isinstance(data, dict) else None
        found.append(_Task(str(name) if isinstance(name, int) else f"number {number}", image))
    return found


def _listed(labels: Iterable[str]) -> str:
    labels = list(labels)
    rest = f" and {len(labels) - 10} more" if len(labels) > 10 else ""
    return ", ".join(repr(label) for label in labels[:10]) + rest
