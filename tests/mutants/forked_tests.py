"""Running tests on mutants: torch and the tests are loaded once, each mutant is a fork.

In a fork the code of the mutated functions is replaced where they are, so nothing is imported again. A fault
in what runs at import (a constant of a module, a field, a default) is imported anew, in a fork of a process
that has torch but not kmcl.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from _pytest.warnings import catch_warnings_for_item

from mutants.faults import Mutant

Record = dict[str, dict[str, Any]]
"""Of each test: whether it passes, its seconds of processor time, and the lines of each file that it runs."""

KILLED, SURVIVED, TIMEOUT = "killed", "survived", "timeout"
WALL_SECONDS = 900
"""After this a mutant hangs, even on a machine whose other processes come first."""

NAP_SECONDS = 0.02

NOT_APPLICABLE = 77
"""Exit status of a fork in which a function could not be replaced."""


class OneTestAtATime:
    """A pytest plugin that hands the collected tests to `run` in place of pytest's own loop."""

    def __init__(self, run: Callable[[list[pytest.Item]], None]) -> None:
        self.run = run

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            os._exit(2)
        self.run(session.items)
        return True


def collect(tests: list[str], scratch: Path, run: Callable[[list[pytest.Item]], None]) -> int:
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={scratch / 'pytest'}"]
    return int(pytest.main([*options, *tests], plugins=[OneTestAtATime(run)]))


def passes(items: list[pytest.Item]) -> bool:
    """Run tests until one fails."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        if any(report.failed for report in run_test(item, following)):
            return False
    return True


def run_test(item: pytest.Item, following: pytest.Item | None) -> list[pytest.TestReport]:
    """Run a test without a report on the terminal; warnings are errors where pytest's settings say so."""
    with catch_warnings_for_item(config=item.config, ihook=item.ihook, when="runtest", item=item):
        return runtestprotocol(item, log=False, nextitem=following)


def record(items: list[pytest.Item], source: Path, output: Path) -> int:
    """Run each test and write down its time, its lines, and whether it passes; 0, a status."""
    found: Record = {}
    for item, following in zip(items, [*items[1:], None], strict=True):
        started = time.process_time()
        with _traced_lines(str(source)) as lines:
            reports = run_test(item, following)
        found[item.nodeid] = {
            "passed": not any(report.failed for report in reports),
            "seconds": time.process_time() - started,
            "lines": {file: sorted(numbers) for file, numbers in lines.items()},
        }
    output.write_text(json.dumps(found))
    return 0


@contextlib.contextmanager
def _traced_lines(source: str) -> Iterator[dict[str, set[int]]]:
    lines: dict[str, set[int]] = defaultdict(set)
    known: dict[str, set[int] | None] = {}

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if name not in known:
            known[name] = lines[name.removeprefix(source + "/")] if name.startswith(source + "/") else None
        numbers = known[name]
        if numbers is None:
            return None
        numbers.add(frame.f_lineno)

        def each_line(frame: FrameType, event: str, argument: object) -> Any:
            numbers.add(frame.f_lineno)
            return each_line

        return each_line

    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(None)


def forked(work: Callable[[], int], seconds: float, wall_seconds: float = WALL_SECONDS) -> int | None:
    """The exit status of `work` in a quiet fork; None after more than these seconds of processor time."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            limit = max(1, int(seconds))
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
            os._exit(work())
        except BaseException:
            os._exit(1)
    # Counted in naps, not by the clock, which goes on while both processes are stopped.
    for _ in range(int(wall_seconds / NAP_SECONDS)):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        time.sleep(NAP_SECONDS)
    else:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return None
    with contextlib.suppress(ProcessLookupError):  # what the tests started and left
        os.killpg(pid, signal.SIGKILL)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return None
    return os.waitstatus_to_exitcode(status)


@contextlib.contextmanager
def planted(mutant: Mutant, source: Path) -> Iterator[None]:
    """The mutated file in place of the original: for processes that tests start, and for a new import."""
    path = source / mutant.file
    original = path.read_bytes()
    path.write_bytes(mutant.source)
    try:
        yield
    finally:
        path.write_bytes(original)


def functions_by_file(source: Path) -> dict[str, list[FunctionType]]:
    """Every function of the package that exists, also those behind decorators and in closures."""
    found: dict[str, list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename.startswith(f"{source}/"):
            found[each.__code__.co_filename.removeprefix(f"{source}/")].append(each)
    return found


def replace_code(mutant: Mutant, original: bytes, functions: list[FunctionType]) -> bool:
    """Give functions the mutant's code; False if it cannot be done without a new import."""
    before = _codes(compile(original, mutant.file, "exec", dont_inherit=True))
    after = _codes(compile(mutant.source, mutant.file, "exec", dont_inherit=True))
    changed = {
        name
        for name, codes in before.items()
        if [_instructions(code) for code in codes] != [_instructions(code) for code in after.get(name, [])]
    }
    num_replaced = 0
    for function in functions:
        name = function.__code__.co_qualname
        if name not in changed:
            continue
        if len(before[name]) != 1 or len(after.get(name, [])) != 1:
            return False
        try:
            function.__code__ = after[name][0]
        except ValueError:  # another number of names from the enclosing function
            return False
        num_replaced += 1
    return num_replaced > 0


def _codes(module: CodeType) -> dict[str, list[CodeType]]:
    found: dict[str, list[CodeType]] = defaultdict(list)
    waiting = [module]
    while waiting:
        code = waiting.pop()
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                found[constant.co_qualname].append(constant)
                waiting.append(constant)
    return found


def _instructions(code: CodeType) -> tuple[object, ...]:
    constants = tuple(
        _instructions(each) if isinstance(each, CodeType) else (type(each), repr(each))
        for each in code.co_consts
    )
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars
