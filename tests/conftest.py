"""Shapes in signatures are checked at run time, under the tests only."""

from __future__ import annotations

from collections.abc import Iterator

import jaxtyping  # loaded before kmcl, so that kmcl.shapes has jaxtyping's types
import pytest

CHECKED = ["kmcl.kernels", "kmcl.losses", "kmcl.models.head", "kmcl.data.targets"]

jaxtyping.install_import_hook(CHECKED, "shape_checking.check_types")


@pytest.fixture
def no_shape_checks() -> Iterator[None]:
    """For tests of the messages that users get, who run without the checker."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
