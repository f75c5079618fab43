"""Training: settings, the Lightning task, run folders."""
