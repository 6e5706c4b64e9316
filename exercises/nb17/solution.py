"""Solutions of notebook 17, one block an exercise, each with the evidence that shows the cause."""

# %% 17.2
# "weights": equal before step 0, different after. Copying the weights in every step would hide it:
# rank 0's images alone would train the layer whose gradients aren't added up.
cause, sure = "ranks have different weights", 0.9
mend = {"reduced": "every layer"}

# %% 17.3a
# "activations": one layer's largest number comes near 65,504, where float16 ends, and is infinite
# after. bfloat16 has float32's exponents: https://arxiv.org/abs/1905.12322
cause, sure = "float16 overflows", 0.9
mend = {"precision": "bfloat16"}

# %% 17.3b
# "loader", 4 minutes: rank 1's pixels go from -1.4 to 0.6, all others' from -0.6 to 1.4.
# Another machine, which has its own copies, mends it too, and takes 5 minutes longer.
cause, sure = "bad images", 0.95
mend = {"image_cache": "verified"}

# %% 17.4a
# "logs": the watchdog found rank 2 in an all-reduce of one number, the others in one of 8,315. The
# flight recorder shows the same; "py-spy" names the function that only rank 2 is in: _mean_loss.
cause, sure = "a rank calls another collective", 0.95
mend = {"on_all_ranks": "logging"}


# %% 17.4b
# torch does the same with TORCH_DISTRIBUTED_DEBUG=DETAIL, for the price of a gather in every call:
# https://docs.pytorch.org/docs/stable/distributed.html#torch-distributed-debug
def agree(call, gather):
    calls = gather(call)
    usual = max(calls, key=calls.count)
    odd = [rank for rank, one in enumerate(calls) if one != usual]
    if odd:
        raise RuntimeError(f"ranks {odd} call {calls[odd[0]]}, the others {usual}")


# %% 17.4c
# "memory snapshot": the holes together are larger than what was asked for, and none of them is.
# https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf
# Giving memory back before each step costs more: https://github.com/NVIDIA-NeMo/NeMo/pull/9061
cause, sure = "memory is in pieces", 0.8
mend = {"allocator": "expandable segments"}

# %% 17.5a
# "nvidia-smi": no GPU is busy, driver 550, CUDA 13.0, which needs 580. Every CUDA 12 runs on a
# driver from 525 on: https://docs.nvidia.com/deploy/cuda-compatibility/
cause, sure = "the CPU computes", 0.95
mend = {"torch_cuda": "12.6"}

# %% 17.5b
# "nvidia-smi": one clock is a third of the others', and that GPU's SMs are always busy. All read 100 %.
cause, sure = "one GPU is slow", 0.95
mend = {"replace_node": 1}

# %% 17.6
# "NCCL log": one port runs at 10 Gb/s. What is left after that mend would be another training, so
# "weights", which are equal, and "one rank", which is right, name the second cause. A library had
# it for years: https://huggingface.co/blog/gradient_accumulation
cause, sure = ["the network is slow", "the loss is divided by a wrong count"], 0.8
mend = {"replace_node": 0, "divide_by": "images of all ranks"}
