"""The tests, and the program, leave the cores of a machine to whoever else needs them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
import torch

from bounded_threads import VARIABLES


def output_of(code: str, environment: dict[str, str] | None = None) -> list[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout.split()


def test_tests_have_the_threads_they_were_given():
    assert VARIABLES.keys() <= os.environ.keys()
    assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])
    assert output_of("import torch; print(torch.get_num_threads())") == [os.environ["OMP_NUM_THREADS"]]


def test_ctrl_c_works_in_what_tests_start():
    """Fails without `default_ctrl_c` of conftest.py where the tests were started with SIGINT ignored."""
    assert signal.getsignal(signal.SIGINT) != signal.SIG_IGN
    code = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert output_of(code) == ["True"]


START = """
import os, sys
from kmcl.cli.app import main
sys.argv = ["kmcl", "--version"]
try:
    main()
except SystemExit:
    print("torch" in sys.modules, os.environ["OMP_WAIT_POLICY"])
"""


@pytest.mark.parametrize(("chosen", "expected"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_the_program_lets_waiting_threads_sleep_before_torch_is_loaded(chosen, expected):
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if chosen is not None:
        environment["OMP_WAIT_POLICY"] = chosen
    assert output_of(START, environment)[-2:] == ["False", expected]
