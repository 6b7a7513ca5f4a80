"""What is refused: hostile images, wrong fields, too much at a time, strangers; each in one sentence."""

import io
import os
import zlib

import pytest
from serving import KEY, animation, encode, is_one_sentence, noise, png_of_size, send, serve

import equimetric as em
from equimetric.errors import EquimetricError
from equimetric.service.access import AccessRules, read_keys
from equimetric.service.limits import Limits

GOOD = encode(noise())
JPEG = encode(noise(0, (200, 200)), "JPEG")
HOSTILE = {
    "empty": (b"", 422, "is empty"),
    "text": (b"no image at all", 415, "no image that can be read"),
    "zip": (b"PK\x03\x04" + bytes(64), 415, "no image that can be read"),
    "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 415, "it is SVG"),
    "heic": (b"\0\0\0\x18ftypheic" + bytes(64), 415, "it is HEIC, which is not read; convert it to JPEG or PNG"),
    "pdf": (b"%PDF-1.7" + bytes(64), 415, "it is PDF"),
    "header alone": (GOOD[:24], 422, "is damaged"),
    "truncated png": (encode(noise(0, (99, 99)))[:-600], 422, "is damaged"),
    "truncated jpeg": (JPEG[: len(JPEG) // 2], 422, "is damaged"),
    "broken checksum": (GOOD[:29] + b"\0\0\0\0" + GOOD[33:], 415, "no image that can be read"),
    "gif animation": (animation("GIF"), 422, "several frames"),
    "png animation": (animation("PNG"), 422, "several frames"),
    "webp animation": (animation("WEBP"), 422, "several frames"),
    "tiff pages": (animation("TIFF"), 422, "several frames"),
    "more pixels than allowed": (png_of_size(8000, 8000), 413, "at most 50 million"),
    "a bomb to Pillow, too": (png_of_size(100_000, 100_000), 413, "at most 50 million"),
    "sizes beyond an integer": (png_of_size(2**31 - 1, 2**31 - 1), 413, "at most 50 million"),
    "no pixels": (png_of_size(0, 5), 415, "no image that can be read"),
    "a line": (png_of_size(40_000, 1, bytes(40_001)), 422, "one side is more than 1000 times the other"),
    "less data than promised": (png_of_size(3000, 3000, b"\0"), 422, "is damaged"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_images_are_refused_in_one_sentence(kind, client):
    content, status, words = HOSTILE[kind]
    for path in ("/embed", "/search"):
        response = send(client, path, content)
        assert response.status_code == status, response.text
        assert words in response.json()["detail"]
        assert is_one_sentence(response)
    added = send(client, "/gallery", content, data={"id": "x", "label": "y"})
    assert added.status_code == status
    assert client.get("/gallery").json()["items"] == 7


def test_a_compressed_text_in_a_png_does_not_fill_the_memory(client):
    """A few kilobytes that unpack to 200 MB."""
    body = b"zTXtComment\0\0" + zlib.compress(bytes(200_000_000), 9)
    chunk = (len(body) - 4).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")
    response = send(client, "/embed", GOOD[:33] + chunk + GOOD[33:])
    assert response.status_code == 415
    assert is_one_sentence(response)


@pytest.mark.parametrize(
    ("path", "request_", "status", "words"),
    [
        ("/search", {}, 422, "image is missing"),
        ("/search", {"json": {"image": "x"}}, 422, "image is missing"),
        ("/search", {"data": {"image": "text"}}, 422, "image"),
        ("/search", {"content": b"\xff\xfe"}, 422, "image is missing"),
        ("/search", {"content": b"junk", "headers": {"content-type": "multipart/form-data"}}, 400, "cannot be read"),
        ("/search", {"content": b"j", "headers": {"content-type": "multipart/form-data; boundary=x"}}, 400, "be read"),
        ("/search?k=0", {"files": {"image": GOOD}}, 422, "k is '0'"),
        ("/search?k=101", {"files": {"image": GOOD}}, 422, "k is '101'"),
        ("/search?k=many", {"files": {"image": GOOD}}, 422, "k is 'many'"),
        ("/verify", {"files": {"image": GOOD}}, 422, "id is missing"),
        ("/verify/pair", {"files": {"image": GOOD}}, 422, "other is missing"),
        ("/gallery", {"files": {"image": GOOD}}, 422, "id is missing"),
        ("/gallery", {"files": {"image": GOOD}, "data": {"id": "x" * 513}}, 422, "at most 512 characters"),
        ("/embed", {"files": [("image", GOOD)] * 65}, 422, "at most 64 items"),
        ("/nothing", {"content": b"x"}, 404, "nothing at this address"),
        ("/health", {"content": b"x"}, 405, "does not take that method"),
    ],
)
def test_wrong_requests_are_refused_in_one_sentence(path, request_, status, words, client):
    response = client.post(path, **request_)
    assert response.status_code == status, response.text
    assert words in response.json()["detail"]
    assert is_one_sentence(response)


def test_large_requests_are_refused_whether_they_say_so_or_not(gallery_folder, model):
    with serve(gallery_folder, model, limits=Limits(body=10_000)) as client:
        announced = send(client, "/search", os.urandom(20_000))
        streamed = client.post("/search", content=iter([b"x" * 4096] * 4), headers={"content-type": "image/jpeg"})
        form = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
        chunks = client.post(
            "/search",
            content=iter([form, *([b"x" * 4096] * 4)]),
            headers={"content-type": "multipart/form-data; boundary=x"},
        )
        for response in (announced, chunks):
            assert response.status_code == 413
            assert "larger than 0.01 MB" in response.json()["detail"]
        assert streamed.status_code in (413, 422)
        assert send(client, "/search", GOOD).status_code == 200


def test_more_requests_at_a_time_than_allowed_are_told_to_come_back(gallery_folder, model):
    with serve(gallery_folder, model, limits=Limits(requests=0)) as client:
        response = client.get("/health")
        assert (response.status_code, response.headers["retry-after"]) == (503, "1")
        assert is_one_sentence(response)


def test_calls_need_a_key_where_there_is_one(gallery_folder, model):
    with serve(gallery_folder, model, rules=AccessRules((KEY, "another-key-of-sixteen"))) as client:
        for given in ({}, {"authorization": "Bearer wrong"}, {"authorization": KEY}, {"authorization": f"Basic {KEY}"}):
            for path in ("/search", "/gallery", "/embed", "/verify", "/nothing"):
                response = client.post(path, files={"image": GOOD}, headers=given)
                assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
                assert is_one_sentence(response)
            for path in ("/gallery", "/metrics", "/thumbnail?id=class0/0.png"):
                assert client.get(path, headers=given).status_code == 401
        for key in (KEY, "another-key-of-sixteen"):
            assert send(client, "/search", GOOD, headers={"authorization": f"Bearer {key}"}).status_code == 200
        for path in ("/", "/health", "/docs", "/openapi.json", "/assets/page.js"):
            assert client.get(path).status_code == 200
        assert client.get("/health").json()["key"]
        assert "HTTPBearer" in client.get("/openapi.json").text


def test_pages_of_other_sites_may_not_call(gallery_folder, model):
    rules = AccessRules.for_host("127.0.0.1", (), read_only=False)
    with serve(gallery_folder, model, rules=rules) as client:
        for headers in (
            {"origin": "https://elsewhere.example"},
            {"origin": "null"},
            {"sec-fetch-site": "cross-site"},
            {"host": "elsewhere.example"},
            {"host": "localhost.elsewhere.example:8000"},
        ):
            response = send(client, "/search", GOOD, headers=headers)
            assert response.status_code == 403
            assert is_one_sentence(response)
        for headers in ({"origin": "http://localhost"}, {"host": "127.0.0.1:9000"}, {"host": "[::1]:8000"}):
            assert send(client, "/search", GOOD, headers=headers).status_code == 200
        assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200, "links lead here"


def test_a_read_only_gallery_is_not_changed(gallery_folder, model):
    with serve(gallery_folder, model, rules=AccessRules(read_only=True)) as client:
        for response in (
            send(client, "/gallery", GOOD, data={"id": "x", "label": "y"}),
            client.delete("/gallery", params={"id": "class0/0.png"}),
        ):
            assert response.status_code == 403
            assert is_one_sentence(response)
        assert not client.get("/gallery").json()["writable"]
    assert len(em.Gallery.open(gallery_folder)) == 7


def test_an_open_service_for_others_is_refused(tmp_path):
    with pytest.raises(EquimetricError, match="give --key-file FILE, or --read-only"):
        AccessRules.for_host("0.0.0.0", (), read_only=False)
    with pytest.raises(EquimetricError, match="fewer than 16 characters"):
        AccessRules.for_host("0.0.0.0", ("short",), read_only=False)
    assert AccessRules.for_host("0.0.0.0", (KEY,), read_only=False).hosts is None
    assert AccessRules.for_host("localhost", (), read_only=False).hosts == {"localhost", "127.0.0.1", "::1"}
    (tmp_path / "keys").write_text(f"{KEY}\n\n another-key-of-sixteen \n")
    assert read_keys(tmp_path / "keys") == (KEY, "another-key-of-sixteen")
    for content, words in ((b"\n", "has no key"), (b"\xff\xfe\xff", "cannot be read")):
        (tmp_path / "keys").write_bytes(content)
        with pytest.raises(EquimetricError, match=words):
            read_keys(tmp_path / "keys")
    with pytest.raises(EquimetricError, match="there is no file"):
        read_keys(tmp_path / "none")


def test_a_full_disk_is_said_and_nothing_is_half_written(client, gallery_folder, monkeypatch):
    from equimetric.gallery import writing

    def full(*arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(writing, "append_rows", full)
        response = send(client, "/gallery", GOOD, data={"id": "x", "label": "y"})
    assert response.status_code == 507
    assert "the disk is full" in response.json()["detail"]
    assert send(client, "/gallery", GOOD, data={"id": "x", "label": "y"}).status_code == 201
    assert len(em.Gallery.open(gallery_folder)) == 8


def test_a_failure_of_the_server_says_nothing_of_its_insides(client, monkeypatch):
    from equimetric.deployment.embedder import Embedder

    def fail(*arguments):
        raise RuntimeError("secret insides")

    monkeypatch.setattr(Embedder, "compute", fail)
    response = send(client, "/search", GOOD)
    assert response.status_code == 500
    assert is_one_sentence(response)
    assert "secret" not in response.text
    monkeypatch.undo()
    assert send(client, "/search", GOOD).status_code == 200


def test_an_image_is_no_reason_to_read_a_stream_twice():
    """A stream that is given to the model is left open, and read from its beginning."""
    from equimetric.data.decoding import open_image

    stream = io.BytesIO(GOOD)
    with open_image(stream) as opened:
        assert opened.size == (12, 9)
    assert not stream.closed
