"""The OpenAPI document says what the service does: generated requests find nothing else."""

import pytest
from serving import encode, noise, serve


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


@pytest.mark.slow
def test_generated_requests_find_nothing(gallery_folder, model):
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed (extra service-tests)")
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st

    images = st.sampled_from([encode(noise(seed), kind) for seed in range(3) for kind in ("PNG", "JPEG", "WEBP")])
    schemathesis.openapi.media_type("application/octet-stream", images)
    schemathesis.openapi.format("binary", images)
    with serve(gallery_folder, model) as client:
        schema = schemathesis.openapi.from_asgi("/openapi.json", client.app)
        for found in schema.get_all_operations():
            operation = found.ok()
            for mode in schemathesis.GenerationMode:

                @settings(
                    max_examples=25,
                    deadline=None,
                    derandomize=True,
                    phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )
                @given(case=operation.as_strategy(generation_mode=mode))
                def check(case):
                    case.call_and_validate()

                check()
