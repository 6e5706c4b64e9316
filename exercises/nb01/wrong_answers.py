"""Plausible wrong answers of notebook 01: number -> (answer, words the check must say, misconception)."""


def without_the_result(n, element_bytes):
    return 2 * n**3 / (2 * n**2 * element_bytes)


def chosen(digits="this machine", bert="T4", llama=None):
    return {"digits": digits, "BERT": bert, "Llama": llama}


BIGGEST = "H100 SXM5 80GB"

WRONG = {
    "01.1": [
        (
            lambda cores, boost_hz: cores * boost_hz,
            "0.5x",
            "half-the-work-counted",
        ),  # a multiply-add counted once
        (
            lambda cores, boost_hz: cores * 2 * boost_hz / 1e12,
            "FLOP/s, not TFLOP/s",
            "wrong-unit",
        ),
        (lambda cores, boost_hz: 8.141e12, "For", "hard-coded"),  # the T4's, hard-coded
        (
            lambda cores, boost_hz: cores * 2 * 1.59e9,
            "cores at",
            "right-for-one-case",
        ),  # the T4's clock
    ],
    "01.3": [
        (without_the_result, "1.5x", "half-the-work-counted"),
        (
            lambda n, element_bytes: n / 6,
            "element_bytes=1",
            "right-for-one-case",
        ),  # right for float32 only
        (
            lambda n, element_bytes: 2 * n**3 / (3 * n * element_bytes),
            "three matrices",
            "other-formula",
        ),  # n, not n squared
        (
            lambda n, element_bytes: n**3 / (3 * n**2 * element_bytes),
            "0.5x",
            "half-the-work-counted",
        ),  # a multiply-add as one
        (lambda n, element_bytes: 170.7, "n=64", "hard-coded"),  # hard-coded for 1,024
    ],
    "01.4": [
        (
            lambda params, saved_activation_bytes, batch: (
                8 * params + saved_activation_bytes * batch
            ),
            "two averages of Adam",
            "half-the-work-counted",
        ),  # SGD
        (
            lambda params, saved_activation_bytes, batch: (
                batch * (16 * params + saved_activation_bytes)
            ),
            "whatever the batch",
            "what-grows-with-batch",
        ),
        (
            lambda params, saved_activation_bytes, batch: 16 * params + saved_activation_bytes,
            "batch=4,096",
            "what-grows-with-batch",
        ),  # right for one image
        (
            lambda params, saved_activation_bytes, batch: (
                4 * params + saved_activation_bytes * batch
            ),
            "4 bytes each",
            "wrong-unit",
        ),  # numbers, not bytes
        (lambda params, saved_activation_bytes, batch: 235_610_976, "For params", "hard-coded"),
    ],
    "01.6": [
        (
            chosen(BIGGEST, BIGGEST, BIGGEST),
            "digits: H100 SXM5 80GB would do, but this machine",
            "bigger-is-better",
        ),
        (chosen(bert=BIGGEST), "BERT: H100 SXM5 80GB draws up to 700 W", "bigger-is-better"),
        (chosen(bert="this machine"), "float16 peak unknown", "other-formula"),
        (chosen(llama=BIGGEST), "needs 129 GB of 80.0 GB", "it-will-fit"),
        (chosen(bert=None), "BERT: at least one of the seven", "other-formula"),
        (chosen(bert="TPU v5e (chip)"), "is not one of the seven", "result-of-another-kind"),
        (chosen(llama="None"), "Llama: write None without quotes", "result-of-another-kind"),
        (chosen(bert="T" * 10**6), "BERT: 'TTT", "result-of-another-kind"),
        (list(range(10**5)), "Expected a dict", "result-of-another-kind"),
        ({"digits": "T4"}, "missing ['BERT', 'Llama']", "result-of-another-kind"),
    ],
}
