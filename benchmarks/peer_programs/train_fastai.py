"""fastai as its tutorial trains several labels: DataBlock, vision_learner, fine_tune.

--find-rate takes the rate that `lr_find` suggests (the tutorial reads one off its curve); without it
`fine_tune` has its own default of 2e-3.
"""

# ruff: noqa: I001  starting_weights comes before the peer, which imports torchvision

import sys

import numpy as np
import pandas as pd
import torch
from peer_run import open_peer_run
from starting_weights import ENCODER, offer_weights

import fastai
from fastai.vision.all import (
    Callback,
    ColReader,
    ColSplitter,
    DataBlock,
    ImageBlock,
    MultiCategoryBlock,
    Resize,
    accuracy_multi,
    aug_transforms,
    set_seed,
    vision_learner,
)


class ScoreTest(Callback):
    """Scores of test after every epoch."""

    def __init__(self, run, test):
        self.run_of_peer, self.test = run, test

    def after_epoch(self):
        self.run_of_peer.record(self.scores)

    @torch.no_grad()
    def scores(self):
        self.learn.model.eval()
        return np.concatenate([torch.sigmoid(self.learn.model(batch[0])).numpy() for batch in self.test])


def main():
    run = open_peer_run()
    offer_weights(run.output)
    set_seed(run.seed)
    table = pd.concat([run.train.assign(is_valid=False), run.val.assign(is_valid=True)], ignore_index=True)
    block = DataBlock(
        blocks=(ImageBlock, MultiCategoryBlock(encoded=True, vocab=run.labels)),
        get_x=ColReader("image"),
        get_y=ColReader(run.labels),
        splitter=ColSplitter("is_valid"),
        item_tfms=Resize(run.image_size),
        batch_tfms=aug_transforms(),
    )
    loaders = block.dataloaders(table)
    learner = vision_learner(loaders, ENCODER, metrics=accuracy_multi, path=run.output)
    rate = learner.lr_find(show_plot=False).valley if "--find-rate" in sys.argv else None
    test = loaders.test_dl(run.test)  # after vision_learner, which adds the normalisation
    learner.add_cb(ScoreTest(run, test))  # not before lr_find, which trains too
    named = "" if rate is None else f", {rate:.1e} by lr_find"
    run.describe(
        fastai.__version__,
        f"Resize({run.image_size}), aug_transforms(), batch {loaders.bs}, fine_tune({run.epochs}{named})",
    )
    learner.fine_tune(run.epochs) if rate is None else learner.fine_tune(run.epochs, rate)


if __name__ == "__main__":
    main()
