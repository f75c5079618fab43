"""The service as an ASGI application: its routes, and how a request is processed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from kmcl.evaluation.drift import PredictedImages
from kmcl.serving.image_predictor import ImagePredictor
from kmcl.serving.service import schemas
from kmcl.serving.service.errors import CODES, ServiceError
from kmcl.serving.service.label_studio import LabelStudioBackend, add_label_studio
from kmcl.serving.service.middleware import ServiceMiddleware
from kmcl.serving.service.model_service import Service
from kmcl.serving.service.openapi import label_schema, predict_body, refusals
from kmcl.serving.service.page import add_page
from kmcl.serving.service.settings import ServiceSettings
from kmcl.serving.service.task_images import TaskImages
from kmcl.serving.service.token import declare_token
from kmcl.serving.throughput import shared_cores
from kmcl.version import __version__


def create_application(
    predictor: ImagePredictor,
    settings: ServiceSettings | None = None,
    name: str = "kmcl",
    cutoff: float | None = None,
    label_studio: TaskImages | None = None,
    val: PredictedImages | None = None,
) -> FastAPI:
    """The service of one model.

    predictor: is not changed; several threads may call its `score` at once
    name:      of the model, shown to clients
    cutoff:    the probability of an error above which a decision is left to a person; None: none is
    label_studio: where the images of Label Studio's tasks are; None: its protocol is not spoken
    val:       what the model says of the images of val, for drift in the metrics; None: it is not known
    """
    settings = settings or ServiceSettings()
    service = Service(predictor, settings, name, cutoff, val)
    backend = None if label_studio is None else LabelStudioBackend(service, label_studio)

    @asynccontextmanager
    async def lifespan(application: FastAPI) -> AsyncIterator[None]:
        with shared_cores(service.predictor, service.num_threads):
            service.start()
            yield
            if backend is not None:
                backend.close()
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
    if backend is not None:
        add_label_studio(application, backend)
    add_page(application)
    if settings.token is not None:
        declare_token(application.openapi())  # which is made once
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
        responses=refusals(400, 408, 413, 415, 421, 422, 429, 500, 503, 504),
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

    @application.get("/v1/labels", summary="The model's labels")
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
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
        summary="Metrics for Prometheus",
    )
    async def metrics() -> Response:
        return Response(await service.metrics_text(), media_type=service.metrics.content_type)


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
