"""Plausible wrong answers of notebook 17: number -> (answer, words the check must say, misconception).

Each is an answer to the case that the notebook shows first.
"""

from collections import Counter

from exercises.nb17.clinic import case

HIDDEN, GUESSED, KIND = "symptom-for-cause", "alarm-names-the-cause", "result-of-another-kind"
OTHER, UNEQUAL = "changes-the-training", "mean-of-unequal-parts"
SEEDS = {
    "17.2": 1,
    "17.3a": 1,
    "17.3b": 1,
    "17.4a": 4,
    "17.4c": 5,
    "17.5a": 3,
    "17.5b": 0,
    "17.6": 51,
}


def answers(number, cause, *mends, causes=(), others=()):
    """The right cause with mends that don't mend, then other causes with mends that may."""
    pairs = [(cause, *mend) for mend in mends] + [
        (c, m, words, GUESSED) for c, m, words in causes
    ]
    one = case(number, SEEDS[number])
    return [
        *((one.answer(cause=c, mend=m, sure=0.5), words, name) for c, m, words, name in pairs),
        *others,
    ]


NAN, COUNT, DRIFT = (
    "float16 overflows",
    "the loss is divided by a wrong count",
    "ranks have different weights",
)
HANG, MEMORY, CPU = "a rank calls another collective", "memory is in pieces", "the CPU computes"
SLOW, LOADER, RATE = (
    "one GPU is slow",
    "the loader is too slow",
    "the learning rate is too high",
)
IMAGES, NET, LARGE = "bad images", "the network is slow", "the model is too large for the GPU"
SUM = {"divide_by": "images of all ranks"}


def quiet(call, gather):
    """Prints the difference, and goes on into the collective that others don't call."""
    if len(set(gather(call))) > 1:
        print("calls differ", call)


def alone(call, gather):
    """Raises on the ranks that are in the minority, and leaves the others waiting."""
    calls = gather(call)
    if calls.count(call) < len(calls) / 2:
        raise RuntimeError(f"rank {calls.index(call)} calls {call}")


def names_only(call, gather):
    """Compares names, not shapes."""
    names = [one[0] for one in gather(call)]
    usual = Counter(names).most_common(1)[0][0]
    if odd := [rank for rank, name in enumerate(names) if name != usual]:
        raise RuntimeError(f"ranks {odd} differ")


def trusts_rank_0(call, gather):
    """Compares all with rank 0, which may be the odd one."""
    calls = gather(call)
    if odd := [rank for rank, one in enumerate(calls) if one != calls[0]]:
        raise RuntimeError(f"ranks {odd} differ")


def some_gather(call, gather):
    """Gathers only before an all-reduce: a rank that is at a barrier never joins it."""
    if call[0] == "all_reduce" and len(set(gather(call))) > 1:
        raise RuntimeError("calls differ")


def always(call, gather):
    """Raises whenever it is asked."""
    raise RuntimeError(f"calls: {gather(call)}")


def knows_its_calls(call, gather):
    """Takes a tensor of a size that it doesn't know for a mistake."""
    calls = gather(call)
    usual = Counter(calls).most_common(1)[0][0]
    odd = [
        rank for rank, one in enumerate(calls) if one != usual or one[1] not in ((7019,), ())
    ]
    if odd:
        raise RuntimeError(f"ranks {odd} differ")


def returns(call, gather):
    """Says whether calls are equal, which nobody reads."""
    return len(set(gather(call))) == 1


