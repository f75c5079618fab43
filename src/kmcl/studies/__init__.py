"""Comparisons: several trainings that differ in one thing, run to the end and set side by side."""
