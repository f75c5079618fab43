"""The service as an ASGI application: its routes, and how a request is processed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from kmcl.cores import available_cores
from kmcl.evaluation.unfamiliarity import is_unfamiliar
from kmcl.models.label_rules import rounded
from kmcl.serving.image_predictor import BatchScores, ImagePredictor
from kmcl.serving.label_context import LabelContext
from kmcl.serving.predictions import Pixels
from kmcl.serving.service import schemas
from kmcl.serving.service.answers import describe_cooccurring, describe_guarantee, describe_images
from kmcl.serving.service.batching import Explain, MicroBatcher
from kmcl.serving.service.decoding import decode_upload
from kmcl.serving.service.errors import CODES, ServiceError
from kmcl.serving.service.metrics import ServiceMetrics
from kmcl.serving.service.middleware import ServiceMiddleware
from kmcl.serving.service.openapi import label_schema, predict_body, refusals
from kmcl.serving.service.page import add_page
from kmcl.serving.service.prediction_window import PredictionWindow
from kmcl.serving.service.saliency import LABELS_PER_IMAGE, Explainer
from kmcl.serving.service.settings import ServiceSettings
from kmcl.serving.service.throughput import (
    benefits_from_batching,
    best_batch_size,
    num_scoring_threads,
    optimised,
    shared_cores,
)
from kmcl.serving.service.uploads import Upload, read_uploads
from kmcl.version import __version__

DECODERS = min(4, available_cores())


class Service:
    """The state of one application: its model, threads, decoders and metrics.

    cutoff: the probability of an error above which a decision is left to a person; None: none is
    """

    def __init__(
        self, predictor: ImagePredictor, settings: ServiceSettings, name: str, cutoff: float | None = None
    ) -> None:
        self.explainer = Explainer(predictor)
        predictor = optimised(predictor)
        self.predictor = predictor
        self.settings = settings
        self.name = name
        self.cutoff = cutoff
        self.context = LabelContext.of(predictor.rules)
        self.metrics = ServiceMetrics(lambda: self.batcher.num_waiting)
        self.num_threads = num_scoring_threads(predictor)
        self.batcher = MicroBatcher(
            predictor.score,
            batch_size=settings.batch_size or best_batch_size(predictor),
            max_waiting=settings.max_waiting,
            num_threads=self.num_threads,
            gathers=benefits_from_batching(predictor),
            on_batch=self.metrics.count_batch,
        )
        self.decoders: ThreadPoolExecutor | None = None
        grey = np.full((1, predictor.image_size, predictor.image_size, 3), 128, dtype=np.uint8)
        scores = predictor.score(grey)  # also warms the model up
        self.has_sigma = scores.sigma is not None
        self.has_unfamiliarity = scores.unfamiliarity is not None
        self.window = PredictionWindow(len(self.context.labels))
        self.metrics.watch(self.window, self.context.labels, self.has_unfamiliarity)

    def start(self) -> None:
        self.decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="kmcl-decoder")
        self.batcher.start()

    def close(self) -> None:
        """Finish the accepted requests and stop."""
        self.batcher.close()
        if self.decoders is not None:
            self.decoders.shutdown(cancel_futures=True)

    async def predict(self, request: Request, explains: bool, wanted: tuple[int, ...]) -> bytes:
        """The JSON of a response, within the time limit of a request."""
        phase = "receiving the images"
        try:
            async with asyncio.timeout(self.settings.timeout_seconds):
                with self.batcher.incoming():
                    uploads = await read_uploads(request, self.settings.max_images)
                    explain = self._explanation(explains, wanted, len(uploads))
                    phase = "decoding the images"
                    images = await self._decode(uploads)
                phase = "waiting for the model"
                job = self.batcher.submit(images, explain)
                scores, maps = await asyncio.wrap_future(job)  # a timeout cancels what has not started
        except TimeoutError:
            status = 408 if phase.startswith("receiving") else 504
            seconds = self.settings.timeout_seconds
            raise ServiceError(status, "timeout", f"{phase} took longer than {seconds:g} s") from None
        self._count(scores)
        names = [upload.name for upload in uploads]
        answer = describe_images(names, scores, self.context, maps, self.cutoff)
        return json.dumps(answer, separators=(",", ":")).encode()

    def _count(self, scores: BatchScores) -> None:
        unfamiliar = None if scores.unfamiliarity is None else is_unfamiliar(rounded(scores.unfamiliarity))
        self.window.add(self.context.rules.decide(scores.probability).present, unfamiliar)
        if unfamiliar is not None:
            self.metrics.count_unfamiliar(int(unfamiliar.sum()))

    async def _decode(self, uploads: list[Upload]) -> Pixels:
        """Decode on the threads of the decoders, each with its share of the images."""
        loop = asyncio.get_running_loop()
        shares = [uploads[first::DECODERS] for first in range(min(DECODERS, len(uploads)))]
        decoding = [loop.run_in_executor(self.decoders, self._decode_some, share) for share in shares]
        try:
            decoded = await asyncio.gather(*decoding)
        finally:
            for one in decoding:
                one.cancel()  # when one image is refused, the rest need not be decoded
        return np.stack([decoded[place % DECODERS][place // DECODERS] for place in range(len(uploads))])

    def _decode_some(self, uploads: list[Upload]) -> list[Pixels]:
        limit = self.settings.max_image_pixels
        return [decode_upload(upload.content, upload.name, self.predictor, limit) for upload in uploads]

    def _explanation(self, explains: bool, wanted: tuple[int, ...], num_images: int) -> Explain | None:
        if not explains:
            return None
        if not self.explainer.is_available:
            raise ServiceError(
                422, "no_saliency", "saliency maps are not available: they need a model in torch, and captum"
            )
        num_maps = num_images * (len(wanted) or LABELS_PER_IMAGE)
        if num_maps > self.settings.max_maps:
            raise ServiceError(
                413,
                "too_many_maps",
                f"a request may ask for at most {self.settings.max_maps} saliency maps; "
                f"these images may need {num_maps}",
            )
        return partial(self.explainer.explain, rules=self.context.rules, wanted=wanted)

    def describe(self) -> schemas.Labels:
        context = self.context
        thresholds = context.rules.probability_thresholds
        return schemas.Labels(
            name=self.name,
            labels=[
                schemas.LabelDescription(
                    label=label,
                    threshold=float(thresholds[k]),
                    cooccurring_labels=[
                        schemas.CooccurringLabel(**one) for one in describe_cooccurring(context, k)
                    ],
                )
                for k, label in enumerate(context.labels)
            ],
            image_size=self.predictor.image_size,
            has_probability_intervals=context.intervals is not None,
            has_sigma=self.has_sigma,
            has_unfamiliarity=self.has_unfamiliarity,
            has_saliency=self.explainer.is_available,
            guarantee=describe_guarantee(context.rules),
            unsure_above=self.cutoff,
            max_images=self.settings.max_images,
            max_body_bytes=self.settings.max_body_bytes,
        )


def create_application(
    predictor: ImagePredictor,
    settings: ServiceSettings | None = None,
    name: str = "kmcl",
    cutoff: float | None = None,
) -> FastAPI:
    """The service of one model.

    predictor: is not changed; several threads may call its `score` at once
    name:      of the model, shown to clients
    cutoff:    the probability of an error above which a decision is left to a person; None: none is
    """
    settings = settings or ServiceSettings()
    service = Service(predictor, settings, name, cutoff)

    @asynccontextmanager
    async def lifespan(application: FastAPI) -> AsyncIterator[None]:
        with shared_cores(service.predictor, service.num_threads):
            service.start()
            yield
            await asyncio.to_thread(service.close)

    application = FastAPI(
        title="kmcl",
        version=__version__,
        description=f"Labels of images by the model {name!r}.",
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from other sites
        redoc_url=None,
    )
    application.state.service = service
    _add_routes(application, service)
    add_page(application)
    _add_error_handlers(application)
    routes = frozenset(route.path for route in application.routes if hasattr(route, "path"))
    application.add_middleware(ServiceMiddleware, settings=settings, metrics=service.metrics, routes=routes)
    return application


def _add_routes(application: FastAPI, service: Service) -> None:
    labels = service.predictor.labels
    label_names = Query(
        default=[],  # a factory would be inspected again for every request
        description="a label to explain, may be repeated; the present ones if none is named",
        json_schema_extra=label_schema(labels),
    )

    @application.post(
        "/v1/predict",
        response_model=schemas.Predictions,
        responses=refusals(400, 401, 408, 413, 415, 421, 422, 429, 500, 503, 504),
        openapi_extra={"requestBody": predict_body(service.settings.max_images)},
        summary="Labels of one or several images",
    )
    async def predict(
        request: Request,
        saliency: Annotated[bool, Query(description="add saliency maps")] = False,
        saliency_label: list[str] = label_names,
    ) -> Response:
        wanted = []
        for label in dict.fromkeys(saliency_label):
            if label not in labels:
                raise ServiceError(422, "unknown_label", f"the model has no label {label!r}")
            wanted.append(labels.index(label))
        body = await service.predict(request, saliency or bool(wanted), tuple(wanted))
        return Response(body, media_type="application/json")

    @application.get("/v1/labels", responses=refusals(401), summary="The model's labels")
    async def describe_labels() -> schemas.Labels:
        return service.describe()

    @application.get("/healthz", responses=refusals(503), summary="Whether the service accepts images")
    async def health() -> schemas.Health:
        if not service.batcher.is_working:
            raise ServiceError(503, "stopping", "the service is shutting down")
        return schemas.Health(status="ok")

    @application.get(
        "/metrics",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **refusals(401)},
        summary="Metrics for Prometheus",
    )
    async def metrics() -> Response:
        return Response(service.metrics.text(), media_type=service.metrics.content_type)


def _add_error_handlers(application: FastAPI) -> None:
    async def refuse(request: Request, error: Any) -> Response:
        return refused(error).response()

    for kind in (ServiceError, HTTPException, RequestValidationError, ClientDisconnect, Exception):
        application.add_exception_handler(kind, refuse)


def refused(error: Exception) -> ServiceError:
    """Any error as a response of the common shape; internal errors are not disclosed to clients."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, HTTPException):
        code = CODES.get(error.status_code, "error")
        return ServiceError(error.status_code, code, str(error.detail), error.headers)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return ServiceError(422, CODES[422], f"{where}: {first['msg']}")
    if isinstance(error, ClientDisconnect):
        return ServiceError(400, "disconnected", "the body ended early")
    return ServiceError(500, "internal_error", "internal error; see the log of the service")
