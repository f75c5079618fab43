from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kmcl.data.partners import match_pairs
from kmcl.data.sampling import (
    EvaluationPlan,
    Sampling,
    TrainingPlan,
    balanced_order,
    repeat_factors,
)
from kmcl.errors import InputError

SAMPLINGS: tuple[Sampling, ...] = ("shuffle", "balanced", "partners")

target_tables = st.tuples(st.integers(2, 60), st.integers(1, 8)).flatmap(
    lambda shape: arrays(np.int8, shape, elements=st.sampled_from([1, 0, 0, 0, -1]))
)


def long_tailed_targets(num_images: int = 400, seed: int = 3) -> npt.NDArray[np.int8]:
    generator = np.random.default_rng(seed)
    frequencies = np.array([0.5, 0.3, 0.1, 0.05, 0.02])
    return (generator.random((num_images, 5)) < frequencies).astype(np.int8)


def batches_of(plan: TrainingPlan | EvaluationPlan, epoch: int = 0) -> list[list[int]]:
    plan.set_epoch(epoch)
    return [batch.indices.tolist() for batch in plan]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_epoch_and_the_seed_alone_decide_the_order(sampling: Sampling) -> None:
    targets = long_tailed_targets()

    def plan(seed: int) -> TrainingPlan:
        return TrainingPlan(targets, batch_size=32, sampling=sampling, seed=seed)

    unbroken = plan(5)
    epochs = [batches_of(unbroken, epoch) for epoch in range(3)]
    assert batches_of(plan(5), epoch=2) == epochs[2]
    assert epochs[0] != epochs[1]
    assert batches_of(plan(6)) != epochs[0]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@given(
    targets=target_tables, world_size=st.integers(1, 4), batch_size=st.integers(2, 9), epoch=st.integers(0, 3)
)
@settings(max_examples=60, deadline=None)
def test_ranks_share_each_global_batch(
    sampling: Sampling, targets: npt.NDArray[np.int8], world_size: int, batch_size: int, epoch: int
) -> None:
    if len(targets) < max(2, world_size):
        return
    parts = [
        list(_plans(targets, sampling, batch_size, rank, world_size, epoch)) for rank in range(world_size)
    ]
    per_rank = min(batch_size, len(targets) // world_size)
    whole = list(_plans(targets, sampling, per_rank * world_size, 0, 1, epoch))
    assert {len(part) for part in parts} == {len(whole)}
    for number, global_batch in enumerate(whole):
        joined = np.concatenate([part[number].indices for part in parts])
        np.testing.assert_array_equal(joined, global_batch.indices)
        # Equal positions give equal augmentations, so the images are those of one process too.
        assert [part[number].first_position - global_batch.first_position for part in parts] == [
            rank * per_rank for rank in range(world_size)
        ]


def _plans(
    targets: npt.NDArray[np.int8], sampling: Sampling, batch_size: int, rank: int, world_size: int, epoch: int
) -> TrainingPlan:
    plan = TrainingPlan(
        targets, batch_size=batch_size, sampling=sampling, seed=1, rank=rank, world_size=world_size
    )
    plan.set_epoch(epoch)
    return plan


@given(num_images=st.integers(1, 200), batch_size=st.integers(1, 70))
def test_shuffling_shows_an_image_at_most_once_and_drops_only_the_remainder(
    num_images: int, batch_size: int
) -> None:
    batches = batches_of(TrainingPlan(np.zeros((num_images, 1), np.int8), batch_size=batch_size))
    seen = [index for batch in batches for index in batch]
    size = min(batch_size, num_images)
    assert len(set(seen)) == len(seen) == num_images // size * size
    assert {len(batch) for batch in batches} == {size}


@given(targets=target_tables, batch_size=st.integers(2, 20), seed=st.integers(0, 5))
@settings(max_examples=200, deadline=None)
def test_every_anchor_with_a_possible_partner_has_one_in_its_batch(
    targets: npt.NDArray[np.int8], batch_size: int, seed: int
) -> None:
    present = targets == 1
    shares = (present.astype(int) @ present.T.astype(int)) > 0
    np.fill_diagonal(shares, False)
    plan = TrainingPlan(targets, batch_size=batch_size, sampling="partners", seed=seed)
    batches = batches_of(plan)
    assert len(batches) == len(plan) >= 1
    for batch in batches:
        for anchor in batch:
            if shares[anchor].any():
                assert shares[anchor, batch].any(), (anchor, batch)
    # At most one repeat per label and one per batch.
    slots = sum(map(len, batches))
    distinct = len({index for batch in batches for index in batch})
    assert slots - distinct <= targets.shape[1] + len(batches)


def test_partners_help_where_shuffling_leaves_anchors_alone() -> None:
    targets = np.repeat(np.eye(50, dtype=np.int8), 4, axis=0)

    def share_of_lonely_anchors(sampling: Sampling) -> float:
        batches = batches_of(TrainingPlan(targets, batch_size=10, sampling=sampling))
        lonely = [batch.count(i) == 1 and len([j for j in batch if j // 4 == i // 4]) == 1
                  for batch in batches for i in batch]  # fmt: skip
        return float(np.mean(lonely))

    assert share_of_lonely_anchors("shuffle") > 0.7
    assert share_of_lonely_anchors("partners") == 0.0


def test_an_epoch_with_partners_shows_nearly_every_image_once() -> None:
    targets = long_tailed_targets(2000)
    counts = np.bincount(
        np.concatenate(batches_of(TrainingPlan(targets, batch_size=64, sampling="partners")))
    )
    assert np.mean(counts == 1) > 0.95
    assert counts.max() <= 3


def test_pairs_share_a_label_and_singles_have_nobody() -> None:
    present = np.array([[1, 0, 0], [1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]], dtype=bool)
    carriers = [np.flatnonzero(column) for column in present.T]
    pairs, singles = match_pairs(present, carriers, np.random.default_rng(0))
    assert sorted(singles) == [3, 4]
    assert all((present[i] & present[j]).any() and i != j for i, j in pairs)
    assert {i for pair in pairs for i in pair} == {0, 1, 2}
    assert len(pairs) == 2


def test_partners_need_two_images_in_a_batch() -> None:
    with pytest.raises(InputError, match="at least 2 images over all processes"):
        TrainingPlan(long_tailed_targets(), batch_size=1, sampling="partners")
    TrainingPlan(long_tailed_targets(), batch_size=1, sampling="partners", world_size=2)


def test_repeat_factors_follow_the_formula() -> None:
    present = np.zeros((100, 3), dtype=bool)
    present[:64, 0] = True
    present[:16, 1] = True
    present[:4, 2] = True
    factors = repeat_factors(present, threshold=0.16)
    np.testing.assert_allclose(factors[:4], 2.0)  # sqrt(0.16 / 0.04)
    np.testing.assert_allclose(factors[4:], 1.0)
    # The default threshold is the median frequency, here that of the middle label.
    np.testing.assert_allclose(repeat_factors(present), factors)


@given(
    repeats=arrays(np.float64, st.integers(1, 40), elements=st.floats(1, 6)),
    seed=st.integers(0, 1000),
)
@settings(max_examples=150, deadline=None)
def test_an_image_appears_floor_or_ceil_of_its_repeat_factor(
    repeats: npt.NDArray[np.float64], seed: int
) -> None:
    num_slots = round(float(repeats.sum()))
    counts = np.bincount(
        balanced_order(repeats, num_slots, np.random.default_rng(seed)), minlength=len(repeats)
    )
    expected = repeats * num_slots / repeats.sum()
    assert counts.sum() == num_slots
    assert np.all(counts >= np.floor(expected - 1e-9))
    assert np.all(counts <= np.ceil(expected + 1e-9))


def test_balanced_sampling_shows_rare_labels_more_often_in_proportion() -> None:
    targets = long_tailed_targets(4000)
    plan = TrainingPlan(targets, batch_size=50, sampling="balanced")
    shown = np.concatenate([np.concatenate(batches_of(plan, epoch)) for epoch in range(5)])
    frequency, seen = targets.mean(axis=0), targets[shown].sum(axis=0) / 5 / targets.sum(axis=0)
    assert seen[4] == pytest.approx(np.sqrt(np.median(frequency) / frequency[4]), rel=0.1)
    assert seen[0] < 1.3
    order = balanced_order(repeat_factors(targets == 1), len(plan) * 50 + 49, np.random.default_rng(0))
    assert np.bincount(order, minlength=len(targets)).min() >= 1


@given(num_images=st.integers(0, 300), batch_size=st.integers(2, 70), world_size=st.integers(1, 4))
def test_evaluation_shows_everything_once_in_order(num_images: int, batch_size: int, world_size: int) -> None:
    if 0 < num_images < world_size:
        return
    parts = [
        batches_of(EvaluationPlan(num_images, batch_size=batch_size, rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]
    assert len({len(part) for part in parts}) == 1
    flat = [index for number in range(len(parts[0])) for part in parts for index in part[number]]
    assert flat == list(range(num_images))
    assert all(1 <= len(batch) <= batch_size for part in parts for batch in part)
    assert len(parts[0]) == -(-num_images // (batch_size * world_size))


@pytest.mark.parametrize(("rank", "world_size"), [(2, 2), (-1, 1), (0, 0)])
def test_a_rank_outside_the_world_is_refused(rank: int, world_size: int) -> None:
    with pytest.raises(InputError, match=f"rank {rank}, world_size {world_size}"):
        TrainingPlan(long_tailed_targets(), batch_size=4, rank=rank, world_size=world_size)


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.5])
def test_a_threshold_that_is_no_share_is_refused(threshold: float) -> None:
    with pytest.raises(InputError, match="balance_threshold"):
        TrainingPlan(long_tailed_targets(), batch_size=4, sampling="balanced", balance_threshold=threshold)


def test_more_processes_than_images_are_refused() -> None:
    with pytest.raises(InputError, match="3 < 4"):
        TrainingPlan(np.zeros((3, 1), np.int8), batch_size=1, world_size=4)
    with pytest.raises(InputError, match="5 images cannot be shared by 2 processes"):
        EvaluationPlan(5, batch_size=1, world_size=2)
