"""The OpenAPI document says what the service does: generated requests find nothing else."""

import contextlib

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from serving import encode, noise, serve

FILES = {"image", "other"}


def test_the_document_names_what_each_endpoint_takes_and_refuses(client):
    document = client.get("/openapi.json").json()
    search = document["paths"]["/search"]["post"]
    assert [one["name"] for one in search["parameters"]] == ["k"]
    assert {"200", "400", "413", "415", "422", "503"} <= set(search["responses"])
    assert set(document["paths"]) == {
        "/embed", "/search", "/identify", "/verify", "/verify/pair", "/gallery", "/health", "/metrics", "/thumbnail",
    }  # fmt: skip
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert response["content"]["application/json"]["schema"]["$ref"].endswith("/Problem")


def with_images(body):
    """A generated form with an image in place of every file."""
    image = encode(noise())
    files = {name: [image] * len(body[name]) if isinstance(body[name], list) else image for name in FILES & set(body)}
    return {**body, **files}


def check_operation(operation, mode):
    """Requests to one endpoint, as the document wants them or not."""
    from schemathesis.specs.openapi.checks import negative_data_rejection

    @settings(
        max_examples=25,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case):
        if mode.is_positive and isinstance(case.body, dict):
            # A document can say that a field is a file, not that the file is an image; and bytes are no JSON, so that
            # the request counts as one that violates the document.
            case.body = with_images(case.body)
            case.call_and_validate(excluded_checks=[negative_data_rejection])
        else:
            case.call_and_validate()

    # There is no wrong request to an endpoint that takes nothing.
    with contextlib.suppress(Unsatisfiable) if mode.is_negative else contextlib.nullcontext():
        check()


@pytest.mark.slow
def test_generated_requests_find_nothing(gallery_folder, model):
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed (extra service-tests)")

    with serve(gallery_folder, model) as client:
        schema = schemathesis.openapi.from_asgi("/openapi.json", client.app)
        for found in schema.get_all_operations():
            operation = found.ok()
            for mode in schemathesis.GenerationMode:
                check_operation(operation, mode)
