"""What the endpoints answer is what the gallery and its model say."""

import re
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import numpy as np
import pytest
from exported import change_config, copy_model, rewrite
from gallery_cases import identification
from PIL import Image
from serving import encode, noise, phone_photo, send, serve

import equimetric as em
from equimetric.deployment.certification import ThresholdTarget, bind_certificate
from equimetric.deployment.export import export_run
from equimetric.deployment.indexing import index_source
from equimetric.deployment.load import load_exported
from equimetric.deployment.searching import answer_queries


def test_embeddings_are_those_of_the_model(client, model, photos):
    files = sorted(photos.rglob("*.png"))
    response = client.post("/embed", files=[("image", file.read_bytes()) for file in files])
    assert response.status_code == 200
    answer = response.json()
    assert (answer["model"], answer["dimension"]) == (model.model, 8)
    np.testing.assert_allclose([one["embedding"] for one in answer["images"]], model.embed(files), atol=1e-6)
    assert answer["images"][0]["query"] is None


def test_a_search_answers_as_the_gallery_does(client, model, photos, gallery_folder):
    gallery = em.Gallery.open(gallery_folder)
    for file, k in ((photos / "class1" / "3.png", 3), (photos / "class0" / "0.png", 100)):
        answer = send(client, "/search", file.read_bytes(), params={"k": k}).json()
        ((name, matches),) = answer_queries(gallery, model.embed(file).numpy(), k=k)
        assert answer["name"] == name == file.parent.name
        assert [one["id"] for one in answer["matches"]] == [match.id for match in matches]
        assert [one["accepted"] for one in answer["matches"]] == [match.accepted for match in matches]
        np.testing.assert_allclose([one["score"] for one in answer["matches"]], [m.score for m in matches], atol=1e-5)
        assert answer["threshold"] == gallery.certificate.threshold
        assert answer["rule"] == "distance < threshold"
    assert len(answer["matches"]) == 7


def test_a_pair_and_a_claim_are_decided_by_the_certificate(client, model, photos):
    first, second = photos / "class0" / "0.png", photos / "class1" / "1.png"
    pair = {"image": first.read_bytes(), "other": second.read_bytes()}
    answer = client.post("/verify/pair", files=pair).json()
    vectors = model.embed([first, second])
    distance = float(model.certificate.distances(vectors[:1], vectors[1:]))
    assert answer["score"] == pytest.approx(distance, abs=1e-5)
    assert answer["same"] == (distance < answer["threshold"])
    claimed = send(client, "/verify", first.read_bytes(), params={"id": "class1/1.png"}).json()
    assert claimed["score"] == pytest.approx(answer["score"], abs=1e-5)
    own = send(client, "/verify", first.read_bytes(), params={"id": "class0/0.png"}).json()
    assert own["same"]
    assert own["score"] == pytest.approx(0, abs=1e-3)
    assert send(client, "/verify", first.read_bytes(), params={"id": "nobody"}).status_code == 404


def test_identification_needs_its_certificate(client, model, model_folder, photos, tmp_path):
    query = (photos / "class0" / "0.png").read_bytes()
    refused = send(client, "/identify", query)
    assert refused.status_code == 409
    assert "calibrate one of identification" in refused.json()["detail"]
    certificate = bind_certificate(
        identification(8), model=model.model, preprocessing=model.preprocessing, arithmetic="float32"
    )
    certificate.save(tmp_path / "c.json")
    change_config(copy_model(model_folder, tmp_path / "model"), lambda config: config.update(task="identification"))
    rewrite(tmp_path / "model", "certificate.json", (tmp_path / "c.json").read_bytes())
    gallery = index_source(tmp_path / "model", photos, tmp_path / "named.gallery").gallery
    with serve(gallery.folder, load_exported(tmp_path / "model")) as other:
        answer = send(other, "/identify", query).json()
        expected = gallery.identify(model.embed(photos / "class0" / "0.png"))[0]
        assert (answer["name"], answer["id"]) == (expected.name, expected.id)
        assert send(other, "/search", query).json()["name"] == expected.name
        assert send(other, "/verify", query, params={"id": "class0/0.png"}).status_code == 409


