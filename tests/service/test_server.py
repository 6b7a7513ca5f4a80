"""The command in a process of its own: it starts, stops when it is told to, and survives a kill."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import httpx2
import numpy as np
import pytest
from exported import copy_model
from serving import KEY, encode, noise

import equimetric as em
from equimetric.gallery.manifest import Manifest


@contextmanager
def running(*arguments):
    """`equimetric serve` at a free port: the process and its address."""
    command = [sys.executable, "-m", "equimetric", "serve", *map(str, arguments), "--port", "0"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"},
    )
    try:
        lines = [process.stdout.readline(), process.stdout.readline()]
        found = re.search(r"http://\S+", lines[1])
        assert found, (lines, process.stderr.read())
        yield process, found[0]
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def add(address, number):
    """Add the image of a number; whether the service said it is stored."""
    files = {"image": encode(noise(number))}
    form = {"id": f"n{number:05d}", "label": f"class {number % 3}"}
    try:
        return httpx2.post(f"{address}/gallery", files=files, data=form, timeout=30).status_code == 201
    except httpx2.HTTPError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.3, 0.9])
def test_a_server_killed_while_adding_leaves_whole_items_and_all_it_confirmed(seconds, gallery_folder, model):
    with running(gallery_folder) as (process, address):
        confirmed, stop = [], threading.Event()

        def keep_adding(first):
            for number in range(first, 10_000, 4):
                if stop.is_set() or not add(address, number):
                    return
                confirmed.append(number)

        threads = [threading.Thread(target=keep_adding, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        while not confirmed:
            time.sleep(0.01)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        stop.set()
        for thread in threads:
            thread.join()
    gallery = em.Gallery.open(gallery_folder)
    added = [one for one in gallery.items()["id"].to_pylist() if one.startswith("n")]
    names = [f"n{number:05d}" for number in confirmed]
    assert set(names) <= set(added)
    assert len(added) <= len(names) + 4, "only what was under way may be there beside"
    assert {file.name for file in gallery_folder.iterdir()} <= Manifest.read(gallery_folder).files | {
        ".lock",
        "model.json",
    }
    images = [noise(int(one[1:])) for one in added]
    np.testing.assert_allclose(gallery.vectors(added), model.embed(images).numpy(), atol=1e-5)
    assert gallery.names(added) == [f"class {int(one[1:]) % 3}" for one in added]
    with running(gallery_folder) as (_, address):
        assert httpx2.get(f"{address}/gallery").json()["items"] == len(gallery)
        assert add(address, 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_finishes_the_requests_that_have_begun(number, gallery_folder):
    with running(gallery_folder) as (process, address):
        images = [("image", encode(noise(one, (1500, 1500)))) for one in range(4)]
        answers = []
        threads = [
            threading.Thread(
                target=lambda: answers.append(httpx2.post(f"{address}/embed", files=images, timeout=60).status_code)
            )
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        # All three have begun once the service says so.
        while "equimetric_running_requests 4.0" not in httpx2.get(f"{address}/metrics").text and len(answers) < 3:
            time.sleep(0.01)
        process.send_signal(number)
        for thread in threads:
            thread.join()
        out, error = process.communicate(timeout=60)
        assert answers == [200, 200, 200]
        assert (process.returncode, error) == (0, "")
        assert out.strip() == "stopped"


def test_the_command_serves_with_a_key_and_stops(gallery_folder, tmp_path):
    (tmp_path / "keys").write_text(KEY)
    with running(gallery_folder, "--key-file", tmp_path / "keys", "--read-only") as (process, address):
        assert httpx2.get(f"{address}/gallery").status_code == 401
        told = httpx2.get(f"{address}/gallery", headers={"authorization": f"Bearer {KEY}"}).json()
        assert (told["items"], told["writable"]) == (7, False)
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=60)
        assert (process.returncode, out.strip(), error) == (0, "stopped", "")


def test_models_that_are_not_verified_are_refused(model_folder, gallery_folder, tmp_path, equimetric, is_one_sentence):
    changed = copy_model(model_folder, tmp_path / "changed")
    weights = (changed / "model.safetensors").read_bytes()
    (changed / "model.safetensors").write_bytes(weights[:-1] + b"x")
    missing = json.loads((gallery_folder / "model.json").read_text())["folder"]
    for arguments, words in (
        ((gallery_folder, "--model", changed), "is not the file that was exported"),
        ((gallery_folder, "--model", tmp_path / "none"), "there is no exported model in"),
        ((tmp_path, "--model", model_folder), "there is no gallery in"),
        ((gallery_folder, "--host", "0.0.0.0"), "could change the gallery; give --key-file FILE, or --read-only"),
        ((gallery_folder, "--max-mb", "0"), "--max-mb is 0"),
        ((gallery_folder, "--port", "70000"), "there is no port 70000"),
        ((gallery_folder, "--host", "192.0.2.1", "--read-only"), "is no address of this machine"),
    ):
        code, _, error = equimetric("serve", *arguments, *(() if "--port" in arguments else ("--port", 0)))
        assert code == 2
        assert words in error
        assert is_one_sentence(error)
    assert missing == str(model_folder)


def test_a_model_that_computes_something_else_here_is_refused(gallery_folder, equimetric, monkeypatch):
    from equimetric.deployment.runtimes import TorchRuntime

    run = TorchRuntime.run
    monkeypatch.setattr(
        TorchRuntime, "run", lambda self, images: {name: rows + 0.01 for name, rows in run(self, images).items()}
    )
    code, _, error = equimetric("serve", gallery_folder, "--port", 0)
    assert code == 2
    assert "The certificate does not hold here" in error


def test_a_port_in_use_is_said(gallery_folder, equimetric):
    from equimetric.service.server import bind

    with bind("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP, "else asyncio delays answers"
        code, _, error = equimetric("serve", gallery_folder, "--port", listening.getsockname()[1])
    assert code == 2
    assert "is in use; give another --port" in error


def test_without_the_extra_the_command_says_what_to_install(gallery_folder, equimetric, monkeypatch, is_one_sentence):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    code, _, error = equimetric("serve", gallery_folder)
    assert code == 2
    assert "pip install 'equimetric[serve]'" in error
    assert is_one_sentence(error)
