"""The wheel and the sdist: what is inside, what their metadata say, and that they work outside the repository."""

import email
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import equimetric

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    build(folder, "--wheel")
    (file,) = folder.glob("*.whl")
    return file


def build(folder, *kinds):
    command = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", str(folder), str(ROOT)]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr


def tracked(folder):
    shown = subprocess.run(["git", "ls-files", folder], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in shown.split() if (ROOT / name).exists()}


def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_holds_every_file_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.removeprefix("src/") for name in tracked("src")} <= inside
    assert all(name.startswith("equimetric/") for name in inside)
    for kind in (".toml", ".csv", ".jinja", ".css", ".pyi", "py.typed"):
        assert any(name.endswith(kind) for name in inside), kind


def test_the_metadata_state_versions_of_python_and_extras(wheel):
    data = metadata(wheel)
    assert data["Requires-Python"] == ">=3.11"
    for version in ("3.11", "3.12", "3.13"):
        assert f"Programming Language :: Python :: {version}" in data.get_all("Classifier")
    assert "Typing :: Typed" in data.get_all("Classifier")
    assert set(data.get_all("Provides-Extra")) == set(PROJECT["optional-dependencies"])
    assert data["License-Expression"] == "Apache-2.0"


def test_extras_refer_to_extras_that_exist():
    for extra, listed in PROJECT["optional-dependencies"].items():
        for requirement in map(Requirement, listed):
            if requirement.name == "equimetric":
                assert requirement.extras <= set(PROJECT["optional-dependencies"]) - {extra}


def test_every_requirement_has_a_version_that_the_constraints_fulfil():
    """The packages of peers and pages aside, whose versions are pinned by those that use them."""
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().split("\n") if "==" in line)
    pinned = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pinned.items()}
    needed = [*PROJECT["dependencies"]]
    needed += PROJECT["optional-dependencies"]["dev"] + PROJECT["optional-dependencies"]["ecosystem"]
    for requirement in map(Requirement, needed):
        if requirement.name != "equimetric":
            version = pinned[re.sub(r"[-_.]+", "-", requirement.name).lower()]
            assert requirement.specifier.contains(version), requirement


def test_extras_that_errors_recommend_exist():
    for name in tracked("src"):
        if name.endswith(".py"):
            for extra in re.findall(r"equimetric\[(\w+)\]", (ROOT / name).read_text(encoding="utf-8")):
                assert extra in PROJECT["optional-dependencies"], name


def test_the_version_is_the_same_everywhere():
    version = PROJECT["version"]
    assert equimetric.__version__ == version
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text()
    released = re.search(r"^date-released: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1]
    assert f"## {version} ({released})" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.slow
def test_an_installed_sdist_works_outside_the_repository(tmp_path):
    """As in an empty environment whose dependencies are there, and nothing of this checkout."""
    build(tmp_path / "dist")  # the sdist, and from it the wheel
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    documents = {"LICENSE", "README.md", "CHANGELOG.md", "SECURITY.md", "CITATION.cff"}
    made = {"PKG-INFO", ".gitignore"}  # by the builder
    assert names - made == tracked("src") | documents | {"pyproject.toml", "constraints.txt"}
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    site = environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # Paths alone: the finder of an editable install is no path.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = environment / "bin" / "python"
    study = tmp_path / "study.toml"
    study.write_text(
        'name = "short"\nseeds = [0]\n[data]\nname = "digits"\n[batch]\nclasses = 3\n'
        "[training]\nsteps = 2\nvalidate_every = 2\n[methods.contrastive]\n"
    )
    code = "import sys; from equimetric.cli import main; import equimetric; print(equimetric.__file__); main()"
    for arguments in (["--version"], ["methods"], ["compare", str(study), "--output", str(tmp_path / "runs")]):
        ran = subprocess.run(
            [str(python), "-c", code, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={"PATH": os.defpath, "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"},
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert str(site) in ran.stdout
    assert (tmp_path / "runs" / "short" / "report" / "index.html").exists()
