"""What notebook 21 counts of Pallas kernels and compiled programs, and the published
speeds that it compares.
"""

import pytest

from exercises.nb21 import collectives, speeds, traffic
from gpufacts import find
from labkit.core.errors import BadArgument


def right_blocks(i, j, k):
    return (i, k), (k, j), (i, j)


@pytest.mark.parametrize("grid", [(8, 8, 8), (2, 3, 4), (3, 1, 2)])
def test_a_block_moves_where_its_index_changes(grid):
    rows, columns, terms = grid
    steps = rows * columns * terms
    assert traffic.transfers(right_blocks, grid) == {
        "x": steps,
        "w": steps,
        "the result": rows * columns,
    }
    # with k in the middle x waits for all columns, and the result for none
    assert traffic.transfers(right_blocks, grid, order=(0, 2, 1))["x"] == rows * terms


def test_blocks_of_an_eighth_move_each_input_eight_times():
    ratio = traffic.moved_over_needed(right_blocks, side=1024, tile=128)
    assert ratio == pytest.approx((8 + 8 + 1) / 3)
    assert traffic.moved_over_needed(right_blocks, side=64, tile=64) == 1
    with pytest.raises(BadArgument, match="order of the axes 0, 1 and 2"):
        traffic.transfers(right_blocks, (2, 2, 2), order=(0, 1))


def test_what_a_program_sends_is_counted_by_whole_tensors():
    program = """
  %a = f32[8,4]{1,0} all-gather(f32[1,4]{1,0} %p), dimensions={0}
  %b = (f32[16]{0}, bf16[2,2]{1,0}) all-reduce(f32[16]{0} %x, bf16[2,2]{1,0} %y)
  %c = f32[2]{0} reduce-scatter(f32[16]{0} %z), dimensions={0}
  %d = pred[] all-reduce(pred[] %q)
"""
    n_bytes = collectives.exchanged(program)
    assert n_bytes == {"all-gather": 128, "all-reduce": 73, "reduce-scatter": 64}
    assert collectives.sent(n_bytes) == pytest.approx(7 / 8 * (128 + 2 * 73 + 64))


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("mixed bfloat16 with float32 gradients", 16),
        ("mixed float16", 16),
        ("autocast float8", 8),
        ("mixed mxfp8", 8),
        ("mixed nvfp4", 4),
    ],
)
def test_the_bits_of_a_published_step_are_those_that_its_products_multiply(dtype, bits):
    assert speeds.bits_of(dtype) == bits


def test_no_published_step_in_16_bits_is_faster_than_its_chip():
    for row in speeds._rows():
        if speeds.bits_of(row.by.layout.dtype) == 16:
            chip = find(row.by.cluster.gpu.name)
            flop_per_s = row.published * row.by.model.flop_per_token
            assert flop_per_s < chip.tensor_flop_per_s["bfloat16"], row.label


def test_the_claim_rests_on_16_bits_of_tpu_and_gpu():
    gains = speeds.gains()
    assert len(gains) == len(speeds.MODELS)
    assert all("TPU" not in name and "GB300" not in name for name in gains)
    assert all(ratio.origin == "published" for ratio in gains.values())
