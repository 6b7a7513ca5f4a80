import pytest
import torch

from equimetric.backbones import BACKBONES, InputConvention, build_backbone
from equimetric.data.transforms import prepare
from equimetric.errors import EquimetricError


def test_caffe_values_in_blue_green_red():
    orange = torch.tensor([200, 100, 50], dtype=torch.uint8).view(1, 3, 1, 1)
    values = build_backbone("bn_inception").convention.apply(orange)
    assert values.flatten().tolist() == [50 - 104, 100 - 117, 200 - 128]
    assert orange.flatten().tolist() == [200, 100, 50]


def test_efficientnet_lite_values():
    orange = torch.tensor([255, 127, 0], dtype=torch.uint8).view(1, 3, 1, 1)
    values = build_backbone("efficientnet_lite0").convention.apply(orange)
    assert values.flatten().tolist() == [1.0, 0.0, -127 / 128]


@pytest.mark.parametrize("channels", [1, 3])
def test_small_images_as_they_always_were(channels):
    images = torch.arange(256, dtype=torch.uint8).repeat(channels).view(1, channels, 16, 16)
    assert torch.equal(build_backbone("small_cnn", channels=channels).convention.apply(images), prepare(images))


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_values_of_the_pytorch_libraries(memory_format):
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    convention = InputConvention.of_unit_range(224, 256, mean, std)
    images = torch.randint(0, 256, (2, 3, 5, 7), dtype=torch.uint8).contiguous(memory_format=memory_format)
    expected = (images.double() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    values = convention.apply(images)
    torch.testing.assert_close(values, expected.float(), rtol=1e-5, atol=1e-5)
    assert values.is_contiguous(memory_format=memory_format)


def test_a_grey_image_is_repeated_where_colours_are_expected():
    convention = build_backbone("bn_inception", channels=1).convention
    grey = torch.randint(0, 256, (2, 1, 4, 4), dtype=torch.uint8)
    assert torch.equal(convention.apply(grey), convention.apply(grey.repeat(1, 3, 1, 1)))


def test_what_cannot_be_applied_is_said():
    convention = BACKBONES["small_cnn"].build(1).convention
    with pytest.raises(EquimetricError, match="uint8 images"):
        convention.apply(torch.zeros(1, 1, 4, 4))
    with pytest.raises(EquimetricError, match="have 3 channels and the network takes 1: convert them to grey"):
        convention.apply(torch.zeros(1, 3, 4, 4, dtype=torch.uint8))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 300, "resize": 256}, "size ≤ resize"),
        ({"size": 1, "resize": 1, "mean": (1.0,)}, "one value per channel"),
        ({"size": 1, "resize": 1, "std": (1.0, 0.0, 1.0)}, "above 0"),
        ({"size": 1, "resize": 1, "order": "gbr"}, "channel order"),
    ],
)
def test_a_convention_that_makes_no_sense(options, message):
    with pytest.raises(EquimetricError, match=message):
        InputConvention(**options)
