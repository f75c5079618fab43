"""The parts of the OpenAPI document that the framework cannot derive from the code."""

from __future__ import annotations

from typing import Any

from kmcl.serving.service.schemas import Error
from kmcl.serving.service.uploads import FIELD

REFUSALS = {
    400: "The body is broken",
    401: "The token is missing or wrong",
    408: "The images did not arrive in time",
    413: "Too many bytes, pixels, images or maps",
    415: "The body is not a multipart form, or a file is not an image of a supported format",
    421: "The Host header names another site",
    422: "An image is damaged, or a parameter or field is invalid",
    429: "Too many images or requests; retry later, after the seconds in Retry-After",
    500: "Internal error",
    503: "The service is shutting down",
    504: "The model did not answer in time",
}


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Error responses of these statuses, all of one shape."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        found[status] = {"model": Error, "description": REFUSALS[status]}
        if status == 429:
            found[status]["headers"] = {"Retry-After": {"schema": {"type": "integer", "minimum": 1}}}
    return found


def refusal(status: int) -> dict[str, Any]:
    """The same of one status, as it stands in the document."""
    schema = {"$ref": f"#/components/schemas/{Error.__name__}"}
    return {"description": REFUSALS[status], "content": {"application/json": {"schema": schema}}}


def predict_body(max_images: int) -> dict[str, Any]:
    image = {"type": "string", "contentMediaType": "application/octet-stream", "format": "binary"}
    return {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": [FIELD],
                    "additionalProperties": False,
                    "properties": {
                        FIELD: {"type": "array", "items": image, "minItems": 1, "maxItems": max_images}
                    },
                },
                "encoding": {FIELD: {"contentType": "image/jpeg, image/png, image/webp"}},
            }
        },
    }


def label_schema(labels: tuple[str, ...]) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "string", "enum": list(labels)}}
