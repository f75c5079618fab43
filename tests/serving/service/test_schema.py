"""The service keeps what its OpenAPI document promises, for whatever schemathesis thinks of."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from kmcl.serving.service.application import create_application
from kmcl.serving.service.settings import ServiceSettings

from .conftest import make_image, make_predictor

# A file of the schema is "any image"; random bytes are none, and are sent by the tests of limits.
IMAGES = st.builds(
    make_image, st.integers(0, 9), st.integers(1, 60), st.integers(1, 60), st.sampled_from(["PNG", "JPEG"])
)
for media_type in ("image/png", "image/jpeg", "image/webp"):
    schemathesis.openapi.media_type(media_type, IMAGES)

# When the file is collected: schemathesis has a test per operation, which it must know by then.
application = create_application(make_predictor(), ServiceSettings(max_images=4), "bugs")
schema = schemathesis.openapi.from_asgi("/openapi.json", application)
closed = create_application(make_predictor(), ServiceSettings(max_images=4, token="s3cret"), "bugs")
closed_schema = schemathesis.openapi.from_asgi("/openapi.json", closed)


@schema.parametrize()
@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_the_service_keeps_its_promises(case):
    case.call_and_validate()


@pytest.mark.parametrize("token", [None, "s3cret"])
def test_the_document_declares_the_token_where_it_is_asked_for(token: str | None):
    client = TestClient(create_application(make_predictor(), ServiceSettings(token=token)))
    document = client.get("/openapi.json").json()
    schemes = document["components"].get("securitySchemes", {})
    asked = set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            is_refused = client.request(method, path).status_code == 401
            assert is_refused == ("security" in operation) == ("401" in operation["responses"]), path
            if is_refused:
                asked.add(path)
                ((name, scopes),) = operation["security"][0].items()
                assert (schemes[name]["type"], schemes[name]["scheme"], scopes) == ("http", "bearer", [])
                right = {"Authorization": f"Bearer {token}"}
                assert client.request(method, path, headers=right).status_code != 401
    assert asked == (set() if token is None else {"/v1/predict", "/v1/labels", "/metrics"})
    assert bool(schemes) == (token is not None)


@closed_schema.parametrize()
@settings(max_examples=3, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_a_service_with_a_token_keeps_its_promises(case):
    case.call_and_validate(headers={"Authorization": "Bearer s3cret"})


def test_the_document_names_every_route_and_refusal():
    document = TestClient(application).get("/openapi.json").json()
    assert set(document["paths"]) == {"/v1/predict", "/v1/labels", "/healthz", "/metrics"}
    answers = document["paths"]["/v1/predict"]["post"]["responses"]
    assert set(answers) == {
        "200",
        "400",
        "408",
        "413",
        "415",
        "421",
        "422",
        "429",
        "500",
        "503",
        "504",
    }
    for status, answer in answers.items():
        reference = answer["content"]["application/json"]["schema"]["$ref"]
        assert reference.endswith("/Predictions" if status == "200" else "/Error")
