"""Released checkpoints: the classifier made of one computes what the released network computes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
import torch

import kmcl
from asl_network import AslNetwork, KmclNetwork, randomise
from kmcl.cli.import_released import import_released as import_released_command
from kmcl.errors import InputError
from kmcl.interop.released import _kernel_mixture_head, import_released
from kmcl.interop.released_datasets import RELEASED_DATASETS
from kmcl.interop.released_names import rename_body
from kmcl.methods.kmcl import KernelMixtureHead

SIZE = 64


def make_images() -> torch.Tensor:
    return torch.rand(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def kmcl_network() -> KmclNetwork:
    network = KmclNetwork("tresnet_m", 20).eval()
    randomise(network, seed=0)
    return network


@pytest.fixture
def checkpoint(kmcl_network: KmclNetwork, tmp_path: Path) -> Path:
    torch.save(kmcl_network.state_dict(), tmp_path / "released.pth")
    return tmp_path / "released.pth"


def compare(network: KmclNetwork, layout: str, dataset: str, path: Path) -> None:
    trained_on = RELEASED_DATASETS[dataset]
    torch.save(network.state_dict(), path)
    classifier, description = import_released(path, image_size=SIZE)
    assert (description.encoder, description.method.name) == (layout, "kmcl")
    assert description.labels == trained_on.labels

    images = make_images()
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (trained_on.mean, trained_on.std))
    features, probabilities, means, variances = network((images - mean) / std)
    output = classifier(images)
    assert features.std() > 0.05  # the comparison is about something
    torch.testing.assert_close(output.features, features, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output.probabilities, probabilities, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output.mixture.means, means, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(output.sigma, variances.sqrt(), atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_kmcl_tresnet_m_computes_the_same(kmcl_network: KmclNetwork, tmp_path: Path):
    compare(kmcl_network, "tresnet_m", "voc2007", tmp_path / "released.pth")


@torch.inference_mode()
def test_kmcl_tresnet_l_computes_the_same(tmp_path: Path):
    network = KmclNetwork("tresnet_v2_l", 14).eval()
    randomise(network, seed=1)
    compare(network, "tresnet_v2_l", "chestxray14", tmp_path / "released.pth")


@torch.inference_mode()
def test_asl_checkpoints_bring_their_classifier_and_labels(tmp_path: Path):
    network = AslNetwork("tresnet_l", 3).eval()
    randomise(network, seed=2)
    path = tmp_path / "asl.pth"
    state = {f"module.{name}": tensor.half() for name, tensor in network.state_dict().items()}
    network.load_state_dict({name: tensor.half() for name, tensor in network.state_dict().items()})
    torch.save({"model": state, "num_classes": 3, "idx_to_class": {0: "cat", 1: "dog", 2: "hat"}}, path)
    classifier, description = import_released(path, image_size=SIZE)
    assert (description.encoder, description.method.name) == ("tresnet_l", "asl")
    assert description.labels == ("cat", "dog", "hat")
    assert description.rules.thresholds == (0.8, 0.8, 0.8)
    images = make_images()
    torch.testing.assert_close(classifier(images).logits, network(images), atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_two_linear_layers_of_a_classifier_become_one(kmcl_network: KmclNetwork, tmp_path: Path):
    network = kmcl_network.encoder
    inner, outer = torch.nn.Linear(2048, 16), torch.nn.Linear(16, 5)
    state = {name: tensor for name, tensor in network.state_dict().items() if not name.startswith("head")}
    for name, layer in (("embedding_generator.0", inner), ("FC", outer)):
        state |= {f"head.fc.{name}.{part}": tensor for part, tensor in layer.state_dict().items()}
    torch.save({"state_dict": state}, tmp_path / "open_images.pth")
    classifier, _ = import_released(tmp_path / "open_images.pth", labels=tuple("abcde"), image_size=SIZE)
    images = make_images()
    expected = outer(inner(network.features(images)))
    torch.testing.assert_close(classifier(images).logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("kernel", "num_variances"), [("anisotropic", 18), ("mahalanobis", 6)])
def test_numbers_per_label_and_dimension_are_reordered(kernel: str, num_variances: int):
    """That code reshapes the outputs of a layer to D x L; ours are L x D."""
    generator = torch.Generator().manual_seed(0)
    num_labels, width = 3, 6
    sizes = {"pi": num_labels, "mean": num_labels * width, "var": num_variances}
    layers = {name: torch.nn.Linear(width, size) for name, size in sizes.items()}
    tensors = {f"kmm.{name}.{part}": t for name in layers for part, t in layers[name].state_dict().items()}
    head = _kernel_mixture_head(tensors)
    assert head.method.kernel == kernel
    ours = KernelMixtureHead(width, num_labels, kernel)
    ours.load_state_dict({name.removeprefix("kernel_mixture."): t for name, t in head.tensors.items()})
    features = torch.randn(4, width, generator=generator)
    mixture = ours(features)
    means = layers["mean"](features).view(4, width, num_labels)
    raw = layers["var"](features).view(4, width, -1)
    variances = torch.where(raw > 0, raw, raw.exp() - 1) + 2 + 1e-7
    for n in range(4):
        for k in range(num_labels):
            torch.testing.assert_close(mixture.means[n, k], means[n, :, k])
            own = variances[n, :, k if kernel == "anisotropic" else 0]
            torch.testing.assert_close(mixture.variances[n, k % mixture.variances.shape[1]], own)
            torch.testing.assert_close(mixture.label_variances[n, k], own.mean())


def test_names_of_every_kind_of_layer():
    one = torch.tensor([-2.0])
    renamed = rename_body(
        {
            "body.conv1.0.weight": one,
            "body.conv1.1.weight": one,
            "body.layer2.0.conv1.0.0.weight": one,
            "body.layer2.0.conv1.0.1.running_mean": one,
            "body.layer1.0.conv1.1.bias": one,
            "body.layer1.0.downsample.0.0.weight": one,
            "body.layer2.0.downsample.1.1.weight": one,
            "body.layer1.0.se.fc1.weight": one,
        }
    )
    assert {name: round(float(tensor), 6) for name, tensor in renamed.items()} == {
        "body.conv1.conv.weight": -2.0,
        "body.conv1.bn.weight": 2.00001,
        "body.layer2.0.conv1.conv.weight": -2.0,
        "body.layer2.0.conv1.bn.running_mean": -2.0,
        "body.layer1.0.conv1.bn.bias": -2.0,
        "body.layer1.0.downsample.0.conv.weight": -2.0,
        "body.layer2.0.downsample.1.bn.weight": 2.00001,
        "body.layer1.0.se.fc1.weight": -2.0,
    }


def test_each_dataset_is_known_by_its_number_of_labels():
    assert {name: len(d.labels) for name, d in RELEASED_DATASETS.items()} == {
        "coco2014": 80,
        "voc2007": 20,
        "chestxray14": 14,
        "adp": 9,
    }
    assert all(len(set(d.labels)) == len(d.labels) for d in RELEASED_DATASETS.values())
    coco = RELEASED_DATASETS["coco2014"].labels
    assert (coco[0], coco[11], coco[39], coco[79]) == ("person", "stop sign", "bottle", "toothbrush")


def _without(state, prefix):
    return {name: tensor for name, tensor in state.items() if not name.startswith(prefix)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda s: _without(s, "encoder.body.layer3.10."),
            r"not one of the TResNets of timm: \(3, 4, 10, 3\) blocks",
        ),
        (lambda s: _without(s, "encoder.body.conv1"), "no first convolution"),
        (
            lambda s: _without(s, "kmm.pi.bias"),
            r"needs a tensor 'kmm\.pi\.bias' of 1 dimensions; found nothing",
        ),
        (
            lambda s: s | {"kmm.var.weight": torch.zeros(7, 2048)},
            "20 means and 7 variances for 20 labels fit none",
        ),
        (
            lambda s: s | {"downsampler.weight": torch.zeros(128, 2048, 1)},
            "reduces features to 128 dimensions",
        ),
        (
            lambda s: s | {"encoder.body.layer9.weight": torch.zeros(1)},
            "tensors that the network does not have",
        ),
        (
            lambda s: s | {"kmm.mean.bias": torch.full((20,), torch.nan)},
            "means.bias holds values that are not finite",
        ),
        (
            lambda s: s | {"encoder.body.layer1.0.se.fc1.bias": torch.zeros(63)},
            r"se\.fc1\.bias has shape \(63,\) there; the network needs \(64,\)",
        ),
        (
            lambda s: s | {"encoder.body.conv1.1.weight": torch.zeros(1).expand(10**12)},
            r"declares \(1000000000000,\) values, more than it holds",
        ),
        (lambda s: {"epoch": 3}, "holds no tensors"),
        (lambda s: [1, 2], "holds list, not a state dict"),
    ],
)
def test_what_does_not_fit_is_named(change, message, kmcl_network, monkeypatch):
    changed = change(kmcl_network.state_dict())
    monkeypatch.setattr(torch, "load", lambda *arguments, **options: changed)  # spares writing 120 MB
    with pytest.raises(InputError, match=rf"changed\.pth: .*{message}"):
        import_released(Path("changed.pth"))


class _Hostile:
    def __reduce__(self):
        return os.system, ("touch hostile-code-ran",)


def test_code_in_a_checkpoint_is_refused_and_does_not_run(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"model": _Hostile()}, tmp_path / "hostile.pth")
    with pytest.raises(
        InputError, match=r"hostile\.pth: refers to \w+\.system, .* could run code$"
    ) as caught:
        import_released(tmp_path / "hostile.pth")
    assert "weights_only" not in str(caught.value)
    assert not (tmp_path / "hostile-code-ran").exists()


def test_broken_files_are_refused(checkpoint: Path, tmp_path: Path):
    whole = checkpoint.read_bytes()
    text = b"epoch 3, loss 0.2\n"
    for content in (whole[: len(whole) // 2], whole[1000:], b"", b"\x80\x04garbage", text, bytes(2000)):
        path = tmp_path / "broken.pth"
        path.write_bytes(content)
        reason = "cannot be read as tensors: it is damaged" if content[:2] == b"PK" else "is not a checkpoint"
        with pytest.raises(InputError, match=rf"broken\.pth: {reason}") as caught:
            import_released(path)
        assert "weights_only" not in str(caught.value)
        assert "(101)" not in str(caught.value)
    with pytest.raises(InputError, match="is not a file"):
        import_released(tmp_path)
    with pytest.raises(InputError, match=r"missing\.pth: there is no such file"):
        import_released(tmp_path / "missing.pth")


def test_the_command_writes_a_model(checkpoint: Path, tmp_path: Path, capsys):
    names = [f"label {k}" for k in range(20)]
    (tmp_path / "labels.txt").write_text("\n".join(names) + "\n")
    import_released_command(checkpoint, labels=tmp_path / "labels.txt", image_size=SIZE)
    output = capsys.readouterr().out
    assert "tresnet_m at 64 px, method kmcl, isotropic kernels, 20 labels" in output
    assert f"SHA-256 of {checkpoint}: {hashlib.sha256(checkpoint.read_bytes()).hexdigest()};" in output
    predictor = kmcl.load(tmp_path / "released-model")
    assert predictor.labels == tuple(names)
    assert predictor.classifier.encoder.mean == (0.485, 0.456, 0.406)
    with pytest.raises(InputError, match=r"released-model: exists and is not empty"):
        import_released_command(checkpoint)
    with pytest.raises(InputError, match=r"none\.txt: cannot be read as a list of labels"):
        import_released_command(checkpoint, labels=tmp_path / "none.txt", output=tmp_path / "other")


def test_labels_and_dataset_can_be_given(checkpoint: Path):
    with pytest.raises(InputError, match=r"has 20 outputs; got 2 labels, 1 of them different"):
        import_released(checkpoint, labels=("a", "a"))
    with pytest.raises(InputError, match=r"has 20 outputs; got 9 labels"):
        import_released(checkpoint, dataset="adp")
    with pytest.raises(InputError, match=r"dataset must be one of coco2014, .* got 'imagenet'"):
        import_released(checkpoint, dataset="imagenet")
    names = tuple(f"label {k}" for k in range(20))
    _, description = import_released(checkpoint, labels=names)
    assert (description.labels, description.image_size) == (names, 224)
    assert description.mean == (0.485, 0.456, 0.406)
