"""The published results as data: counts, known cells, names and filters."""

from collections import Counter

import pytest

from equimetric.data import DATASETS
from equimetric.errors import EquimetricError
from equimetric.evaluation import Metric
from equimetric.objectives import PUBLISHED, parse_method
from equimetric.published import PAPERS, read_results, results, select_results
from equimetric.published.names import find_backbone, find_dataset, find_metric, find_paper


def cell(**filters):
    (result,) = select_results(**filters)
    return result


def test_every_cell_of_the_papers_is_there():
    assert Counter(result.paper for result in read_results()) == {
        "reality-check": 270 + 27,
        "unbiased": 296,
        "unified-view": 194,
        "tcm": 54 + 42,
    }
    assert len(select_results(paper="reality-check", dataset="illustration")) == 27
    assert sum(result.doubtful for result in read_results()) == 19
    assert sum(result.value is None for result in read_results()) == 53


@pytest.mark.parametrize(
    ("metric", "variant", "value", "half_width"),
    [
        ("P@1", "concatenated", 68.13, 0.31),
        ("RP", "concatenated", 37.24, 0.28),
        ("MAP@R", "concatenated", 26.53, 0.29),
        ("P@1", "separated", 59.73, 0.40),
        ("RP", "separated", 31.98, 0.29),
        ("MAP@R", "separated", 21.18, 0.28),
    ],
)
def test_the_contrastive_rows_of_the_reality_check_on_cub(metric, variant, value, half_width):
    found = cell(paper="reality-check", dataset="cub", method="Contrastive", metric=metric, variant=variant)
    assert (found.value, found.half_width) == (value, half_width)
    assert (found.backbone, found.dim) == ("BN-Inception", 512 if variant == "concatenated" else 128)
    assert (found.our_method, found.our_options) == ("contrastive", {})
    assert (found.our_dataset, found.quoted, found.doubtful) == ("cub", False, False)


def test_cells_of_the_other_papers():
    proxies = cell(paper="unbiased", dataset="sop", method="Proxy-NCA", metric="NMI")
    assert (proxies.value, proxies.backbone, proxies.dim) == (88.93, "Inception-BN", 64)
    mined = cell(paper="unified-view", dataset="in_shop", method="RAW+VTHM", metric="R@10")
    assert (mined.value, mined.our_method) == (97.87, "raw_vthm")
    consistent = cell(paper="tcm", dataset="cub", method="RS@k + TCM", metric="opis", backbone="vit-b")
    assert (consistent.value, consistent.our_method) == (0.10, "recall_at_k_surrogate+tcm")


def test_losses_without_tcm_are_rows_of_their_own():
    plain = select_results(paper="tcm", method="SAP") + select_results(paper="tcm", method="RS@k")
    assert len(plain) == 42
    assert all(result.note.endswith("value with TCM less the printed change") for result in plain)
    one = cell(paper="tcm", dataset="cub", method="RS@k", metric="opis", backbone="vit-b")
    assert (one.value, one.our_method, one.our_options) == (0.44, "recall_at_k_surrogate", {})
    for result in plain:
        with_tcm = cell(
            paper="tcm",
            dataset=result.dataset,
            backbone=result.backbone,
            method=f"{result.method} + TCM",
            metric=result.metric,
        )
        assert with_tcm.value is not None
        assert with_tcm.note == result.note.partition(";")[0]


def test_quotations_are_not_measurements():
    found = select_results(paper="unbiased", dataset="cars", method="N-Pairs", metric="R@1")
    assert {result.quoted: result.value for result in found} == {True: 71.12, False: 71.18}


def test_illegible_cells_have_no_value_and_say_so():
    lost = [result for result in read_results() if "illegible" in result.doubt]
    assert len(lost) == 6
    assert {(result.paper, result.our_metric, result.value) for result in lost} == {("tcm", "opis", None)}


