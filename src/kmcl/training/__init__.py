"""Training: from a plan to a model. Read `train.py` first."""

__all__: list[str] = []
