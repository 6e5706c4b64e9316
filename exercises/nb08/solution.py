"""Solutions of notebook 08, one block an exercise."""


# %% 08.2
def throughput(prepare_s, train_s, workers, cores, train_cores):
    if workers == 0:
        return 1 / (prepare_s + train_s)
    # the last is what all cores together can do
    return min(workers / prepare_s, 1 / train_s, cores / (prepare_s + train_cores * train_s))


# %% 08.4
def own_shards(shards, rank, ranks, worker, workers):
    return shards[rank::ranks][worker :: max(workers, 1)]


# %% 08.6
def shift_batch(images, most):
    n, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (most,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)  # a view: nothing is copied
    down, right = torch.randint(0, 2 * most + 1, (2, n), device=images.device)
    return windows[torch.arange(n, device=images.device), :, down, right]


# %% 08.6b
def prefetched(batches, cuda):
    copies = cuda.Stream()
    before = None
    for batch in batches:
        with cuda.stream(copies):
            coming = batch.pin_memory().to("cuda", non_blocking=True)
        if before is not None:
            yield before
        cuda.current_stream().wait_stream(copies)
        coming.record_stream(cuda.current_stream())
        before = coming
    if before is not None:
        yield before


# %% 08.7
def pipeline(shards, batch):
    cache = lab.data.decoded_cache(shards, size=32)
    pixels, labels = [torch.from_numpy(part).to(machine.device) for part in cache]

    def epoch():
        # four batches at a time: fewer, larger calls, so that what a call costs is shared
        for rows in torch.randperm(len(labels), device=machine.device).split(4 * batch):
            images = shift_batch(pixels[rows], 4).float().div_(255)
            yield from zip(images.split(batch), labels[rows].split(batch), strict=True)

    return epoch
