"""All planted loops: training loops as people write them, whose limit is known.

Each is built for a clock of virtual_time: `STEPS` by build(time), which returns a step
and its batches. `SCRIPTS` are whole trainings, build(time). `WATCHED` are scripts that
call `watch` with their loader, build(time, watch). `RANKED` are two ranks, build(time,
rank).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from test_steptime import (
    loops_arithmetic as arithmetic,
    loops_communication as communication,
    loops_first_epoch as first_epoch,
    loops_host_work as host,
    loops_input as inputs,
    loops_interpreter as interpreter,
    loops_launches as launches,
    loops_memory as memory,
    loops_mixed as mixed,
    loops_occasional_work as occasional,
)
from test_steptime.loop_parts import small_batch, small_step
from test_steptime.loops_launches import many_small_layers
from test_steptime.loops_mixed import BALANCED, mixture
from test_steptime.virtual_time import CEILINGS, RealTime

__all__ = [
    "BALANCED",
    "CEILINGS",
    "MENDED",
    "RANKED",
    "SCRIPTS",
    "STEPS",
    "WATCHED",
    "Loop",
    "RealTime",
    "many_small_layers",
    "mixture",
    "small_batch",
    "small_step",
]


class Loop(NamedTuple):
    """A planted loop. `cause` is the function or operator to be named; "" if none has
    to.
    """

    limit: str | None  # None where nothing takes more than half of the time
    cause: str
    build: Callable[..., Any]
    real: bool = False  # it has the same limit on the machine's own clock, too
    doubtful: bool = False  # it allows no sure answer: the page may also be in doubt

    @property
    def name(self) -> str:
        return self.build.__name__.replace("_", " ")


STEPS = (
    Loop("input", "fetch", inputs.slow_source, real=True),
    Loop("input", "__getitem__", inputs.slow_decoding, real=True),
    Loop("input", "collate", inputs.slow_collate, real=True),
    Loop("input", "", inputs.slow_workers, real=True),
    Loop("input", "draw_joints", inputs.heatmaps_by_joint),
    Loop("input", "resize", inputs.resized_by_torch, real=True),
    Loop("input", "fill_buffer", inputs.shuffle_buffer),
    Loop("input", "next_batch", inputs.loaded_by_a_thread),
    Loop("input", "clean_page", inputs.cleaned_by_expressions, real=True),
    Loop("input", "group", inputs.grouped_by_length, real=True),
    Loop("first epoch", "prepare", first_epoch.prepared_once),
    Loop("first epoch", "prepare", first_epoch.longer_than_the_watch, doubtful=True),
    Loop("first epoch", "resize", first_epoch.short_and_shuffled),
    Loop("first epoch", "resize", first_epoch.long_and_shuffled, doubtful=True),
    Loop("first epoch", "download", first_epoch.downloaded_once, doubtful=True),
    Loop("launch overhead", "", launches.many_small_layers, real=True),
    Loop("launch overhead", "", launches.one_sample_at_a_time, real=True),
    Loop("launch overhead", "", launches.one_parameter_at_a_time, real=True),
    Loop("launch overhead", "", launches.clipped_with_item, real=True),
    Loop("launch overhead", "", launches.one_token),
    Loop("launch overhead", "", launches.recurrent_by_hand, real=True),
    Loop("memory bandwidth", "", memory.kept_after_each_step),
    Loop("memory bandwidth", "", memory.element_by_element, real=True),
    Loop("memory bandwidth", "", memory.large_weights_one_row, real=True),
    Loop("memory bandwidth", "", memory.large_table, real=True),
    Loop("memory bandwidth", "", memory.foreach_adam, real=True),
    Loop("memory bandwidth", "", memory.fused_adam, real=True),
    Loop("memory bandwidth", "", memory.copies, real=True),
    Loop("memory bandwidth", "", memory.into_kept_memory),
    Loop("memory bandwidth", "", memory.zeros, real=True),
    Loop("memory bandwidth", "", memory.strided_addition, real=True),
    Loop("memory bandwidth", "", memory.normalized_maps),
    Loop("page faults", "", memory.doubled_anew),
    Loop("page faults", "", memory.new_activations),
    Loop("page faults", "", memory.mixed_up_in_numpy),
    Loop("arithmetic", "", arithmetic.large_matmuls, real=True),
    Loop("arithmetic", "", arithmetic.convolutions, real=True),
    Loop("arithmetic", "", arithmetic.attention, real=True),
    Loop("arithmetic", "", arithmetic.lstm, real=True),
    Loop("arithmetic", "", arithmetic.meta_learning),
    Loop("arithmetic", "", arithmetic.random_lengths),
    Loop("arithmetic", "", arithmetic.some_input),
    Loop("other host work", "pause", host.sleeping, real=True),
    Loop("other host work", "wait_for_the_lock", host.locked_by_another, real=True),
    Loop("other host work", "report", host.json_metrics, real=True),
    Loop("other host work", "label_components", host.scored_image_by_image),
    Loop("other host work", "slow_hook", host.hook_in_backward, real=True),
    Loop("other host work", "search", host.slower_and_slower),
    Loop("other host work", "note_range", host.checked_before_each_layer, real=True),
    Loop("other host work", "count_words", host.a_dear_and_a_cheap_count, real=True),
    Loop("occasional work", "", occasional.validated_now_and_then, real=True),
    Loop(
        "occasional work",
        "save_checkpoint",
        occasional.checkpoint_now_and_then,
        real=True,
    ),
    Loop("occasional work", "step", occasional.written_in_the_step_itself),
    Loop("occasional work", "save_best", occasional.best_is_saved),
    Loop("occasional work", "write_shard", occasional.flushed_when_full),
    Loop("occasional work", "evaluate", occasional.evaluation_and_log),
    Loop("occasional work", "resize", occasional.two_tasks),
    Loop("garbage collection", "collect", interpreter.collected_each_step, real=True),
    Loop("garbage collection", "collect", interpreter.collected_each_twentieth),
    Loop("garbage collection", "", interpreter.collected_by_the_dataset),
    Loop("compiling", "compile_anew", interpreter.compiled_each_ninth),
    Loop("compiling", "compile_anew", interpreter.compiled_in_the_first_steps),
    Loop("compiling", "compile_anew", interpreter.ragged_batches),
    Loop("too many threads", "", interpreter.crowded_layers),
    Loop("too many threads", "", interpreter.crowded_convolutions),
    Loop("unknown", "sort", mixed.sorting, real=True),
    Loop("unknown", "linalg_qr", mixed.factored, real=True),
    Loop(None, "", mixed.input_and_rate),
    Loop(None, "", mixed.input_and_metrics, doubtful=True),
)
SCRIPTS = (
    Loop("input", "read_index", inputs.loader_made_anew),
    Loop("first epoch", "resize", first_epoch.cached_transforms),
    Loop("other host work", "simulate", host.an_update_for_each_episode),
    Loop("occasional work", "score", occasional.validated_after_each_epoch),
    Loop("occasional work", "simulate", occasional.proximal_policy),
)
WATCHED = (
    Loop("input", "get_batch", inputs.memory_mapped),
    Loop("arithmetic", "", arithmetic.teacher_and_student),
    Loop("other host work", "penalty", host.adversarial),
    Loop("occasional work", "estimate_loss", occasional.nanogpt),
    Loop("occasional work", "compare", occasional.both_loaders_watched),
)
# a planted loop, and the same work without what holds it up
MENDED = (
    (inputs.slow_source, inputs.source_in_memory),
    (launches.one_sample_at_a_time, launches.all_samples_at_once),
    (memory.element_by_element, memory.in_one_pass),
    (host.sleeping, host.only_training),
    (interpreter.collected_each_twentieth, interpreter.nothing_collected),
    (occasional.checkpoint_now_and_then, host.only_training),
    (inputs.slow_decoding, inputs.decoded_before),
    (inputs.slow_collate, inputs.decoded_before),
    (inputs.cleaned_by_expressions, inputs.source_in_memory),
    (inputs.heatmaps_by_joint, inputs.heatmaps_drawn_faster),
    (inputs.resized_by_torch, inputs.resized_before),
    (launches.recurrent_by_hand, launches.recurrent_as_one),
    (launches.one_parameter_at_a_time, launches.all_parameters_at_once),
    (launches.clipped_with_item, launches.clipped_without_item),
    (memory.kept_after_each_step, memory.nothing_kept),
    (memory.doubled_anew, memory.doubled_in_place),
    (memory.mixed_up_in_numpy, host.only_training),
    (host.scored_image_by_image, host.only_training),
    (host.json_metrics, host.only_training),
    (host.hook_in_backward, host.without_a_hook),
    (host.a_dear_and_a_cheap_count, host.only_training),
    (occasional.flushed_when_full, host.only_training),
    (occasional.best_is_saved, host.only_training),
    (occasional.written_in_the_step_itself, host.only_training),
    (interpreter.collected_each_step, interpreter.nothing_collected),
    (interpreter.compiled_each_ninth, host.only_training),
    (interpreter.crowded_layers, interpreter.a_thread_per_core),
    (mixed.sorting, mixed.largest_sought),
)
# limit and cause of each of the two ranks
RANKED = (
    (
        (("communication", ""), ("communication", "")),
        communication.many_weights_between_ranks,
    ),
    (
        (("other ranks", ""), ("other host work", "log_to_server")),
        communication.one_rank_logs,
    ),
    (
        (("other ranks", ""), ("input", "next_batch")),
        communication.one_rank_loads_slowly,
    ),
    ((("other ranks", ""), ("arithmetic", "")), communication.one_rank_has_more_rows),
    ((("occasional work", "save"), ("other ranks", "")), communication.one_rank_saves),
    (
        (("input", "next_batch"), ("input", "next_batch")),
        communication.both_load_slowly,
    ),
)
