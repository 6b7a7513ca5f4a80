"""`export_run`: write everything that a deployed model needs to one folder, atomically."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save as save_arrays
from safetensors.torch import save as save_tensors
from torch import Tensor

from equimetric.checksums import checksum, json_document
from equimetric.configuration import without_none
from equimetric.data import Images, take_images
from equimetric.deployment.canaries import compute_canaries, make_canaries
from equimetric.deployment.certification import (
    ThresholdTarget,
    bind_certificate,
    calibrate_embeddings,
    load_run_certificate,
)
from equimetric.deployment.embedder import AnyCertificate, Embedder
from equimetric.deployment.folder import (
    CANARIES,
    CARD,
    CERTIFICATE,
    COHORT,
    CONFIG,
    FAMILY,
    ONNX,
    ONNX_INT8,
    PREPROCESS,
    PROGRAM,
    SCHEMA,
    WEIGHTS,
)
from equimetric.deployment.graphs import export_program, require_onnx, write_onnx, write_program
from equimetric.deployment.int8 import append_cohort, quantize_graph
from equimetric.deployment.load import load_exported
from equimetric.deployment.model_card import CardFacts, write_card
from equimetric.deployment.network import DeployedNetwork, output_names
from equimetric.deployment.preprocessing import Preprocessing
from equimetric.deployment.runtimes import Arithmetic, OnnxRuntime, Runtime, TorchRuntime
from equimetric.deployment.state import deployed_state
from equimetric.deployment.verify import verify_model
from equimetric.errors import EquimetricError
from equimetric.evaluation import Cohort
from equimetric.files import sync_file, sync_folder, unfinished_folder, write_atomically
from equimetric.runs.access import require_writable
from equimetric.runs.access_log import record_test_access
from equimetric.runs.cohorts import cohort_rows
from equimetric.runs.embedding import images_per_block
from equimetric.runs.evaluation import CohortOverride, LabelledEmbeddings, OpenRun, find_setting, open_run
from equimetric.runs.folder import RunFolder
from equimetric.runs.origin import weights_sha256
from equimetric.threads import use_threads

__all__ = ["export_run"]

REBUILD_TABLES = ("method", "options", "seed", "learner", "model", "evaluation", "training")
"""Tables of a run's configuration that its network follows from; paths of the data are not among them."""


def export_run(
    run: str | Path,
    folder: str | Path,
    *,
    threshold: ThresholdTarget | None = None,
    certificate: str | Path | None = None,
    certified: bool = True,
    part: str = "test",
    cohort: CohortOverride | None = None,
    int8: bool = False,
    onnx: bool = True,
    licence: str = "unknown",
) -> Embedder:
    """Write the model of a finished run to a new folder, with its certificate; returns what `load` reads from it.

    threshold    target to calibrate for on the run's data; by default pairs at FAR 1e-3
    certificate  a file that `equimetric calibrate RUN --out` wrote, in place of calibrating here
    certified    False for a model without a threshold
    part         the classes to calibrate on, and to measure for the model card
    cohort       cohort that normalises similarities, if not that of the run
    int8         quantise the network; the certificate is then of the int8 network
    onnx         whether to write the ONNX graph; int8 needs it
    licence      licence of the model, for the model card
    """
    target = Path(folder)
    if target.exists():
        raise EquimetricError(f"{str(target)!r} is there already; choose another folder, or remove it")
    require_writable(target, "folder")
    if int8 and certificate is not None:
        raise EquimetricError("an int8 model decides differently and needs a threshold of its own; leave --certificate")
    if onnx or int8:
        require_onnx("install them for --int8" if int8 else "give --no-onnx")
    export = Export(open_exportable(Path(run)), target, part, cohort or CohortOverride(), certified)
    with use_threads(export.run.config.training.threads), unfinished_folder(target) as work:
        certificate_file = None if certificate is None else Path(certificate)
        if int8:
            content = export.write_int8(work)
            bound_certificate = export.make_certificate(
                content.samples, threshold or ThresholdTarget(), certificate_file
            )
        else:
            # First the step that may raise an error.
            bound_certificate = export.make_certificate(
                export.samples, threshold or ThresholdTarget(), certificate_file
            )
            content = export.write_float32(work, onnx=onnx)
        export.finish(work, content, bound_certificate, licence)
        verify_model(work).require()
        for file in work.iterdir():
            sync_file(file)
        sync_folder(work)
        work.rename(target)
        sync_folder(target.parent)
    return load_exported(target)


