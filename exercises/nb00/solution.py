"""Solutions of notebook 00, one block an exercise."""

# ruff: noqa: F821 - each block runs in the notebook, after the cells above it

# %% 00.1
numbers_per_ms = ceilings.copy_bytes_per_s / 1000 / 8  # 4 bytes read and 4 written a number


# %% 00.3
def efficiency_percent(one_thread_s, all_threads_s, threads):
    """Percent of the ideal speed-up, from the seconds per step with one thread and with all."""
    speedup = one_thread_s / all_threads_s
    return 100 * speedup / threads


# %% 00.5
def accuracy_by_digit(logits, labels):
    """Ten percentages, for 0 to 9: of the images with that label, how many are right."""
    right = logits.argmax(dim=1) == labels
    return [100 * right[labels == digit].float().mean().item() for digit in range(10)]


# %% 00.6
limit_images_per_s = matmul_rate / training_flop
