"""Occupancy against values that NVIDIA published, and against CUDA's own header where
it is installed.
"""

import random
import subprocess
from pathlib import Path

import pytest

from kerneltrace.judge.occupancy import capabilities, limits, occupancy

HEADER = next(Path("/usr/local").glob("cuda*/include/cuda_occupancy.h"), None)


# CUDA C++ Best Practices Guide, 10.1 "Calculating Occupancy", of compute capability
# 7.0: an SM has 65,536 registers and room for 2,048 threads, so 32 registers a thread
# allow 100%; 128 threads a block with 37 registers give 75% (12 blocks), 320 threads
# with 37 registers give 63% (4 blocks).
@pytest.mark.parametrize(
    ("block", "registers", "blocks", "percent"),
    [(256, 32, 8, 100), (128, 37, 12, 75), (320, 37, 4, 63)],
)
def test_the_examples_of_the_best_practices_guide(block, registers, blocks, percent):
    room = occupancy(block, registers=registers, compute_capability=(7, 0))
    assert room.blocks_per_sm == blocks
    assert int(100 * room.fraction + 0.5) == percent


# NVIDIA's tuning guides, "Occupancy": warps an SM, blocks an SM, shared memory an SM
# and a block (KiB).
@pytest.mark.parametrize(
    ("capability", "warps", "blocks", "per_sm", "per_block"),
    [
        ((7, 5), 32, 16, 64, 64),
        ((8, 0), 64, 32, 164, 163),
        ((8, 6), 48, 16, 100, 99),
        ((9, 0), 64, 32, 228, 227),
        ((12, 0), 48, 24, 100, 99),
    ],
)
def test_the_limits_are_those_of_the_tuning_guides(
    capability, warps, blocks, per_sm, per_block
):
    sm = limits(capability)
    assert (sm.max_warps_per_sm, sm.max_blocks_per_sm, sm.registers_per_sm) == (
        warps,
        blocks,
        65536,
    )
    assert (sm.shared_bytes_per_sm, sm.shared_bytes_per_block) == (
        per_sm * 1024,
        per_block * 1024,
    )


def test_each_resource_can_be_the_limit_and_several_at_once():
    def limited(block, registers, shared_bytes=0, cc=(8, 0)):
        return occupancy(
            block, registers=registers, shared_bytes=shared_bytes, compute_capability=cc
        ).limited_by

    assert limited(256, 16) == ("warps",)
    assert limited(32, 16) == ("blocks",)
    assert limited(256, 64) == ("registers",)
    assert limited(256, 16, 48 * 1024) == ("shared memory",)
    assert limited(64, 32) == ("warps", "blocks", "registers")


def test_the_reserved_kibibyte_and_the_portions_count():
    def blocks(shared_bytes, cc):
        return occupancy(
            32, registers=16, shared_bytes=shared_bytes, compute_capability=cc
        ).blocks_per_sm

    assert blocks(81 * 1024, (8, 0)) == 2
    assert blocks(81 * 1024 + 1, (8, 0)) == 1
    assert blocks(32 * 1024, (7, 5)) == 2  # nothing is reserved before 8.0


def test_a_block_is_a_number_or_extents_and_the_answer_reads():
    room = occupancy((16, 16), registers=40, compute_capability=(9, 0))
    assert room == occupancy(256, registers=40, compute_capability=[9, 0])
    assert str(room).startswith(
        "75% occupancy: 6 blocks, 48 of 64 warps an SM (compute capability 9.0)."
        " Limited by "
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"block": 1025}, "at most 1,024 threads, got 1,025"),
        ({"block": (32, 64)}, "got 2,048. Launch more blocks"),
        ({"registers": 256}, "at most 255 registers a thread, got 256"),
        (
            {"block": 1024, "registers": 65},
            "takes 73,728 registers, and an SM has 65,536: the launch fails",
        ),
        (
            {"shared_bytes": 163 * 1024 + 1},
            "at most 166,912 B of shared memory a block .49,152 B unless",
        ),
        ({"compute_capability": (5, 0)}, r"out of \(3, 7\), .*; got \(5, 0\)"),
    ],
)
def test_what_no_gpu_can_launch_is_one_clear_error(arguments, words):
    with pytest.raises(ValueError, match=words):
        occupancy(
            **{"block": 256, "registers": 32, "compute_capability": (8, 0)} | arguments
        )


