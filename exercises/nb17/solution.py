"""Solutions of notebook 17, one block a case, each with the evidence that shows it."""

# %% 17.3a
# "activations": one layer's largest number comes near 65,504, where float16 ends, and is NaN
# after. bfloat16 has float32's exponents: https://arxiv.org/abs/1905.12322
cause = "float16 overflows"
mend = {"precision": "bfloat16"}

# %% 17.3b
# "weights": all ranks are equal; "one rank": only one rank is right; "batches": as many rows,
# not as many images. A library had it for years: https://huggingface.co/blog/gradient_accumulation
cause = "the loss is divided by a wrong count"
mend = {"divide_by": "images of all ranks"}

# %% 17.3c
# "weights": equal before step 0, different after. Copying the weights in every step would hide it:
# rank 0's images alone would train the layer whose gradients aren't added up.
cause = "ranks have different weights"
mend = {"reduced": "every layer"}

# %% 17.4a
# "stacks": one rank waits for a checkpoint's files, the others in the all-reduce of the gradients.
cause = "a rank calls another collective"
mend = {"on_all_ranks": "checkpoint"}

# %% 17.4b
# "memory": the holes together are larger than what was asked for, and none of them is.
# https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf
# Giving memory back before each step costs more: https://github.com/NVIDIA-NeMo/NeMo/pull/9061
cause = "memory is in pieces"
mend = {"allocator": "expandable segments"}

# %% 17.5a
# "GPU utilisation": one rank's GPU does nothing; "environment": its driver knows CUDA 12.4 only.
cause = "the CPU computes"
mend = {"torch_cuda": "12.4"}

# %% 17.5b
# "GPU utilisation": one clock is a fifth of the others, and their GPUs wait.
cause = "one GPU is slow"
mend = {"replace_node": 0}

# %% 17.5c
# "batches": none lies ready; two workers need three steps' time for a batch, so six keep up.
cause = "the loader is too slow"
mend = {"loader_workers": 6}

# %% 17.6
# "weights": one rank's differ before step 0: it found no checkpoint.
cause = "ranks have different weights"
mend = {"start_weights": "rank 0"}
