"""TensorBoard's log on a disk that refuses it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kmcl.storage.atomic import FULL, WriteError


@contextmanager
def explaining_refused_logs(logs: Path) -> Iterator[None]:
    """Raise WriteError where the log cannot be written, or what could not be written before it.

    TensorBoard writes in a thread of its own, which prints its traceback; the error is raised again in the
    main thread, at the next write of the log. That may be the one with which Lightning ends a run that fails.
    """
    hook = threading.excepthook

    def print_others(thread: threading.ExceptHookArgs) -> None:
        if not isinstance(thread.exc_value, OSError):
            hook(thread)

    threading.excepthook = print_others
    try:
        yield
    except WriteError:
        raise
    except Exception as error:
        refusal = _find_refusal(error)
        if refusal is None:
            raise
        raise refusal if isinstance(refusal, WriteError) else WriteError(logs, refusal) from error
    finally:
        threading.excepthook = hook


def _find_refusal(error: BaseException) -> OSError | None:
    """The WriteError, else the full disk, that `error` is or during whose handling it was raised.

    Lightning reports a log that cannot be written as a value that it cannot log.
    """
    chain = [error]
    while (earlier := chain[-1].__context__) is not None:
        chain.append(earlier)
    found = [one for one in chain if isinstance(one, OSError)]
    written = [one for one in found if isinstance(one, WriteError)]
    return next(iter([*written, *(one for one in found if one.errno in FULL)]), None)
