"""Plausible wrong answers of notebook 17: number -> (answer, words the check must say, misconception).

Each is an answer to the case that the notebook shows first.
"""

from exercises.nb17.clinic import case

HIDDEN, GUESSED, KIND = "symptom-for-cause", "alarm-names-the-cause", "result-of-another-kind"
OTHER, UNEQUAL = "changes-the-training", "mean-of-unequal-parts"


def answers(number, cause, *mends, causes=()):
    """The right cause with mends that don't mend, then other causes with mends that may."""
    wrong = [(case(number).answer(cause=cause, mend=mend), words, name) for mend, words, name in mends]
    return wrong + [(case(number).answer(cause=other, mend=mend), words, GUESSED) for other, mend, words in causes]


NAN, COUNT, DRIFT = "float16 overflows", "the loss is divided by a wrong count", "ranks have different weights"
HANG, MEMORY, CPU = "a rank calls another collective", "memory is in pieces", "the CPU computes"
SLOW, LOADER, RATE = "one GPU is slow", "the loader is too slow", "the learning rate is too high"

WRONG = {
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
        causes=[(RATE, {"precision": "bfloat16"}, "grow step by step"), ("nan", {"rows": 8}, "There is no cause")],
    ),
    "17.3b": answers(
        "17.3b", COUNT,
        ({"divide_by": "images of this rank"}, "The weights end elsewhere", UNEQUAL),
        ({"learning_rate": 0.2}, "The weights end elsewhere", OTHER),
        ({"copy_weights": "every step"}, "times as many bytes", HIDDEN),
        ({"leave_out_node": 0}, "so it is another training", OTHER),
        causes=[(DRIFT, {"start_weights": "rank 0"}, "they differ from rank to rank")],
    ),
    "17.3c": answers(
        "17.3c", DRIFT,
        ({"copy_weights": "every step"}, "The weights end elsewhere", HIDDEN),
        ({"start_weights": "rank 0"}, "The ranks' weights differ", HIDDEN),
        ({"leave_out_node": 1}, "so it is another training", OTHER),
        ({"divide_by": "rows"}, "The ranks' weights differ", UNEQUAL),
        causes=[(COUNT, {"reduced": "every layer"}, "is healthy")],
    ),
    "17.4a": answers(
        "17.4a", HANG,
        ({"time_limit_minutes": 30}, "Timed out waiting 6000ms", HIDDEN),
        ({"on_all_ranks": "evaluation"}, "It ends after", HIDDEN),
        ({"leave_out_node": 2}, "It ends after", HIDDEN),
        ({"time_limit_minutes": 60}, "1 to 30", KIND),
        causes=[("the network is slow", {"on_all_ranks": "checkpoint"}, "all ranks communicate longer")],
    ),
    "17.4b": answers(
        "17.4b", MEMORY,
        ({"rows": 16}, "so it is another training", OTHER),
        ({"empty_cache": True}, "takes memory from the driver", HIDDEN),
        ({"precision": "bfloat16"}, "lies in holes", HIDDEN),
        ({"replace_node": 1}, "out of memory", HIDDEN),
        ({"leave_out_node": 1}, "so it is another training", OTHER),
        causes=[("memory leaks", {"allocator": "expandable segments"}, "more of it in use")],
    ),
    "17.5a": answers(
        "17.5a", CPU,
        ({"loader_workers": 16}, "A step takes", HIDDEN),
        ({"stop_without_gpu": True}, "told to stop", HIDDEN),
        ({"leave_out_node": 3}, "so it is another training", OTHER),
        ({"replace_node": 2}, "A step takes", HIDDEN),
        ({"torch_cuda": "12.8"}, "A step takes", HIDDEN),
        causes=[(SLOW, {"replace_node": 3}, "one rank computes longer")],
    ),
    "17.5b": answers(
        "17.5b", SLOW,
        ({"replace_node": 1}, "A step takes", HIDDEN),
        ({"leave_out_node": 0}, "so it is another training", OTHER),
        ({"rows": 16}, "so it is another training", OTHER),
        ({"replace_node": 4}, "0 to 3", KIND),
        causes=[(LOADER, {"loader_workers": 12}, "idles before it does")],
    ),
    "17.5c": answers(
        "17.5c", LOADER,
        ({"loader_workers": 3}, "A step takes", HIDDEN),
        ({"loader_workers": 32}, "1 to 16", KIND),
        ({"rows": 64}, "A step takes", HIDDEN),
        ({"replace_node": 0}, "A step takes", HIDDEN),
        causes=[("the network is slow", {"loader_workers": 12}, "all ranks communicate longer")],
    ),
    "17.6": [
        (case("17.6", seed=3).answer(cause=DRIFT, mend={"copy_weights": "every step"}), "isn't healthy", HIDDEN),
        (case("17.6", seed=3).answer(cause=CPU, mend={"rows": 1}), "so it is another training", GUESSED),
        (case("17.3b").answer(cause=NAN, mend={"precision": "bfloat16"}), "answer(...) of case 17.6", KIND),
        ({"cause": DRIFT, "mend": {"start_weights": "rank 0"}}, "answer(...) of case 17.6", KIND),
    ],
}  # fmt: skip
