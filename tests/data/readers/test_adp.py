"""ADP in miniature: levels from the codes, split files by row number or by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kmcl.data import open_dataset
from kmcl.data.readers.adp import codes_of_level
from kmcl.errors import InputError
from miniature_datasets import ADP_CODES, write_adp


@pytest.mark.parametrize(("level", "count"), [("L1", 9), ("L2", 19), ("L2+", 26), ("L3", 22), ("L3+", 33)])
def test_levels_have_the_published_numbers_of_labels(tmp_path: Path, level: str, count: int) -> None:
    write_adp(tmp_path)
    dataset = open_dataset(f"adp:{tmp_path}", level=level)
    assert dataset.num_labels == count
    assert dataset.name == f"adp-{level.lower()}"


def test_level_members() -> None:
    assert codes_of_level(ADP_CODES, "L1") == list("ECHSAMNGT")
    assert {"M", "T", "E.M", "N.G"} <= set(codes_of_level(ADP_CODES, "L2"))
    assert "E" not in codes_of_level(ADP_CODES, "L2")
    leaves = codes_of_level(ADP_CODES, "L3")
    assert {"E.M.S", "C.L", "M", "T", "N.G.M"} <= set(leaves)
    assert not {"E", "E.M", "N.G", "C.D"} & set(leaves)
    assert codes_of_level(ADP_CODES, "L3+") == ADP_CODES


@pytest.mark.parametrize("form", ["npy rows", "txt names", "csv names"])
def test_split_files_by_row_number_or_name(tmp_path: Path, form: str) -> None:
    root = write_adp(tmp_path)
    rows = {"train": [5, 1, 2, 7, 8], "valid": [0, 3], "test": [19, 4]}
    for name, numbers in rows.items():
        names = [f"{number:03}.png_crop_{number}.png" for number in numbers]
        if form == "npy rows":
            np.save(root / "splits" / f"{name}.npy", np.array(numbers))
        elif form == "txt names":
            (root / "splits" / f"{name}.txt").write_text("\n".join(names) + "\n")
        else:
            (root / "splits" / f"{name}.csv").write_text("\n".join(["Patch Names", *names]) + "\n")
    dataset = open_dataset(f"adp:{root}")
    found = {
        name: [int(split.images.load(index)[0, 0, 0]) for index in range(len(split))]
        for name, split in dataset.splits.items()
    }
    assert found == {"train": rows["train"], "val": rows["valid"], "test": rows["test"]}
    header, *lines = (root / "ADP_EncodedLabels_Release1_Flat.csv").read_text().splitlines()
    column = header.split(",").index("N")
    expected = [int(lines[row].split(",")[column]) for row in rows["train"]]
    assert dataset.splits["train"].targets[:, dataset.labels.index("N")].tolist() == expected


def test_without_split_files_the_cut_is_the_papers(tmp_path: Path) -> None:
    write_adp(tmp_path, 100)
    dataset = open_dataset(f"adp:{tmp_path}")
    sizes = {name: len(split) for name, split in dataset.splits.items()}
    assert sum(sizes.values()) == 100
    # Five labels per patch on average: balance of the labels comes before that of the sizes.
    assert abs(sizes["train"] - 81) <= 6
    assert abs(sizes["test"] - 10) <= 4


def test_errors_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no ADP_EncodedLabels"):
        open_dataset(f"adp:{tmp_path}")
    root = write_adp(tmp_path)
    np.save(root / "splits/train.npy", np.array([3, 20]))
    with pytest.raises(InputError, match=r"train\.npy entry 2: '20' is no patch"):
        open_dataset(f"adp:{root}")
    np.save(root / "splits/train.npy", np.array([{}], dtype=object))
    with pytest.raises(InputError, match=r"train\.npy cannot be read"):
        open_dataset(f"adp:{root}")
    (root / "splits/train.npy").unlink()
    with pytest.raises(InputError, match="level='L4'"):
        open_dataset(f"adp:{root}", level="L4")
    with pytest.raises(InputError, match="img_res_4um does not exist"):
        open_dataset(f"adp:{root}", images="img_res_4um")
