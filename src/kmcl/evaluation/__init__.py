"""From predictions to figures: metrics, thresholds, calibration, uncertainty and their intervals.

Everything here is a pure function over NumPy arrays; `metrics.evaluate` puts the metrics together. A pair
(image, label) whose target is unknown or ignored takes part in none of them.
"""
