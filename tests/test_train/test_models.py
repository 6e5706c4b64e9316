import pytest
import torch
from torch.nn import functional

from exercises.nb09.resnet9 import ResNet9
from labkit.core.errors import LabError
from labkit.train.models import SimpleCNN, SmallGPT

pytestmark = pytest.mark.slow  # makes networks and takes steps


def parameters(model):
    return sum(p.numel() for p in model.parameters())


def tiny_gpt():
    torch.manual_seed(0)
    return SmallGPT(vocab=11, layers=2, heads=2, width=8, context=16)


def test_simple_cnn_has_the_parameters_counted_by_hand():
    convolutions = (3 * 25 + 1) * 6 + (6 * 25 + 1) * 16
    linears = (400 + 1) * 120 + (120 + 1) * 84 + (84 + 1) * 10
    assert parameters(SimpleCNN()) == convolutions + linears == 62_006
    assert (
        parameters(SimpleCNN(in_channels=1, classes=2)) == 62_006 - 2 * 25 * 6 - 85 * 8
    )


def test_resnet9_has_the_parameters_counted_by_hand():
    pairs = [
        (3, 64),
        (64, 128),
        (128, 128),
        (128, 128),
        (128, 256),
        (256, 512),
        (512, 512),
        (512, 512),
    ]
    convolutions = sum(9 * c_in * c_out for c_in, c_out in pairs)
    norms = sum(2 * c_out for _, c_out in pairs)
    assert parameters(ResNet9()) == convolutions + norms + 512 * 10 == 6_573_120


def test_small_gpt_has_the_parameters_counted_by_hand():
    width = 8
    vocab = 11
    context = 16
    layers = 2
    attention = width * 3 * width + 3 * width + width * width + width
    mlp = width * 4 * width + 4 * width + 4 * width * width + width
    norms = 4 * width
    expected = (
        vocab * width + context * width + layers * (attention + mlp + norms) + 2 * width
    )
    assert parameters(tiny_gpt()) == expected


def test_small_gpt_at_gpt2s_size_has_gpt2s_parameters():
    with torch.device("meta"):
        gpt2 = SmallGPT(50_257, layers=12, heads=12, width=768, context=1024)
    assert parameters(gpt2) == 124_439_808


@pytest.mark.parametrize(
    "model", [SimpleCNN(), ResNet9()], ids=["SimpleCNN", "ResNet9"]
)
def test_gradients_reach_every_parameter_of_an_image_model(model):
    torch.manual_seed(0)
    functional.cross_entropy(
        model(torch.rand(8, 3, 32, 32)), torch.arange(8)
    ).backward()
    assert [
        name
        for name, p in model.named_parameters()
        if p.grad is None or not p.grad.any()
    ] == []


def test_gradients_reach_every_parameter_of_small_gpt():
    model = tiny_gpt()
    tokens = torch.randint(11, (4, 17))
    functional.cross_entropy(
        model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
    ).backward()
    assert [
        name
        for name, p in model.named_parameters()
        if p.grad is None or not p.grad.any()
    ] == []


def test_a_later_token_does_not_change_earlier_logits():
    model = tiny_gpt().eval()
    tokens = torch.randint(11, (1, 16))
    changed = tokens.clone()
    changed[0, 9] = (tokens[0, 9] + 1) % 11
    before = model(tokens)
    after = model(changed)
    torch.testing.assert_close(after[:, :9], before[:, :9])
    assert (after[:, 9:] != before[:, 9:]).any(dim=2).all()


def test_a_wrong_image_shape_says_which_call_gives_the_right_one():
    with pytest.raises(
        LabError,
        match=(
            r"shape \(N, 3, 32, 32\), got \(4, 1, 8, 8\); lab.data.digits\(size=32,"
            r" channels=3\)"
        ),
    ):
        SimpleCNN()(torch.zeros(4, 1, 8, 8))


def test_a_width_that_heads_do_not_divide_is_refused_with_the_next_one():
    with pytest.raises(LabError, match="got width 10 and 4 heads; try width 12"):
        SmallGPT(vocab=11, layers=1, heads=4, width=10, context=4)
