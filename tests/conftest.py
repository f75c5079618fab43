"""For all tests: shapes in signatures are checked at run time; a cache, Ctrl-C and digits of their own."""

from __future__ import annotations

import copy
import signal
from collections.abc import Iterator
from dataclasses import replace

import jaxtyping  # loaded before kmcl, so that kmcl.shapes has jaxtyping's types
import pytest

import bounded_threads  # noqa: F401  sets the environment before torch is loaded
import compiled_once  # noqa: F401

CHECKED = ["kmcl.encoders", "kmcl.kernels", "kmcl.losses", "kmcl.methods", "kmcl.models", "kmcl.posthoc"]
"""Every package with shapes in its signatures; `test_shapes.py` finds one that is missing."""

jaxtyping.install_import_hook(CHECKED, "shape_checking.check_types")


@pytest.fixture
def no_shape_checks() -> Iterator[None]:
    """For tests of the messages that users get, who run without the checker."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session", autouse=True)
def default_ctrl_c() -> Iterator[None]:
    """Ctrl-C works in the processes that tests start, also where the tests run under nohup or in background.

    There SIGINT is ignored, and processes inherit that from the one that starts them.
    """
    handler = signal.getsignal(signal.SIGINT)
    if handler == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the user's cache, nor that of another test process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KMCL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def quick_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out drawing and t-SNE, which tests of reports look at, where only words matter."""
    monkeypatch.setattr("kmcl.reports.page.write_picture", lambda picture, folder: "<svg></svg>")
    monkeypatch.setattr("kmcl.reports.features.embed", lambda features, seed: features[:, :2])


@pytest.fixture(scope="session", autouse=True)
def digits_drawn_once() -> Iterator[None]:
    """`digits` are drawn once for a process, since most runs of the tests open them; each gets a copy.

    Tests of the drawing itself call `read_digits`.
    """
    from kmcl.data.dataset import Dataset
    from kmcl.data.readers.digits import READER, DigitsOptions, read_digits
    from kmcl.data.readers.registry import READERS

    drawn: dict[str, Dataset] = {}

    def read(options: DigitsOptions) -> Dataset:
        key = options.model_dump_json()
        if key not in drawn:
            drawn[key] = read_digits(options)
        return copy.deepcopy(drawn[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(READERS._loaded, "digits", replace(READER, function=read))
        yield


@pytest.fixture(scope="session", autouse=True)
def onnx_functions_read_once() -> Iterator[None]:
    from onnx_functions import reading_functions_once

    with reading_functions_once():
        yield
