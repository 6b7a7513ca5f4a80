"""Two processes of torch.distributed, for tests of what they compute together."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

WORKER = """
import importlib, sys, torch, torch.distributed as dist
folder, module, rank, port, out = sys.argv[1:]
sys.path.insert(0, folder)
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=int(rank), world_size=2)
torch.save(importlib.import_module(module).work(int(rank)), out)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def of_two_processes(request, tmp_path_factory):
    """What `work(rank)` of the test's own module returns in each of two processes."""
    out = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    file = Path(request.module.__file__)
    commands = [
        [sys.executable, "-c", WORKER, str(file.parent), file.stem, str(rank), port, str(out / str(rank))]
        for rank in (0, 1)
    ]
    processes = [subprocess.Popen(command) for command in commands]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    return [torch.load(out / str(rank), weights_only=True) for rank in (0, 1)]