def test_items_are_added_found_and_removed(client, gallery_folder):
    new = encode(noise(70))
    added = send(client, "/gallery", new, data={"id": "new/ä b", "label": "tea"})
    assert (added.status_code, added.json()) == (201, {"id": "new/ä b", "items": 8})
    found = send(client, "/search", new, params={"k": 1}).json()
    assert (found["name"], found["matches"][0]["id"]) == ("tea", "new/ä b")
    stored = em.Gallery.open(gallery_folder)
    row = stored.items().filter([one == "new/ä b" for one in stored.items()["id"].to_pylist()]).to_pylist()[0]
    assert row["file"] is None
    assert row["content"].startswith("sha256:")
    again = send(client, "/gallery", new, data={"id": "new/ä b", "label": "tea"})
    assert again.status_code == 409
    assert "is in use" in again.json()["detail"]
    removed = client.delete("/gallery", params={"id": ["new/ä b", "class0/0.png"]})
    assert removed.json() == {"ids": ["new/ä b", "class0/0.png"], "items": 6}
    assert "new/ä b" not in [one["id"] for one in send(client, "/search", new).json()["matches"]]
    assert client.delete("/gallery", params={"id": ["class0/2.png", "nobody"]}).status_code == 404
    assert "class0/2.png" in em.Gallery.open(gallery_folder)


def test_labels_are_sent_where_the_gallery_has_them(client, model, model_folder, photos, tmp_path):
    assert "send the field 'label'" in send(client, "/gallery", encode(noise()), data={"id": "x"}).json()["detail"]
    flat = index_source(model_folder, photos / "class0", tmp_path / "flat.gallery").gallery
    with serve(flat.folder, model) as other:
        labelled = send(other, "/gallery", encode(noise()), data={"id": "x", "label": "tea"})
        assert labelled.status_code == 409
        assert "leave the field 'label' out" in labelled.json()["detail"]
        assert send(other, "/gallery", encode(noise()), data={"id": "x"}).status_code == 201


@pytest.mark.parametrize("identity", [None, "label", "product"])
def test_an_empty_gallery_is_served_and_filled(identity, model, tmp_path):
    em.Gallery.create(tmp_path / "g", model.certificate, identity=identity)
    label = {} if identity is None else {"label": "tea"}
    with serve(tmp_path / "g", model) as client:
        assert send(client, "/search", encode(noise())).json()["matches"] == []
        for number in range(2):
            added = send(client, "/gallery", encode(noise(number)), data={"id": f"i{number}", **label})
            assert added.status_code == 201, added.json()
        name = send(client, "/search", encode(noise(1)), params={"k": 1}).json()["name"]
        assert name == ("i1" if identity is None else "tea")


def test_changes_of_other_processes_are_seen(client, model, gallery_folder):
    assert client.get("/gallery").json()["items"] == 7
    em.Gallery.open(gallery_folder).remove(["class0/0.png"])
    assert client.get("/gallery").json()["items"] == 6


def test_concurrent_requests_are_computed_in_batches_with_the_same_answers(client, photos):
    contents = [file.read_bytes() for file in sorted(photos.rglob("*.png"))] * 6
    alone = [send(client, "/search", content).json() for content in contents[:7]]
    with ThreadPoolExecutor(16) as pool:
        together = [one.json() for one in pool.map(lambda content: send(client, "/search", content), contents)]
    for number, answer in enumerate(together):
        assert [one["id"] for one in answer["matches"]] == [one["id"] for one in alone[number % 7]["matches"]]
    figures = client.get("/metrics").text
    calls, batches = (
        float(re.search(rf'^equimetric_batch_size_{what}{{work="embed"}} (.*)$', figures, re.MULTILINE)[1])
        for what in ("sum", "count")
    )
    assert calls == 49
    assert batches <= 49


