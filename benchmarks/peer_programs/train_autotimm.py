"""AutoTimm as its README trains several labels: MultiLabelImageDataModule, ImageClassifier, AutoTrainer.

Its trainer tunes batch size and learning rate unless told otherwise. The search for a batch size doubles it
until memory runs out, which on a CPU is that of the machine, so it is off; --fixed-rate turns the search for
a rate off too. The transforms take mean and deviation from the encoder (TransformConfig), as its
documentation advises; without them AutoTimm would use those of other weights.
"""

# ruff: noqa: I001  starting_weights comes before the peer, which imports torchvision

import sys
from importlib.metadata import version

import numpy as np
import torch
from peer_run import open_peer_run
from starting_weights import ENCODER, offer_weights

import autotimm
import pytorch_lightning
from pytorch_lightning.callbacks import LearningRateFinder


class ScoreTest(pytorch_lightning.Callback):
    """Scores of test after every epoch."""

    def __init__(self, run, data):
        self.run, self.data = run, data

    def on_train_epoch_end(self, trainer, model):
        if not any(isinstance(callback, LearningRateFinder) for callback in trainer.callbacks):
            self.run.record(lambda: self.scores(model))

    @torch.no_grad()
    def scores(self, model):
        model.eval()
        scores = [torch.sigmoid(model(images)).numpy() for images, _ in self.data.test_dataloader()]
        model.train()
        return np.concatenate(scores)


def main():
    run = open_peer_run()
    offer_weights(run.output)
    pytorch_lightning.seed_everything(run.seed)
    for name, table in {"train": run.train, "val": run.val, "test": run.test}.items():
        table.to_csv(run.output / f"{name}.csv", index=False)
    transforms = autotimm.TransformConfig(image_size=run.image_size)
    data = autotimm.MultiLabelImageDataModule(
        train_csv=run.output / "train.csv",
        val_csv=run.output / "val.csv",
        test_csv=run.output / "test.csv",
        image_dir="/",
        image_size=run.image_size,
        transform_config=transforms,
        backbone=ENCODER,
    )
    data.setup()
    accuracy = autotimm.MetricConfig(
        name="accuracy",
        backend="torchmetrics",
        metric_class="MultilabelAccuracy",
        params={"num_labels": data.num_labels},
        stages=["train", "val"],
    )
    model = autotimm.ImageClassifier(
        ENCODER, data.num_labels, multi_label=True, metrics=[accuracy], transform_config=transforms
    )
    is_fixed = "--fixed-rate" in sys.argv
    trainer = autotimm.AutoTrainer(
        max_epochs=run.epochs,
        tuner_config=False if is_fixed else autotimm.TunerConfig(auto_batch_size=False),
        callbacks=[ScoreTest(run, data)],
        default_root_dir=str(run.output),
    )
    trainer.fit(model, datamodule=data)
    run.describe(
        version("autotimm"),
        f"AutoTrainer(max_epochs={run.epochs}), batch {data.batch_size}, AdamW, cosine, "
        f"rate {model._lr:.1e}{'' if is_fixed else ' by its finder'}, compiled",
    )


if __name__ == "__main__":
    main()
