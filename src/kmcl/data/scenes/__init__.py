"""Scenes drawn in colour by code: the pictures of the embedded dataset `scenes`."""