def test_a_phone_photo_with_a_second_picture_is_read_as_its_file_would(client, model, tmp_path):
    (tmp_path / "photo.jpg").write_bytes(phone_photo())
    answer = send(client, "/embed", phone_photo()).json()
    np.testing.assert_allclose(answer["images"][0]["embedding"], model.embed(tmp_path / "photo.jpg")[0], atol=1e-6)


def test_an_upload_is_upright_and_decoded_as_certified(model):
    from dataclasses import replace

    from equimetric.service.limits import Limits
    from equimetric.service.uploads import decode_upload

    exif = Image.Exif()
    exif[0x0112] = 6
    content = encode(noise(3, (400, 300)), "JPEG", exif=exif)
    for decoding in ("exact", "fast"):
        preprocessing = replace(model.preprocessing, decoding=decoding)
        np.testing.assert_array_equal(
            decode_upload(content, preprocessing, Limits()), preprocessing.pixels(BytesIO(content))
        )
    fast, exact = (replace(model.preprocessing, decoding=one).pixels(BytesIO(content)) for one in ("fast", "exact"))
    assert (fast != exact).any()


def test_thumbnails_are_small_and_upright(client, photos, gallery_folder, model_folder, model, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "a.jpg").write_bytes(encode(noise(3, (400, 800)), "JPEG", exif=exif))
    gallery = index_source(model_folder, tmp_path / "large", tmp_path / "large.gallery").gallery
    with serve(gallery.folder, model) as other:
        response = other.get("/thumbnail", params={"id": "a.jpg"})
        with Image.open(BytesIO(response.content)) as picture:
            assert (picture.format, picture.size, dict(picture.getexif())) == ("JPEG", (128, 256), {})
        assert response.headers["content-type"] == "image/jpeg"
    assert client.get("/thumbnail", params={"id": "nobody"}).status_code == 404
    (photos / "class0" / "0.png").unlink()
    assert "is not on this machine" in client.get("/thumbnail", params={"id": "class0/0.png"}).json()["detail"]
    (photos / "class0" / "0.png").write_bytes(b"no image")
    assert client.get("/thumbnail", params={"id": "class0/0.png"}).status_code == 404
    with serve(gallery_folder, model, thumbnails=False) as other:
        assert other.get("/thumbnail", params={"id": "class0/2.png"}).status_code == 404
        assert not other.get("/gallery").json()["thumbnails"]


def test_status_and_metrics(client):
    assert client.get("/health").json()["status"] == "ok"
    client.get("/no/such/address")
    figures = client.get("/metrics").text
    assert 'equimetric_requests_total{method="GET",path="/health",status="200"} 1.0' in figures
    assert 'path="other",status="404"} 1.0' in figures
    assert "equimetric_gallery_items 7.0" in figures
    assert "/no/such" not in figures


def test_with_a_cohort_queries_and_items_have_vectors_of_their_own(run_folder, photos, tmp_path):
    from equimetric.runs.evaluation import CohortOverride

    export_run(
        run_folder,
        tmp_path / "model",
        threshold=ThresholdTarget(far=0.05),
        cohort=CohortOverride("validation"),
        onnx=False,
    )
    model = load_exported(tmp_path / "model")
    gallery = index_source(tmp_path / "model", photos, tmp_path / "c.gallery").gallery
    query = photos / "class0" / "0.png"
    with serve(gallery.folder, model) as client:
        outputs = send(client, "/embed", query.read_bytes()).json()["images"][0]
        np.testing.assert_allclose(outputs["query"], model.outputs(query)["query"][0], atol=1e-5)
        found = send(client, "/search", query.read_bytes()).json()
        assert found["rule"] == "score > threshold"
        matches = gallery.search(model.outputs(query)["query"], 5)[0]
        assert [one["id"] for one in found["matches"]] == [match.id for match in matches]
        claim = send(client, "/verify", query.read_bytes(), params={"id": matches[1].id}).json()
        assert claim["score"] == pytest.approx(matches[1].score, abs=1e-5)
        assert send(client, "/gallery", encode(noise(9)), data={"id": "x", "label": "y"}).status_code == 201
        assert send(client, "/search", encode(noise(9)), params={"k": 1}).json()["matches"][0]["id"] == "x"
