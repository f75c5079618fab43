"""Each case runs in a fresh interpreter: operators are declared once per process and for good."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kmcl.encoders import torchvision_operators

# By its file: its package imports timm.
DECLARE = (
    "import importlib.util\n"
    f"spec = importlib.util.spec_from_file_location('alone', {str(Path(torchvision_operators.__file__))!r})\n"
    "alone = importlib.util.module_from_spec(spec)\n"
    "spec.loader.exec_module(alone)\n"
    "declare = alone.declare_missing_operators\n"
)


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def plain_import() -> subprocess.CompletedProcess[str]:
    return run("import torchvision")


def test_the_import_it_is_there_for_fails_without_it(plain_import: subprocess.CompletedProcess[str]) -> None:
    if plain_import.returncode == 0:
        pytest.skip("the torchvision of this environment loads its own operators")
    assert "torchvision::nms does not exist" in plain_import.stderr


def test_torchvision_and_timm_import_after_it_in_silence(
    plain_import: subprocess.CompletedProcess[str],
) -> None:
    result = run(
        DECLARE + "import sys\n"
        "declare(); declare()\n"
        "assert 'timm' not in sys.modules and 'torchvision' not in sys.modules, 'not light'\n"
        "import timm, torchvision.transforms.v2, torch\n"
        "declare()\n"
        "print(torch.ops.torchvision.nms.default._schema)\n"
        "print(timm.create_model('test_resnet', num_classes=0).num_features)\n"
        "try: print(torchvision.ops.nms(torch.tensor([[0., 0., 1., 1.]] * 2), torch.ones(2), 0.5).tolist())\n"
        "except RuntimeError as error: print(error)\n"
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    schema, num_features, suppressed = result.stdout.splitlines()
    assert schema == "torchvision::nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    assert int(num_features) > 0
    # Where the binary is missing, calling what it holds still says so.
    assert suppressed.startswith("[0]" if plain_import.returncode == 0 else "Couldn't load custom C++ ops")


def test_the_package_imports_timm_in_silence() -> None:
    result = run("import kmcl.encoders, torchvision, timm")
    assert (result.returncode, result.stderr) == (0, "")


def test_nothing_is_declared_where_nothing_is_missing() -> None:
    result = run(
        DECLARE + "import torch\n"
        "find_spec, loaded = importlib.util.find_spec, []\n"
        "torch.ops.load_library = loaded.append\n"
        "importlib.util.find_spec = lambda name: None\n"
        "declare()\n"
        "print('package absent:', len(loaded), hasattr(torch.ops.torchvision, 'nms'))\n"
        "importlib.util.find_spec = find_spec\n"
        "declare()\n"
        "print('binary loads:', len(loaded), hasattr(torch.ops.torchvision, 'nms'))\n"
    )
    assert result.stdout.splitlines() == ["package absent: 0 False", "binary loads: 1 False"], result.stderr