def test_what_they_are_called_here_exists():
    methods = {result.our_method for result in read_results() if result.our_method is not None}
    assert methods == {method for rows in PUBLISHED.values() for method, _ in rows.values()}
    for method in methods:
        assert parse_method(method)
    for dataset in {result.our_dataset for result in read_results()} - {None}:
        assert dataset in DATASETS
    for metric in {result.our_metric for result in read_results()} - {None}:
        assert Metric.parse(metric).name == metric
    unnamed = {result.metric for result in read_results() if result.our_metric is None}
    assert unnamed == {"mean change of R@1", "largest relative reduction of OPIS (%)"}


def test_only_untrained_rows_and_illustrations_have_no_method():
    unnamed = {result.method for result in read_results() if result.our_method is None}
    assert {name for name in unnamed if "embedding space" not in name and "correct" not in name} == {"Pretrained"}


@pytest.mark.parametrize(
    ("find", "names", "meant"),
    [
        (find_dataset, ("cub", "CUB", "CUB200", "cub_200_2011", "CUB-200-2011"), "CUB-200-2011"),
        (find_dataset, ("cars", "Cars196", "cars-196"), "Cars-196"),
        (find_dataset, ("sop", "online_products", "Stanford Online Products"), "SOP"),
        (find_dataset, ("in_shop", "In-Shop", "InShop"), "In-Shop"),
        (find_dataset, ("inaturalist", "iNat2018", "inaturalist_2018"), "iNaturalist-2018"),
        (find_metric, ("P@1", "R@1", "Recall@1", "recall@1", "precision@1"), "recall@1"),
        (find_metric, ("R@16", "recall@16"), "recall@16"),
        (find_metric, ("RP", "R-Precision", "r_precision"), "r_precision"),
        (find_metric, ("MAP@R", "map@r"), "map@r"),
        (find_metric, ("OPIS (1e-3)", "opis"), "opis"),
        (find_metric, ("10%-OPIS (1e-3)", "opis@10%"), "opis@10%"),
        (find_metric, ("precision@10", "auc", "map@10"), None),
        (find_backbone, ("bn_inception", "Inception-BN", "BN-Inception"), "BN-Inception"),
        (find_backbone, ("resnet50", "timm:resnet50", "ResNet-50"), "ResNet50"),
        (find_paper, ("Reality Check", "reality_check", "Musgrave"), "reality-check"),
    ],
)
def test_one_thing_under_all_its_names(find, names, meant):
    assert {find(name) for name in names} == {meant}


def test_filters_combine_and_take_our_names():
    ours = select_results(paper="reality-check", method="multi_similarity_miner", metric="recall@1")
    theirs = select_results(paper="Musgrave", method="ms+miner", metric="P@1")
    assert ours == theirs
    assert len(ours) == 6
    assert {result.backbone for result in select_results(backbone="bn_inception")} == {"BN-Inception", "Inception-BN"}
    assert len(select_results(dim=128, paper="reality-check")) == 135
    assert select_results(paper="tcm", dataset="in_shop") == ()


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"paper": "reality-chek"}, "did you mean 'reality-check'"),
        ({"dataset": "mnist"}, "unknown data set with published results 'mnist'"),
        ({"method": "contrastiv"}, "did you mean 'contrastive'"),
        ({"metric": "auc"}, "unknown metric with published results 'auc'"),
        ({"metric": "recall@3"}, "unknown metric with published results 'recall@3'"),
        ({"backbone": "vgg"}, "unknown backbone"),
        ({"variant": "concat"}, "did you mean 'concatenated'"),
        ({"papers": "tcm"}, "did you mean 'paper'"),
    ],
)
def test_an_unknown_name_is_an_error_that_names_the_nearest(filters, message):
    with pytest.raises(EquimetricError, match=message):
        select_results(**filters)


def test_a_data_frame_has_a_row_per_result_and_what_it_is_here():
    frame = results(paper="reality-check", dataset="sop", variant="separated", metric="map@r")
    assert len(frame) == 15
    row = frame.set_index("method").loc["SoftTriple"]
    assert (row["value"], row["half_width"]) == (40.92, 0.20)
    assert (row["our_method"], row["our_options"]) == ("softtriple", {"divisor": "unordered"})
    assert list(results(paper="tcm", dataset="in_shop").columns) == list(frame.columns)
    assert set(PAPERS) == set(results()["paper"])
