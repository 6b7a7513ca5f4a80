"""What `evaluate` costs beyond the matrix product it cannot do without.

Times the whole evaluation against the bare product of the same blocks, interleaved so that both meet the same machine,
and prints the median of the ratios.

    python benchmarks/retrieval.py --items 8131 --dimension 512 --classes 98
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import torch

from equimetric.evaluation import evaluate
from equimetric.evaluation.exact import slices
from equimetric.evaluation.scan import Comparison, default_block_rows


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def spaces(items: int, dimension: int, classes: int) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """An untrained space, a trained one, and a trained one in which a tenth of the vectors are duplicates of others."""
    labels = torch.arange(items) % classes
    noise = torch.nn.functional.normalize(torch.randn(items, dimension), dim=1)
    centres = torch.nn.functional.normalize(torch.randn(classes, dimension), dim=1)
    trained = torch.nn.functional.normalize(0.35 * centres[labels] + noise, dim=1)
    duplicated = trained.clone()
    duplicated[::10] = trained[torch.randint(items, (len(trained[::10]),))]
    return {"random": (noise, labels), "clustered": (trained, labels), "duplicates": (duplicated, labels)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=8131)
    parser.add_argument("--dimension", type=int, default=512)
    parser.add_argument("--classes", type=int, default=98)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)

    evaluate(torch.randn(500, options.dimension), torch.arange(500) % 5)  # the first call pays for loading the kernels
    print(f"{options.items} × {options.dimension}, {options.classes} classes, {options.threads} threads")
    print(f"{'space':<12}{'product':>10}{'evaluate':>10}{'ratio':>8}   of {options.rounds} rounds")
    for name, (embeddings, labels) in spaces(options.items, options.dimension, options.classes).items():
        blocks = slices(options.items, default_block_rows(Comparison(embeddings)))

        def product(embeddings: torch.Tensor = embeddings, blocks: list[slice] = blocks) -> None:
            for rows in blocks:
                torch.mm(embeddings[rows], embeddings.T)

        def whole(embeddings: torch.Tensor = embeddings, labels: torch.Tensor = labels) -> None:
            evaluate(embeddings, labels)

        rounds = [(seconds(product), seconds(whole)) for _ in range(options.rounds)]
        bare, full = (statistics.median(times) for times in zip(*rounds, strict=True))
        ratios = [full / bare for bare, full in rounds]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"{name:<12}{bare:>9.2f}s{full:>9.2f}s{statistics.median(ratios):>8.2f}   {spread}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
