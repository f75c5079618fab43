"""LightlyTrain's train_image_classification for several labels.

Its default of 100,000 steps does not suit thousands of images on a CPU, so steps are as many as the epochs
have batches; precision is 32 bits, since bfloat16 is slow on most CPUs. It leaves images without any label
out of training. Scores come once, from the model that it exports as the best on val.
"""

# ruff: noqa: I001  starting_weights comes before the peer, which imports torchvision

import math
from importlib.metadata import version

import numpy as np
from peer_run import open_peer_run
from starting_weights import ENCODER, offer_weights

import lightly_train

BATCH_SIZE = 16  # its default
HALF = (0.5, 0.5, 0.5)


def main():
    run = open_peer_run()
    offer_weights(run.output)
    for name, table in {"train": run.train, "val": run.val}.items():
        present = table[run.labels].to_numpy() == 1
        names = [",".join(str(number) for number in np.flatnonzero(row)) for row in present]
        written = table[["image"]].assign(label=names)
        written.to_csv(run.output / f"{name}.csv", index=False)
    steps = run.epochs * math.ceil(int((run.train[run.labels].sum(axis=1) > 0).sum()) / BATCH_SIZE)
    run.describe(
        version("lightly-train"), f"train_image_classification, {steps} steps of {BATCH_SIZE}, 32 bits"
    )
    lightly_train.train_image_classification(
        out=run.output / "lightly",
        model=f"timm/{ENCODER}",
        classification_task="multilabel",
        data={
            "train": str(run.output / "train.csv"),
            "val": str(run.output / "val.csv"),
            "classes": dict(enumerate(run.labels)),
            "csv_image_column": "image",
            "csv_label_type": "id",
        },
        steps=steps,
        precision="32-true",
        seed=run.seed,
        model_args={"backbone_args": {"pretrained": True}},
        transform_args={
            "image_size": (run.image_size, run.image_size),
            "normalize": {"mean": HALF, "std": HALF},
        },
    )
    exported = run.output / "lightly" / "exported_models" / "exported_best.pt"
    run.record(lambda: scores(lightly_train.load_model(exported), list(run.test.image), len(run.labels)))


def scores(model, paths, num_labels):
    every = np.zeros((len(paths), num_labels), np.float32)
    for start in range(0, len(paths), 64):
        answers = model.predict_batch(paths[start : start + 64], threshold=-1)
        for row, answer in enumerate(answers, start):
            every[row, answer["labels"].numpy()] = answer["scores"].numpy()
    return every


if __name__ == "__main__":
    main()
