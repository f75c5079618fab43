"""Predicting images into a file that processes may share, or as text that is printed."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from functools import partial
from itertools import chain, islice
from os import PathLike, fspath
from pathlib import Path
from typing import NamedTuple, TextIO

from rich.console import Console

from kmcl.data.image_paths import GivenPaths, path_texts
from kmcl.errors import InputError
from kmcl.progress import counting_bar, error_console, say
from kmcl.serving.engine import model_digest, with_engine
from kmcl.serving.engine_choice import ENOUGH_TO_CONVERT, Engine
from kmcl.serving.image_predictor import ImagePredictor
from kmcl.serving.image_sources import ImageSource
from kmcl.serving.loading import load_for_people
from kmcl.serving.parallel_prediction import predict_in_parallel
from kmcl.serving.prediction_files import PredictionFiles, choose_form
from kmcl.serving.prediction_job import Part, PredictionJob
from kmcl.serving.predictions import Columns, ImageLike, ImagePrediction

SHOWN_ERRORS = 20


class PredictionRun:
    """The images of a source, predicted once.

    cutoff:         of the decisions that are left to a person; None where that was not asked for
    console:        of messages and progress
    num_unreadable: images that could not be read so far
    """

    def __init__(
        self,
        predictor: ImagePredictor,
        source: ImageSource,
        files: PredictionFiles,
        cutoff: float | None,
        engine: Engine,
        batch_size: int | None,
        console: Console,
    ) -> None:
        self._predictor, self._source, self._files = predictor, source, files
        self._cutoff, self._engine, self._batch_size = cutoff, engine, batch_size
        self._console = console
        self.num_unreadable = 0

    def print_to(self, file: TextIO) -> None:
        """Print as text, image by image."""
        images = [self._source.open(record) for record in self._source.find()]
        self._say(self._source.left_out.note)
        self._files.write_lines(file, self._predict(images, len(images), len(images)), self._files.columns)
        self._say_unreadable(len(images))

    def write_to(self, output: Path, part: Part | None) -> None:
        """Write a file; go on where an interrupted command stopped. See `kmcl.serving.prediction_job`."""
        if output.is_dir():
            raise InputError(f"--output {output}: is a folder; give the name of a file")
        job = PredictionJob.begin(output, self._about(), self._source.find, part)
        self._say(self._source.left_out.note)
        if job.is_complete:
            self._say(f"{output}: is complete; to predict again, remove {job.folder}")
            return
        chunks, missing = job.chunks(part), job.missing(part)
        if missing and len(missing) < len(chunks):
            self._say(
                f"going on with {output}: {len(chunks) - len(missing):,} of {len(chunks):,} chunks are "
                f"there; the images are those that were found at {job.begun}"
            )
        self._predict_chunks(job, missing)
        if job.is_done_by_another():
            return
        if missing := job.missing():
            self._say(f"{output}: {len(missing):,} of {job.num_chunks:,} chunks are left to other parts")
            return
        job.finish(partial(self._files.join, output=output), keep_manifest=part is not None)
        if part is not None:
            self._say(f"{output}: complete, {job.num_images:,} images")

    def _about(self) -> dict[str, object]:
        """What a job that was begun must have been begun with."""
        return {
            "model": model_digest(self._predictor),
            "source": self._source.fingerprint(),
            "columns": [self._files.form, self._files.wide, *self._files.columns],
            "rate of decisions that are left to a person": self._cutoff,
            "engine": str(self._engine),
        }

    def _predict_chunks(self, job: PredictionJob, chunks: Sequence[int]) -> None:
        """One stream of images through all chunks, so that no thread waits at the end of one."""
        if not chunks:
            return
        num_images = job.num_images_of(chunks)
        records = chain.from_iterable(job.records(chunk) for chunk in chunks)
        try:
            with closing(
                self._predict(map(self._source.open, records), num_images, job.num_images)
            ) as predictions:
                for chunk in chunks:
                    of_chunk = islice(predictions, job.num_images_of([chunk]))
                    self._files.write(job.chunk_file(chunk), of_chunk)
        except OSError:
            if not job.is_done_by_another():
                raise
        self._say_unreadable(num_images)

    def _predict(
        self, images: Iterable[ImageLike], num_images: int, num_all: int
    ) -> Generator[ImagePrediction, None, None]:
        """Predict images with a progress bar; errors are reported.

        num_all: images of the whole job, which decide about the engine
        """
        predictor = self._predictor
        if num_images and (self._engine != Engine.auto or num_all >= ENOUGH_TO_CONVERT):
            predictor = with_engine(predictor, self._engine, self._say)
        with counting_bar(self._console, "predicting") as bar:
            task = bar.add_task("predicting", total=num_images)
            for prediction in predict_in_parallel(predictor, images, self._batch_size):
                bar.advance(task)
                if prediction.error is not None:
                    self.num_unreadable += 1
                    if self.num_unreadable <= SHOWN_ERRORS:
                        self._say(prediction.error)
                yield prediction if self._cutoff is None else prediction.leaving(self._cutoff)

    def _say_unreadable(self, num_images: int) -> None:
        if self.num_unreadable:
            self._say(f"{self.num_unreadable:,} of {num_images:,} images could not be read")

    def _say(self, sentence: str | None) -> None:
        if sentence is not None:
            say(self._console, f"kmcl: {sentence}")


class Predicted(NamedTuple):
    """output: the file, None where the predictions were printed; num_unreadable: images that were not read"""

    output: Path | None
    num_unreadable: int


def predict(
    run: str | PathLike[str],
    sources: GivenPaths,
    *,
    output: str | PathLike[str] | None = None,
    form: str | None = None,
    wide: bool = False,
    part: str | None = None,
    batch_size: int | None = None,
    engine: str = "auto",
    sigma: bool = False,
    features: bool = False,
    guarantee: str | None = None,
    abstain: float | None = None,
    progress: bool = True,
) -> Predicted:
    """Predict files into a file, or as text; for predictions in memory there is `kmcl.load(run).predict`.

    run:     a run or model folder, a hub model or an .onnx file
    sources: images, folders, patterns, lists of paths, datasets, tar files
    output:  the file; its form follows its ending, and what was interrupted goes on. Without it the text is
             printed, in the given `form`
    wide:    one row per image and one column per label
    part:    "3/64": the share of this process, where 64 write the output together
    engine, batch_size: what computes the model, and how many images at once
    sigma, features: add these numbers
    guarantee: a rate that the thresholds keep, as in "recall=0.9"
    abstain: the share of decisions that are left to a person
    """
    file = None if output is None else Path(output)
    written = choose_form(file, form, wide=wide)
    if abstain is not None and wide:
        raise InputError("--wide has one column per label, and no place for the decisions of --abstain")
    if features and written == "table":
        raise InputError("--features adds columns of numbers; give --output, --csv or --json with it")
    if part is not None and file is None:
        raise InputError("--part needs --output, the file that all parts write together")
    if written == "parquet":
        import pyarrow  # noqa: F401  # missing packages are found before any image is predicted
    chosen = None if part is None else Part.parse(part)
    console = error_console(progress)
    source = ImageSource(path_texts(sources))
    predictor, cutoff = load_for_people(run, guarantee, abstain, console)
    if features and not predictor.summary_size:
        raise InputError(
            f"--features: {fspath(run)} gives none: it has no post-hoc part unfamiliarity, or an earlier "
            "version exported it"
        )
    columns = Columns(
        sigma,
        cutoff is not None,
        predictor.has_unfamiliarity,
        error=True,
        num_features=predictor.summary_size if features else 0,
    )
    files = PredictionFiles(written, columns, predictor.labels, wide)
    running = PredictionRun(predictor, source, files, cutoff, Engine(engine), batch_size, console)
    if file is None:
        running.print_to(sys.stdout)
    else:
        running.write_to(file, chosen)
    return Predicted(file, running.num_unreadable)