def open_exportable(folder: Path) -> OpenRun:
    """A finished run that embeds images."""
    run = open_run(folder)
    if run.data.vectors:
        raise EquimetricError(
            f"the run in {str(folder)!r} embeds feature vectors, not images, so there is no image to start from; "
            "export a run on images, with model.frozen = true for features of a frozen backbone"
        )
    return run


@dataclass(frozen=True, eq=False)
class ExportedContent:
    """The written network with its runtime, the embeddings to calibrate on, and the model's hash."""

    runtime: Runtime
    arithmetic: Arithmetic
    model: str
    dim: int
    samples: LabelledEmbeddings | None

    @property
    def cohort(self) -> Cohort | None:
        """Other classes that similarities are normalised by."""
        return None if self.samples is None else self.samples.cohort


@dataclass(frozen=True, eq=False)
class Export:
    """One export: the run, where it goes, and the classes that measure it."""

    run: OpenRun
    target: Path
    part: str
    override: CohortOverride
    certified: bool
    files: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """The preprocessing of images."""
        decoding = self.run.config.data.options.get("decoding", "exact")
        return Preprocessing.from_data(self.run.data, "fast" if decoding == "fast" else "exact")

    @cached_property
    def samples(self) -> LabelledEmbeddings | None:
        """The embeddings of the part, by the run itself."""
        if not self.certified:
            return None
        samples = self.run.embed(self.part, cohort=self.override)
        if self.part == "test":
            record_test_access(self.run.model.folder, "export")
        return samples

    def make_certificate(
        self, samples: LabelledEmbeddings | None, threshold: ThresholdTarget, file: Path | None
    ) -> AnyCertificate | None:
        """The certificate, given or calibrated on embeddings; None for a model without one."""
        if samples is None:
            return None
        if file is not None:
            return load_run_certificate(file, self.run.model.folder, samples)
        return calibrate_embeddings(samples, self.run.config, threshold)

    def network(self, cohort: Cohort | None) -> DeployedNetwork:
        """The network of the run in float32, with a cohort or without."""
        return DeployedNetwork(self.run.model.learner.float(), cohort).eval()

    def write_float32(self, work: Path, *, onnx: bool) -> ExportedContent:
        """Write weights, program and graph."""
        samples = self.samples
        cohort = None if samples is None else samples.cohort
        network, names = self.network(cohort), output_names(cohort)
        weights = save_tensors(deployed_state(network.learner))
        write_atomically(work / WEIGHTS, weights)
        program = self.trace(network)
        write_program(program, work / PROGRAM)
        if onnx:
            write_onnx(program, work / ONNX, names)
        runtime = TorchRuntime(network, names)
        return ExportedContent(runtime, "float32", checksum(weights)["sha256"], self.dim(runtime), samples)

    def write_int8(self, work: Path) -> ExportedContent:
        """Write the int8 graph; embeddings and cohort are those of the int8 network."""
        samples, data = self.samples, self.run.data
        graph, float_graph = work / ONNX_INT8, work / ONNX
        write_onnx(self.trace(self.network(None)), float_graph, output_names(None))
        quantize_graph(float_graph, graph, data.images("train"))
        float_graph.unlink()
        runtime = OnnxRuntime(graph.read_bytes())
        if samples is not None:
            cohort = None if samples.cohort is None else replace(samples.cohort, embeddings=self.embed_cohort(runtime))
            embeddings = run_in_blocks(runtime, data.images(self.part))
            samples = replace(samples, embeddings=embeddings, cohort=cohort)
            if cohort is not None:
                append_cohort(graph, cohort, embeddings.shape[1])
                runtime = OnnxRuntime(graph.read_bytes())
        return ExportedContent(runtime, "int8", checksum(graph.read_bytes())["sha256"], self.dim(runtime), samples)

    def trace(self, network: DeployedNetwork) -> Any:
        """The network as a program."""
        subject = f"the learner {self.run.config.learner.name!r}"
        return export_program(network, self.preprocessing.channels, self.preprocessing.size, subject)

    def dim(self, runtime: Runtime) -> int:
        """Dimension of an embedding."""
        preprocessing = self.preprocessing
        shape = (1, preprocessing.channels, preprocessing.size, preprocessing.size)
        return int(runtime.run(np.zeros(shape, np.uint8))["embedding"].shape[1])

    def embed_cohort(self, runtime: Runtime) -> Tensor:
        """The images of the cohort by another network."""
        setting = find_setting(self.run.model, self.run.data, self.part, self.override)
        assert setting is not None
        rows = cohort_rows(self.run.data, setting.part)
        return run_in_blocks(runtime, take_images(self.run.data.eval_data.images, rows))

    def finish(self, work: Path, content: ExportedContent, certificate: AnyCertificate | None, licence: str) -> None:
        """Write the other files; config.json comes last, with the checksums of all others."""
        if certificate is not None:
            certificate = bind_certificate(
                certificate, model=content.model, preprocessing=self.preprocessing, arithmetic=content.arithmetic
            )
            certificate.save(work / CERTIFICATE)
        canaries = make_canaries(self.preprocessing)
        outputs = compute_canaries(content.runtime, canaries["pixels"])
        write_atomically(work / CANARIES, save_arrays({**canaries, **outputs}))
        write_atomically(work / PREPROCESS, json.dumps(self.preprocessing.to_dict(), indent=2) + "\n")
        if content.cohort is not None:
            write_atomically(work / COHORT, save_tensors({"embeddings": torch.as_tensor(content.cohort.embeddings)}))
        facts = CardFacts(
            run=self.run,
            part=self.part,
            samples=content.samples,
            certificate=certificate,
            preprocessing=self.preprocessing,
            arithmetic=content.arithmetic,
            dim=content.dim,
            licence=licence,
            name=self.target.name,
            files=sorted(file.name for file in work.iterdir()),
        )
        write_atomically(work / CARD, write_card(facts))
        files = {file.name: checksum(file.read_bytes()) for file in sorted(work.iterdir()) if file.name != CARD}
        document = {**self.describe(content, certificate), "files": files}
        write_atomically(work / CONFIG, json_document(document, indent=2))

    def describe(self, content: ExportedContent, certificate: AnyCertificate | None) -> dict[str, Any]:
        """The description of the model in config.json."""
        config, model, cohort = self.run.config, self.run.model, content.cohort
        rebuilt = without_none(config.model_dump(mode="json", include=set(REBUILD_TABLES)))
        rebuilt["model"].pop("start", None)
        return {
            "schema": f"{FAMILY}/{SCHEMA}",
            "library_name": "equimetric",
            "model": content.model,
            "arithmetic": content.arithmetic,
            "task": None if certificate is None else certificate.task,
            "dim": content.dim,
            "outputs": list(output_names(cohort)),
            "preprocessing": self.preprocessing.description,
            "cohort": None
            if cohort is None
            else {"form": cohort.form, "strength": cohort.strength, "nearest": cohort.nearest},
            "source": {
                "weights": weights_sha256(model.folder),
                "data": self.run.data.fingerprint,
                "key": ((RunFolder(model.folder).environment() or {}).get("key") or {}).get("content"),
                "equimetric": version("equimetric"),
                "torch": torch.__version__,
            },
            "data_shape": None if model.result.data is None else model.result.data.model_dump(),
            "run": rebuilt,
        }


def run_in_blocks(runtime: Runtime, images: Images) -> Tensor:
    """(N, D) embeddings of uint8 images (N, C, S, S), a block at a time."""
    step = images_per_block(images.shape[2] * images.shape[3])
    blocks = [
        runtime.run(np.ascontiguousarray(images[start : start + step].numpy()))["embedding"]
        for start in range(0, len(images), step)
    ]
    return torch.from_numpy(np.concatenate(blocks))
