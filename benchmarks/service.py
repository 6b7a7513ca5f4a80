"""Requests per second and latency of `equimetric serve` on loopback, for 1, 8 and 64 clients.

The service is a process of its own; clients are threads here, each with one connection, that search by the same few
images again and again. Errors are counted, and the memory of the service is read before and after each round.

    python benchmarks/service.py shop.gallery query1.jpg query2.jpg --seconds 10
"""

import argparse
import http.client
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

CLIENTS = (1, 8, 64)
BOUNDARY = "benchmark"


def form(image: bytes) -> bytes:
    """An image as the form that the service takes."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="image"; filename="a.jpg"\r\n\r\n'
    return head.encode() + image + f"\r\n--{BOUNDARY}--\r\n".encode()


def search(address: str, bodies: list[bytes], ends_at: float, seconds: list[float], errors: list[int]) -> None:
    """One client: search until the time is over."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    index = 0
    while time.perf_counter() < ends_at:
        started = time.perf_counter()
        connection.request("POST", "/search?k=10", bodies[index % len(bodies)], headers)
        response = connection.getresponse()
        response.read()
        seconds.append(time.perf_counter() - started)
        if response.status != 200:
            errors.append(response.status)
        index += 1
    connection.close()


def memory(address: str) -> float:
    """Resident megabytes of the service, by its own metrics."""
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    connection.request("GET", "/metrics")
    figures = connection.getresponse().read().decode()
    connection.close()
    match = re.search(r"^process_resident_memory_bytes (\S+)", figures, re.MULTILINE)
    assert match
    return float(match[1]) / 1e6


def measure(address: str, bodies: list[bytes], clients: int, duration: float) -> None:
    """Print one row."""
    before, seconds, errors = memory(address), [], []
    started = time.perf_counter()
    arguments = (address, bodies, started + duration, seconds, errors)
    threads = [threading.Thread(target=search, args=arguments) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.perf_counter() - started
    median, p99 = statistics.median(seconds), statistics.quantiles(seconds, n=100)[98]
    print(
        f"{clients:3d} clients  {len(seconds) / elapsed:7.1f} requests/s  median {1e3 * median:6.1f} ms  "
        f"p99 {1e3 * p99:6.1f} ms  errors {len(errors)}  memory {before:.0f} → {memory(address):.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gallery", type=Path, nargs="?", help="by default a small one is made")
    parser.add_argument("images", type=Path, nargs="*")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=2, help="memory that grows would show in the last")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run(*(make_gallery(Path(scratch)) if args.gallery is None else (args.gallery, args.images)), args)


def make_gallery(folder: Path) -> tuple[Path, list[Path]]:
    """A gallery of made images under a model of the digits, and some of the images."""
    import numpy as np
    from PIL import Image

    import equimetric as em
    from equimetric.deployment.certification import ThresholdTarget
    from equimetric.deployment.indexing import index_source

    config = {"data": {"name": "digits"}, "batch": {"classes": 3}, "training": {"steps": 4}}
    em.train(config, folder=folder / "run")
    em.export_run(folder / "run", folder / "model", threshold=ThresholdTarget(far=0.05), onnx=False)
    draw = np.random.default_rng(0)
    (folder / "photos").mkdir()
    for index in range(200):
        pixels = draw.integers(0, 256, (200, 200), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "photos" / f"{index:03d}.jpg")
    index_source(folder / "model", folder / "photos", folder / "g.gallery")
    return folder / "g.gallery", sorted((folder / "photos").iterdir())[:8]


def run(gallery: Path, images: list[Path], args: argparse.Namespace) -> None:
    """Start the service and print all rows."""
    command = [sys.executable, "-m", "equimetric", "serve", str(gallery), "--port", "0", "--read-only"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            match = re.search(r"http://\S+", process.stdout.readline() + process.stdout.readline())
            assert match, "the service did not start"
            bodies = [form(image.read_bytes()) for image in images]
            for _ in range(args.rounds):
                for clients in CLIENTS:
                    measure(match[0], bodies, clients, args.seconds)
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
