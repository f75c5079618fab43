"""TensorBoard's log on a disk that refuses it, and closed by Ctrl-C."""

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

    Raise KeyboardInterrupt where it came while Lightning closed the log: Lightning then closes it once more,
    which TensorBoard refuses.
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
        chain = _with_contexts(error)
        refusal = _find_refusal(chain)
        if refusal is not None:
            raise refusal if isinstance(refusal, WriteError) else WriteError(logs, refusal) from error
        if any(isinstance(one, KeyboardInterrupt) for one in chain):
            raise KeyboardInterrupt from error
        raise
    finally:
        threading.excepthook = hook


def _with_contexts(error: BaseException) -> list[BaseException]:
    """The error, and those during whose handling it was raised."""
    chain = [error]
    while (earlier := chain[-1].__context__) is not None:
        chain.append(earlier)
    return chain


def _find_refusal(chain: list[BaseException]) -> OSError | None:
    """The WriteError among these errors, else the full disk.

    Lightning reports a log that cannot be written as a value that it cannot log.
    """
    found = [one for one in chain if isinstance(one, OSError)]
    written = [one for one in found if isinstance(one, WriteError)]
    return next(iter([*written, *(one for one in found if one.errno in FULL)]), None)
