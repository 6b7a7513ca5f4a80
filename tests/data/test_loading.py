import threading
from itertools import islice

import pytest
import torch

from equimetric.data import (
    CenterCrop,
    FileStore,
    ImageFiles,
    Loader,
    RandomCrop,
    RandomResizedCrop,
    Resize,
    View,
    fit_view,
    load_dataset,
)
from equimetric.errors import EquimetricError

RANDOM = View(Resize(12, "shorter"), RandomResizedCrop(8, scale=(0.2, 1.0)), flip=True)


@pytest.fixture
def files(tmp_path, picture):
    return ImageFiles.all_of(FileStore([picture(tmp_path / f"{n}.png", seed=n) for n in range(12)]), fit_view(8))


def batches(count=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(12, (7,), generator=generator) for _ in range(count)]


def loaded(images, **options):
    return [(indices.tolist(), seen) for indices, seen in Loader(images, batches(), **options)]


def equal(first, second):
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in zip(first, second, strict=True))


def test_batches_come_in_order_and_with_their_images(files):
    found = loaded(files)
    assert [indices for indices, _ in found] == [indices.tolist() for indices in batches()]
    assert all(torch.equal(seen, files[torch.tensor(indices)]) for indices, seen in found)


@pytest.mark.parametrize("kind", ["files", "tensor"])
def test_random_views_do_not_depend_on_workers_or_prefetching(files, kind):
    images = files if kind == "files" else files.with_view(fit_view(16))[0:12]
    first = loaded(images, view=RANDOM, seed=3, workers=1, prefetch=0)
    for workers, prefetch in ((2, 2), (5, 1), (3, 9)):
        assert equal(first, loaded(images, view=RANDOM, seed=3, workers=workers, prefetch=prefetch))
    assert not equal(first, loaded(images, view=RANDOM, seed=4))
    assert first[0][1].shape == (7, 3, 8, 8)


def test_a_resumed_loader_goes_on_with_the_same_images(files):
    whole = loaded(files, view=RANDOM, seed=1)
    rest = [(indices.tolist(), seen) for indices, seen in Loader(files, batches()[3:], view=RANDOM, seed=1, first=3)]
    assert equal(whole[3:], rest)


def test_an_image_twice_in_a_batch_is_cropped_twice(files):
    _, seen = next(iter(Loader(files, [torch.tensor([4, 4])], view=RANDOM)))
    assert not torch.equal(seen[0], seen[1])


def test_prefetching_asks_for_as_many_batches_as_said(files):
    for prefetch in (0, 3):
        asked = []
        stream = (asked.append(number) or indices for number, indices in enumerate(batches(9)))
        loader = iter(Loader(files, stream, prefetch=prefetch))
        for taken in range(1, 4):
            next(loader)
            assert len(asked) == taken + prefetch
        loader.close()


def test_endless_batches_and_no_threads_left_behind(files):
    def endless():
        while True:
            yield torch.arange(4)

    before = threading.active_count()
    loader = iter(Loader(files, endless(), workers=2))
    assert len(list(islice(loader, 6))) == 6
    loader.close()
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(timeout=5)
    assert threading.active_count() <= before


def test_tensors_and_features_without_a_view_are_indexed():
    digits = load_dataset("digits")
    ((indices, seen),) = Loader(digits.images, [torch.tensor([5, 3])])
    assert torch.equal(seen, digits.images[indices])
    ((_, vectors),) = Loader(torch.rand(4, 2), [torch.tensor([1])])
    assert vectors.shape == (1, 2)


def test_a_file_that_vanishes_stops_the_loader_with_its_name(files):
    files.files[2].unlink()
    with pytest.raises(EquimetricError, match=r"an image cannot be read: .*2.png"):
        list(Loader(files, [torch.arange(12)]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "workers must be at least 1"),
        ({"prefetch": -1}, "prefetch must be 0 or more"),
        ({"view": View(None, CenterCrop(1))}, "feature vectors take no view"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(EquimetricError, match=message):
        Loader(torch.rand(4, 2), [], **options)
    assert list(Loader(torch.zeros(1, 1, 4, 4, dtype=torch.uint8), [], view=View(None, RandomCrop(2)))) == []
