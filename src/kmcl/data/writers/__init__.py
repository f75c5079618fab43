"""One module per format that datasets are written in, and their table."""
