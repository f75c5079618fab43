"""Signals that arrive where Python cannot raise an exception."""

from __future__ import annotations

import signal
import sys
import time
import weakref

import pytest

from kmcl.cli.interruption import TERMINATED, exiting_on_sigterm, keep_lost_interrupts


class Thing:
    """Something that a weak reference can refer to."""


def signal_in_a_callback(number: signal.Signals) -> None:
    """Python prints what is raised in the callback of a weak reference, and goes on: here, to sleep."""
    thing = Thing()
    reference = weakref.ref(thing, lambda _: signal.raise_signal(number))
    del thing
    assert reference() is None
    time.sleep(60)


@pytest.fixture
def _kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    keep_lost_interrupts()
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_kept")
def test_ctrl_c_in_a_callback_is_not_lost(capfd):
    with pytest.raises(KeyboardInterrupt):
        signal_in_a_callback(signal.SIGINT)
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("_kept")
def test_sigterm_in_a_callback_is_not_lost(capfd):
    with exiting_on_sigterm(), pytest.raises(SystemExit) as stop:
        signal_in_a_callback(signal.SIGTERM)
    assert stop.value.code == TERMINATED
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("_kept")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_other_errors_in_a_callback_are_printed_as_before(capfd):
    thing = Thing()

    def fail(_: object) -> None:
        raise ValueError("in the callback")

    reference = weakref.ref(thing, fail)
    del thing
    assert reference() is None
    assert "ValueError: in the callback" in capfd.readouterr().err