WRONG = {
    "17.2": answers(
        "17.2", DRIFT,
        ({"copy_weights": "every step"}, "times as many bytes", HIDDEN),
        ({"leave_out_node": 1}, "so it is another training", OTHER),
        ({"divide_by": "rows"}, "The ranks' weights differ", UNEQUAL),
        ({"image_cache": "verified"}, "The ranks' weights differ", HIDDEN),
        causes=[(COUNT, SUM, "it is healthy, and all ranks' checksums are equal")],
    ),
    "17.3a": answers(
        "17.3a", NAN,
        ({"bad_gradients": "set to zero"}, "The loss is NaN", HIDDEN),
        ({"bad_gradients": "skip the step"}, "steps change no weights", HIDDEN),
        ({"clip_norm": 1.0}, "The loss is NaN", HIDDEN),
        ({"learning_rate": 0.01}, "The weights end elsewhere", OTHER),
        ({"replace_node": 0}, "The loss is NaN", HIDDEN),
        ({"precision": "float8"}, "Expected precision to be", KIND),
        ({"presicion": "bfloat16"}, "did you mean precision", KIND),
        ({"precision": "bfloat16", "clip_norm": 1.0}, "changes one setting", KIND),
        causes=[(RATE, {"precision": "bfloat16"}, "last week's at step 0, then"), ("nan", {"rows": 8}, "There is no cause"),
                ([NAN, RATE], {"precision": "bfloat16"}, "last week's at step 0, then")],
    ),
    "17.3b": answers(
        "17.3b", IMAGES,
        ({"bad_gradients": "skip the step"}, "The weights end elsewhere", HIDDEN),
        ({"leave_out_node": 0}, "so it is another training", OTHER),
        ({"clip_norm": 1.0}, "The weights end elsewhere", HIDDEN),
        ({"image_cache": True}, "Expected image_cache to be", KIND),
        causes=[(RATE, {"image_cache": "verified"}, "out of a healthy run's range"),
                (DRIFT, {"start_weights": "rank 0"}, "their checksums differ from rank to rank")],
    ),
    "17.4a": answers(
        "17.4a", HANG,
        ({"time_limit_minutes": 30}, "it waited 30 minutes for others", HIDDEN),
        ({"replace_node": 0}, "It ends after", HIDDEN),
        ({"leave_out_node": 2}, "It ends after", HIDDEN),
        ({"time_limit_minutes": 60}, "1 to 30", KIND),
        causes=[("a GPU is lost", {"replace_node": 3}, "an Xid that ends in a lost GPU")],
    ),
    "17.4b": [
        (quiet, "has to raise too", HIDDEN),
        (alone, "has to raise too", "ranks-share-by-themselves"),
        (names_only, "a tensor of another shape", "other-formula"),
        (trusts_rank_0, "has to name it first", GUESSED),
        (some_gather, "call it on every rank", "ranks-share-by-themselves"),
        (always, "call the same, and it raises", "other-formula"),
        (knows_its_calls, "after 0 steps, where all ranks call the same", "hard-coded"),
        (returns, "has to raise too", KIND),
        (True, "Expected a function", KIND),
    ],
    "17.4c": answers(
        "17.4c", MEMORY,
        ({"rows": 16}, "so it is another training", OTHER),
        ({"empty_cache": True}, "takes memory from the driver", HIDDEN),
        ({"precision": "bfloat16"}, "lies in holes", HIDDEN),
        ({"replace_node": 1}, "out of memory", HIDDEN),
        ({"recompute": True}, "A step takes", HIDDEN),
        ({"leave_out_node": 0}, "out of memory", OTHER),
        causes=[("memory leaks", {"allocator": "expandable segments"}, "more of it in use"),
                (LARGE, {"recompute": True}, "exceed the GPU")],
    ),
    "17.5a": answers(
        "17.5a", CPU,
        ({"loader_workers": 16}, "A step takes", HIDDEN),
        ({"replace_node": 2}, "A step takes", HIDDEN),
        ({"precision": "bfloat16"}, "A step takes", HIDDEN),
        causes=[(SLOW, {"update_driver": True}, "one clock is low"),
                (LOADER, {"loader_workers": 4}, "none lies ready")],
    ),
    "17.5b": answers(
        "17.5b", SLOW,
        ({"loader_workers": 4}, "A step takes", HIDDEN),
        ({"leave_out_node": 0}, "so it is another training", OTHER),
        ({"rows": 16}, "so it is another training", OTHER),
        ({"replace_node": 4}, "0 to 3", KIND),
        ({"update_driver": True}, "A step takes", HIDDEN),
        causes=[(NET, {"nccl_net": "IB"}, "all ranks communicate longer")],
    ),
    "17.6": answers(
        "17.6", [NET, COUNT], (SUM, "A step takes", HIDDEN),
        (SUM | {"rows": 8}, "so it is another training", OTHER),
        (SUM | {"loader_workers": 4, "precision": "bfloat16"}, "at most 2 settings", KIND),
        causes=[(NET, SUM, "That isn't all of the cause"), ([CPU, COUNT], SUM, "no GPU is busy"),
                (NET, SUM | {"replace_node": 0}, "The evaluation of the last checkpoint isn't")],
        others=[
        (case("17.2", 1).answer(cause=DRIFT, mend={"reduced": "every layer"}, sure=1), "of case 17.6", KIND),
        (case("17.6", 51).answer(cause=[NET, COUNT], mend=SUM, sure=80), "a probability from 0 to 1", KIND),
        ({"cause": DRIFT, "mend": {"start_weights": "rank 0"}}, "answer(...) of case 17.6", KIND),
        ],
    ),
}  # fmt: skip