def test_every_compute_capability_has_a_row():
    assert len(capabilities()) == 15


DRIVER = """
#include <cstdio>
#include <cstring>
#include "cuda_occupancy.h"
int main() {
    int major, minor, threads, warps, registers, block; size_t per_sm, per_block, reserved, shared;
    while (scanf("%d %d %d %zu %zu %zu %d %d %zu", &major, &minor, &warps, &per_sm, &per_block, &reserved,
                 &block, &registers, &shared) == 9) {
        cudaOccDeviceProp p; memset(&p, 0, sizeof p);
        p.computeMajor = major; p.computeMinor = minor; p.maxThreadsPerBlock = 1024; p.warpSize = 32; p.numSms = 1;
        p.maxThreadsPerMultiprocessor = 32 * warps; p.regsPerBlock = p.regsPerMultiprocessor = 65536;
        p.sharedMemPerBlock = 49152; p.sharedMemPerMultiprocessor = per_sm; p.sharedMemPerBlockOptin = per_block;
        p.reservedSharedMemPerBlock = reserved;
        cudaOccFuncAttributes f; memset(&f, 0, sizeof f);
        f.maxThreadsPerBlock = 1024; f.numRegs = registers; f.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        f.maxDynamicSharedSizeBytes = shared; f.numBlockBarriers = 1;
        cudaOccDeviceState s; memset(&s, 0, sizeof s); s.carveoutConfig = SHAREDMEM_CARVEOUT_DEFAULT;
        cudaOccResult r; memset(&r, 0, sizeof r);
        int failed = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &f, &s, block, shared);
        printf("%d\\n", failed ? -failed : r.activeBlocksPerMultiprocessor);
    }
}
"""


@pytest.mark.needs("g++")
@pytest.mark.skipif(
    HEADER is None, reason="needs CUDA's header, of a CUDA toolkit in /usr/local"
)
def test_hundreds_of_random_cases_equal_cudas_own_header(tmp_path):
    (tmp_path / "driver.cpp").write_text(DRIVER)
    command = [
        "g++",
        "-w",
        "-I",
        HEADER.parent,
        tmp_path / "driver.cpp",
        "-o",
        tmp_path / "driver",
    ]
    subprocess.run(command, check=True)
    rng = random.Random(0)
    cases = [
        (
            cc,
            rng.randint(1, 1024),
            rng.randint(16, 255),
            rng.choice([0, rng.randint(0, sm.shared_bytes_per_block)]),
        )
        for cc, sm in capabilities().items()
        if cc >= (7, 0)  # what this version of the header knows
        for _ in range(100)
    ]
    lines = []
    for cc, *rest in cases:
        sm = limits(cc)
        shared = (
            sm.shared_bytes_per_sm,
            sm.shared_bytes_per_block,
            sm.reserved_shared_bytes_per_block,
        )
        lines.append(" ".join(map(str, (*cc, sm.max_warps_per_sm, *shared, *rest))))
    completed = subprocess.run(
        [tmp_path / "driver"],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = [int(line) for line in completed.stdout.split()]
    assert theirs == [ours(*case) for case in cases]
    assert 0 in theirs
    assert max(theirs) > 16


def ours(cc, block, registers, shared_bytes):
    """Blocks an SM, 0 for a launch that fails."""
    try:
        room = occupancy(
            block, registers=registers, shared_bytes=shared_bytes, compute_capability=cc
        )
    except ValueError as error:
        return 0 if "the launch fails" in str(error) else None
    return room.blocks_per_sm
