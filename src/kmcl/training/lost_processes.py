"""A training over several processes or machines, one of which is no longer there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed

LOST = re.compile(r"closed by peer|reset by peer|broken pipe|timed? ?out|no route to host", re.IGNORECASE)


class LostProcessError(RuntimeError):
    """Another process of the run ended, or cannot be reached."""


@contextmanager
def explaining_lost_processes() -> Iterator[None]:
    """Raise LostProcessError where an exchange fails because of another process. Also a decorator."""
    try:
        yield
    except RuntimeError as error:
        message = str(error).strip()
        if not torch.distributed.is_initialized() or not LOST.search(message):
            raise
        if not isinstance(error, torch.distributed.DistError) and "gloo" not in message.lower():
            raise
        reason = re.sub(r"^\[.*?\]\s*", "", message.partition("\n")[0]).rstrip(".")
        raise LostProcessError(
            f"another process of this training was lost ({reason}); its own messages, on its machine, say why"
        ) from error
