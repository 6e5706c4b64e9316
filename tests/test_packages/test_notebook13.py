"""Notebook 13's own functions on real ranks: ring attention and a layer of experts,
equal to one process.
"""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from labkit.lesson import exercise_files
from ranks import launch
from tests.helpers import code_cells, notebook_paths
from tests.selection import sampled

# double precision: what differs is the order of sums
CLOSE = {"rtol": 1e-9, "atol": 1e-12}
(PATH,) = (path for path in notebook_paths() if path.name.startswith("13"))


def of_notebook():
    """The notebook's imports and functions that these tests run, by name; the
    exercise's by its solution.
    """
    names = (
        "import ",
        "def pass_on",
        "def attend",
        "def moved",
        "def ring_attention",
        "def exchange",
        "def expert_",
    )
    space = {"__name__": "notebook13"}
    for source in (*code_cells(PATH)[1:], exercise_files.solutions("13")["13.8"]):
        if source.startswith((*names, "def merge")):
            exec(source, space)
    # The ranks have their own; in this process other tests may have added to them.
    del space["__builtins__"]
    return space


SPACE = of_notebook()


def sequence(chunks, tokens):
    draw = torch.Generator().manual_seed(3)
    return torch.randn(3, chunks, 2, tokens, 4, dtype=torch.float64, generator=draw)


def on_ring(space, owned, tokens, merge):
    dist.init_process_group("gloo")
    mine = list(owned[dist.get_rank()])
    q, k, v = (x[mine].requires_grad_() for x in sequence(sum(map(len, owned)), tokens))
    out = space["ring_attention"](q, k, v, owned, space["attend"], merge)
    out.square().sum().backward()
    return torch.stack([out.detach(), q.grad, k.grad, v.grad])


def attention_in_one_process(chunks, tokens):
    q, k, v = (
        x.transpose(0, 1).flatten(1, 2).requires_grad_()
        for x in sequence(chunks, tokens)
    )
    out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    out.square().sum().backward()
    parts = torch.stack([out.detach(), q.grad, k.grad, v.grad])
    return parts.unflatten(2, (chunks, tokens)).transpose(1, 2)


CASES = [  # which chunks each rank owns, and the tokens of a chunk
    pytest.param([(0, 7), (1, 6), (2, 5), (3, 4)], 5, id="zigzag"),
    pytest.param([(0,), (1,), (2,)], 1, id="one chunk a rank"),
    pytest.param([(0, 4), (1, 5), (2, 6), (3, 7)], 5, id="every fourth"),
]


@pytest.mark.parametrize(("owned", "tokens"), sampled(CASES, 2))
def test_ring_attention_is_attention_forward_and_backward(owned, tokens):
    found = torch.cat(
        launch(on_ring, len(owned), SPACE, owned, tokens, SPACE["merge"])[:], dim=1
    )
    right = attention_in_one_process(sum(map(len, owned)), tokens)[
        :, [chunk for some in owned for chunk in some]
    ]
    assert torch.allclose(found, right, **CLOSE)


# a row for each rank; nobody chooses rank 1
WIDTH = 6
CHOSEN = [[0, 0, 0, 0, 0], [2, 0, 2, 0, 2], [0, 2, 0, 2, 0]]


def experts_and_tokens():
    torch.manual_seed(9)
    experts = [
        nn.Sequential(nn.Linear(WIDTH, 8), nn.GELU(), nn.Linear(8, WIDTH)).double()
        for _ in CHOSEN
    ]
    return experts, torch.randn(3, 5, WIDTH, dtype=torch.float64)


def on_experts(space):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    experts, x = experts_and_tokens()
    expert = experts[rank]
    x = x[rank].requires_grad_()
    y = space["expert_layer"](x, torch.tensor(CHOSEN[rank]), expert)
    y.square().sum().backward()
    return y.detach(), x.grad, expert[0].weight.grad


def test_tokens_come_back_from_their_experts_in_their_own_places_and_so_do_gradients():
    experts, x = experts_and_tokens()
    x.requires_grad_()
    y = torch.stack(
        [
            torch.stack(
                [experts[e](row) for e, row in zip(CHOSEN[i], x[i], strict=True)]
            )
            for i in range(3)
        ]
    )
    y.square().sum().backward()
    for rank, (found, gradient, of_expert) in enumerate(launch(on_experts, 3, SPACE)):
        assert torch.allclose(found, y[rank], **CLOSE)
        assert torch.allclose(gradient, x.grad[rank], **CLOSE)
        right = experts[rank][0].weight.grad
        assert torch.allclose(
            of_expert, torch.zeros_like(of_expert) if right is None else right, **CLOSE
        )
