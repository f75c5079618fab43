"""Words for what is compared: read, refused."""

from __future__ import annotations

import pytest

from kmcl.errors import InputError
from kmcl.studies.variants import Variant, parse_variants


def test_methods_settings_and_names_are_read():
    found = parse_variants(
        ["asl,wide=kmcl:kernel=anisotropic,contrastive_weight=0", "kmcl:learning_rate=1e-3"]
    )
    assert found == (
        Variant("asl", "asl"),
        Variant("wide", "kmcl", {"kernel": "anisotropic", "contrastive_weight": 0}),
        Variant("kmcl learning_rate=1e-3", "kmcl", {"learning_rate": 0.001}),
    )
    assert [variant.slug for variant in found] == ["asl", "wide", "kmcl-learning-rate-1e-3"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("", "methods must name at least one method"),
        ("asl,asl", "two variants are called 'asl' and 'asl'; name them apart"),
        ("kmcl:kernal=gaussian", r"unknown setting 'kernal' \(did you mean 'kernel'\?\)"),
        ("kmcl:seed=3", "seed is the same for all that is compared"),
        ("kmcl:kernel", "'kernel' is not SETTING=VALUE"),
        ("kernel=gaussian", "kernel is a setting; give settings after a colon"),
        ("=kmcl", "has no name before its ="),
    ],
)
def test_wrong_words_are_refused(word: str, message: str):
    with pytest.raises(InputError, match=message):
        parse_variants([word])
