"""Numbers that a refactoring must not change, kept in JSON files beside the tests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

SHIFTS = {"rel": 1e-6, "abs": 1e-7}
"""Of the same arithmetic. Other processors round otherwise, which training and a ranking magnify."""
OTHER_PROCESSOR = {"rel": 0.25, "abs": 0.25}


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums are rounded alike, however many cores there are."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def arithmetic() -> str:
    """A fingerprint of what this processor and these libraries make of a convolution and its gradient."""
    with one_thread():
        generator = torch.Generator().manual_seed(0)
        images = torch.rand(4, 8, 16, 16, generator=generator)
        weights = torch.rand(16, 8, 3, 3, generator=generator).requires_grad_()
        output = torch.nn.functional.conv2d(images, weights).sigmoid()
        output.square().mean().backward()
        product = torch.rand(64, 640, generator=generator) @ torch.rand(640, 64, generator=generator)
    digest = hashlib.sha256(f"{torch.__version__} {torch.backends.cpu.get_cpu_capability()}".encode())
    for tensor in (output, weights.grad, product):
        digest.update(tensor.detach().numpy().tobytes())
    return digest.hexdigest()[:16]


def write_frozen(file: Path, runs: dict[str, Any], *, keep_others: bool = False) -> None:
    """Write the numbers of this processor.

    keep_others: with those of other processors, where nothing but the processor is new
    """
    frozen = json.loads(file.read_text()) if keep_others else {}
    file.write_text(json.dumps(frozen | {arithmetic(): runs}, indent=1) + "\n")


def assert_as_frozen(found: Any, file: Path, name: str) -> None:
    """Each number of `name` in the file is found again; others may be there too.

    Closely where the file has the numbers of this processor, else roughly.
    """
    frozen: dict[str, Any] = json.loads(file.read_text())
    own, allowed = frozen.get(arithmetic(), {}), SHIFTS
    if name not in own:
        own, allowed = next(runs for runs in frozen.values() if name in runs), OTHER_PROCESSOR
    flat, expected = _flat(found), _flat(own[name])
    assert set(expected) <= set(flat)
    wrong = {
        place: (value, flat[place])
        for place, value in expected.items()
        if not _close(flat[place], value, allowed)
    }
    assert not wrong


def _close(found: Any, expected: Any, allowed: dict[str, float]) -> bool:
    if isinstance(expected, bool) or not isinstance(expected, int | float):
        return bool(found == expected)
    return bool(found == pytest.approx(expected, **allowed))


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {k: v for key, part in value.items() for k, v in _flat(part, f"{name}.{key}").items()}
    if isinstance(value, list):
        return {k: v for i, part in enumerate(value) for k, v in _flat(part, f"{name}[{i}]").items()}
    return {name: value}
