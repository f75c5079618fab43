"""The HTTP service: a model behind `POST /v1/predict`, with limits, metrics and a page to try it on."""
