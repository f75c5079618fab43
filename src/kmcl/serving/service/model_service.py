"""The state of the service: its model, threads and metrics, and how images are answered."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from starlette.requests import Request

from kmcl.cores import available_cores
from kmcl.evaluation.drift import PredictedImages
from kmcl.evaluation.label_rules import rounded
from kmcl.evaluation.unfamiliarity import is_unfamiliar
from kmcl.serving.image_predictor import BatchScores, ImagePredictor
from kmcl.serving.label_context import LabelContext
from kmcl.serving.predictions import Pixels
from kmcl.serving.service import schemas
from kmcl.serving.service.answers import describe_cooccurring, describe_guarantee, describe_images
from kmcl.serving.service.batching import Explain, MicroBatcher
from kmcl.serving.service.decoding import decode_upload
from kmcl.serving.service.drift_watch import DriftWatch
from kmcl.serving.service.errors import ServiceError
from kmcl.serving.service.metrics import ServiceMetrics
from kmcl.serving.service.prediction_window import PredictionWindow
from kmcl.serving.service.saliency import LABELS_PER_IMAGE, Explainer
from kmcl.serving.service.settings import ServiceSettings
from kmcl.serving.service.uploads import Upload, read_uploads
from kmcl.serving.throughput import (
    benefits_from_batching,
    best_batch_size,
    num_scoring_threads,
    optimised,
)

DECODERS = min(4, available_cores())


class Service:
    """The state of one application: its model, threads, decoders and metrics.

    cutoff: the probability of an error above which a decision is left to a person; None: none is
    val:    what the model says of the images of val, for drift in the metrics; None: it is not known
    """

    def __init__(
        self,
        predictor: ImagePredictor,
        settings: ServiceSettings,
        name: str,
        cutoff: float | None = None,
        val: PredictedImages | None = None,
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
        num_features = 0 if scores.feature_summary is None else scores.feature_summary.shape[1]
        self.metrics.watch(self.window, self.context.labels, self.has_unfamiliarity, num_features)
        self.drift: DriftWatch | None = None
        if val is not None:
            self.drift = DriftWatch(self.context.labels, val, self.window)
            self.metrics.watch_drift(self.context.labels, val)

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
                scores, maps = await self.score(images, explain)
        except TimeoutError:
            raise self.timed_out(phase) from None
        names = [upload.name for upload in uploads]
        answer = describe_images(names, scores, self.context, maps, self.cutoff)
        return json.dumps(answer, separators=(",", ":")).encode()

    async def score(self, images: Pixels, explain: Explain | None = None) -> tuple[BatchScores, Any]:
        """The scores of images, and what `explain` makes of them; counted in the metrics."""
        job = self.batcher.submit(images, explain)
        scores, explained = await asyncio.wrap_future(job)  # a timeout cancels what has not started
        self._count(scores)
        return scores, explained

    def timed_out(self, phase: str) -> ServiceError:
        """The response where a phase ("receiving the images") did not end in time."""
        status = 408 if phase.startswith("receiving") else 504
        return ServiceError(
            status, "timeout", f"{phase} took longer than {self.settings.timeout_seconds:g} s"
        )

    def _count(self, scores: BatchScores) -> None:
        unfamiliarity, features = (
            None if array is None else rounded(array)
            for array in (scores.unfamiliarity, scores.feature_summary)
        )
        decided = self.context.rules.decide(scores.score, scores.probability)
        self.window.add(PredictedImages(decided.probabilities, decided.present, unfamiliarity, features))
        if unfamiliarity is not None:
            self.metrics.count_unfamiliar(int(is_unfamiliar(unfamiliarity).sum()))

    async def metrics_text(self) -> bytes:
        """The metrics for Prometheus, with the drift of the last images."""
        drift = None if self.drift is None else await self.drift.update()
        if drift is not None:
            self.metrics.show_drift(drift)
        return self.metrics.text()

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
