"""What docs/migrate-from-tensorflow-serving.md claims, and the tests that try it.

A claim is known by some words of its sentence, or by the first cell of its row.
"""

from __future__ import annotations

_SERVER = "tests/model_server"
_DROP_IN = f"{_SERVER}/test_drop_in.py"
_DIFFERENCES = f"{_SERVER}/test_differences.py"
_OPTIONS = f"{_SERVER}/test_options.py"
_CLI = f"{_SERVER}/test_cli.py"
_RELOAD = "tests/repository/test_reload.py"
_REPOSITORY = "tests/repository/test_repository.py"
_BATCHER = "tests/batching/test_batcher.py"
_METRICS = "tests/instrumentation/test_tensorflow_metrics.py"
_PARAMETERS = "tests/config/test_batching_parameters.py"
_REST = "tests/protocols/tensorflow_serving/test_rest.py"

#: Sentences that lead to what follows, advise, or tell of TensorFlow Serving alone.
NO_CLAIMS = (
    "**gRPC**:",
    "Contents:",
    "What you call it with stays as it is",
    "Where scripts call the old name, link it",
    "through a script that reads `MODEL_NAME`",
    "TensorFlow Serving does not read it",
    "TensorFlow Serving rejects a float beyond its maximum, too",
    "TensorFlow Serving lets whoever reaches the port",
    "Mount it.",
    "Models do not always run as they were saved",
)

CLAIMS: dict[str, tuple[str, ...]] = {
    # How it is called.
    "takes the flags, files and environment": (f"{_DROP_IN}::test_versions_labels_and_changes_of_the_file",),
    "puts a link named `tensorflow_model_server`": (f"{_CLI}::test_the_alias_is_a_link_to_the_program",),
    "that is one `RUN` line": (f"{_DROP_IN}::test_it_works_through_a_link",),
    "Ferry reads them itself": (
        f"{_OPTIONS}::test_the_images_variables_stand_for_its_flags",
        f"{_DROP_IN}::test_started_as_the_image_is",
    ),
    "Ferry's own settings are environment variables": (
        f"{_CLI}::test_ferrys_own_settings_are_reached_by_the_environment",
        "tests/cli/test_commands.py::test_every_setting_is_a_flag_with_its_description",
    ),
    "A flag overrides the variable": (f"{_DIFFERENCES}::test_a_flag_overrides_the_variable",),
    "`ferry serve` starts the same server": (
        "tests/cli/test_commands.py::test_flags_and_file_reach_the_server_and_its_code_is_the_exit_code",
    ),
    # What is equal.
    "every path under `/v1`": (
        f"{_REST}::test_versions_and_labels",
        f"{_REST}::test_bodies_that_do_not_fit_get_a_clear_400",
        f"{_REST}::test_wrong_methods_and_paths",
        f"{_REPOSITORY}::test_unknown_names_versions_and_labels_are_rejected_in_tensorflow_servings_words",
    ),
    "`PredictionService` and `ModelService`": (
        "tests/protocols/tensorflow_serving/test_grpc.py::test_a_reload_gets_the_list_of_models",
        f"{_DROP_IN}::test_versions_labels_and_changes_of_the_file",
        "tests/transports/grpc/test_server.py::test_the_same_services_over_a_unix_socket",
        "tests/transports/grpc/test_server.py::test_credentials_turn_tls_on",
        f"{_SERVER}/test_grpc_flags.py::test_channel_arguments_are_numbers_or_texts",
        "tests/server/test_server_grpc.py::test_health_follows_readiness_into_the_drain",
    ),
    "the policies `latest`, `all` and `specific`": (
        "tests/repository/test_model_server_config.py::test_policies",
        f"{_RELOAD}::test_each_model_has_its_own_policy",
        f"{_RELOAD}::test_the_new_list_takes_the_place_of_the_old_one",
    ),
    "A label may only name a version that is available": (
        f"{_RELOAD}::test_a_label_of_a_version_that_is_not_served_is_rejected_and_nothing_changes",
        f"{_RELOAD}::test_a_flag_lets_new_labels_go_anywhere_but_not_old_ones",
    ),
    "is read again every `--model_config_file_poll_wait_seconds`": (
        f"{_DROP_IN}::test_versions_labels_and_changes_of_the_file",
    ),
    "A list that is wrong changes nothing": (
        f"{_RELOAD}::test_a_wrong_list_is_rejected_and_nothing_changes",
        f"{_DROP_IN}::test_versions_labels_and_changes_of_the_file",
    ),
    "opens its ports when every model is loaded": (
        "tests/server/test_server_models.py::test_a_start_that_waits_returns_when_the_models_are_there",
    ),
    "and an exit code other than 0": (f"{_DROP_IN}::test_a_model_that_does_not_load_ends_the_start",),
    "A model that fails ends it": (f"{_DROP_IN}::test_a_model_that_does_not_load_ends_the_start",),
    "If a model's folder is missing, the start waits": (
        "tests/server/test_server_models.py::test_a_start_that_waits_for_a_missing_model_can_be_ended",
        f"{_RELOAD}::test_waiting_ends_when_every_model_is_there",
    ),
    "lie where `--monitoring_config_file` says": (f"{_OPTIONS}::test_the_metrics_page",),
    "are not checked against the signature": (
        f"{_DROP_IN}::test_a_shape_beyond_the_signature_runs_alone_if_the_graph_runs_it",
    ),
    # What is better.
    "and a lone client never waits": (
        f"{_OPTIONS}::test_without_flags_tensorflow_servings_defaults_hold",
        "tests/batching/dispatch/test_dispatch_loop.py::test_a_lone_client_never_waits",
    ),
    "Requests that fit no common shape": (
        "tests/model/test_model_alone.py::test_what_does_not_fit_runs_alone_and_what_fits_shares_its_batch_as_ever",
        f"{_BATCHER}::test_one_bad_request_fails_alone",
    ),
    "`--enable_batching=false`, if it is given": (
        f"{_OPTIONS}::test_each_flag_has_its_settings",
        "tests/model/test_model_alone.py::test_without_batching_each_request_runs_alone_just_as_it_came",
    ),
    "A request larger than a batch": (
        "tests/batching/test_queue.py::test_a_large_request_leaves_in_parts_and_waits_behind_later_requests",
        "tests/live/test_mixed_shapes.py::test_a_large_request_is_cut_and_shares_its_last_part",
    ),
    "A version whose files are not all there": (
        "tests/repository/disk/test_intake.py::test_an_incomplete_version_is_told_and_never_replaces_the_one_that_serves",
        "tests/repository/disk/test_intake.py::test_young_files_have_to_rest_and_every_change_begins_anew",
    ),
    "One that fails to load is tried again": (
        f"{_REPOSITORY}::test_a_failed_version_leaves_the_old_one_serving_and_is_tried_again_when_it_changes",
        f"{_REPOSITORY}::test_when_the_newest_fails_the_next_is_served",
    ),
    "If one base path is missing": (
        f"{_RELOAD}::test_one_missing_base_path_disturbs_no_other_model_and_unloads_nothing",
    ),
    "After SIGTERM new requests are still served": (
        "tests/server/test_grace.py::test_it_serves_on_until_a_second_signal",
        f"{_DIFFERENCES}::test_ferrys_own_defaults_that_the_page_tells",
    ),
    "Accepted ones are then answered": (
        "tests/server/test_server.py::test_drain_answers_what_was_accepted_and_rejects_the_rest",
        f"{_DIFFERENCES}::test_ferrys_own_defaults_that_the_page_tells",
    ),
    "`/livez` says whether the server works": (
        "tests/server/test_http_app.py::test_health_turns_red_with_its_reasons",
    ),
    "A request whose time ran out gets 504": (
        f"{_REST}::test_deadlines",
        f"{_BATCHER}::test_the_expired_is_answered_at_once_and_never_computed",
        f"{_REST}::test_failures_of_the_server",
    ),
    "A version is called before it serves": (
        "tests/loading/test_warm_up.py::test_every_size_of_every_signature_runs_and_one_of_those_not_batchable",
    ),
    "A list of models that adds a model without any version": (
        f"{_RELOAD}::test_a_new_model_without_a_version_is_an_error_and_served_when_it_gets_one",
    ),
    # What differs.
    "Ferry listens on `0.0.0.0`": (
        f"{_DIFFERENCES}::test_ferrys_own_defaults_that_the_page_tells",
        f"{_DIFFERENCES}::test_http_and_grpc_listen_on_ipv6_and_ipv4",
    ),
    "applies to gRPC too": (
        f"{_OPTIONS}::test_each_flag_has_its_settings",
        "tests/protocols/tensorflow_serving/test_grpc_predict.py::test_the_servers_own_timeout_is_kept",
    ),
    "The `Accept` header counts": (
        "tests/codecs/test_format_registry.py::test_an_accept_without_a_possible_format_is_rejected_before_the_model_runs",
    ),
    "HTTP bodies are limited to 256 MiB": (
        f"{_DIFFERENCES}::test_ferrys_own_defaults_that_the_page_tells",
        f"{_OPTIONS}::test_without_flags_tensorflow_servings_defaults_hold",
    ),
    "is not loaded, and its status says": (
        "tests/runtimes/tensorflow/saved_model/test_operation_check.py::test_what_reaches_outside_is_rejected_by_name_and_can_be_allowed",
    ),
    "allows operations by name": (
        "tests/runtimes/tensorflow/saved_model/test_operation_check.py::test_what_reaches_outside_is_rejected_by_name_and_can_be_allowed",
    ),
    "`HandleReloadConfigRequest` is administration": (f"{_DROP_IN}::test_versions_labels_and_changes_of_the_file",),
    "It may name base paths beside those": ("tests/repository/test_model_roots.py::test_and_nothing_else",),
    "A number in JSON that the input's type cannot hold": (
        f"{_DIFFERENCES}::test_a_number_that_does_not_fit_is_rejected",
    ),
    "It is neither wrapped": (f"{_DIFFERENCES}::test_a_number_that_does_not_fit_is_rejected",),
    "`Infinity` is.": (f"{_DIFFERENCES}::test_a_number_that_fits_is_read",),
    "A number beyond double's range": (f"{_DIFFERENCES}::test_a_number_that_does_not_fit_is_rejected",),
    "A whole number for a float": (f"{_DIFFERENCES}::test_a_number_that_fits_is_read",),
    "half, bfloat16 and uint16": (f"{_DIFFERENCES}::test_a_number_that_fits_is_read",),
    "A base path is a local folder": (f"{_OPTIONS}::test_remote_storage_is_rejected_instead_of_waited_for",),
    "stays in effect until the file itself changes": (
        "tests/repository/test_model_list_watch.py::test_only_changes_are_put_into_effect",
    ),
    "If a policy asks only for versions that do not exist": (f"{_DIFFERENCES}::test_what_the_drop_in_does_not_do",),
    "`assets.extra/tf_serving_warmup_requests`": (f"{_DIFFERENCES}::test_what_the_drop_in_does_not_do",),
    "`pad_variable_length_inputs` does nothing": (f"{_OPTIONS}::test_lengths_are_not_padded_and_that_is_said",),
    "Requests of different lengths share a batch": (
        "tests/live/test_mixed_shapes.py::test_requests_of_different_lengths_share_calls_and_get_the_answers_they_get_alone",
        "tests/live/test_mixed_shapes.py::test_a_model_that_is_blind_to_padding_shares_calls_among_equal_shapes_only",
    ),
    "`FERRY_PAD_SHAPES` changes that": (
        "tests/live/test_mixed_shapes.py::test_one_may_insist",
        "tests/live/test_mixed_shapes.py::test_or_forbid",
    ),
    "Ferry measures whether the model": (
        "tests/runtimes/tensorflow/variants/test_variant_search.py::test_the_fastest_is_used_and_its_gain_is_told",
        "tests/runtimes/tensorflow/variants/test_variant_search.py::test_what_disagrees_or_fails_is_not_used",
    ),
    "`FERRY_EXECUTION_VARIANT=plain` turns that off": (
        "tests/runtimes/tensorflow/saved_model/test_saved_model_tuning.py::test_a_wanted_variant_is_used_at_every_size",
    ),
    "On a CPU the cores are shared": ("tests/runtimes/test_parallelism.py::test_few_threads_each",),
    "`--tensorflow_intra_op_parallelism` and `FERRY_BATCHES_IN_FLIGHT`": (
        "tests/runtimes/test_parallelism.py::test_what_is_fixed_stays_so",
        f"{_OPTIONS}::test_each_flag_has_its_settings",
    ),
    "The queue is one for the whole server": (
        "tests/batching/waiting/test_room.py::test_half_of_the_room_is_kept_by_weight_and_the_rest_is_for_all",
    ),
    "`batching_params.pbtxt` of a version": (
        "tests/server/test_server_models.py::test_a_versions_own_file_sets_its_batch_sizes",
        "tests/live/test_batching_pages.py::test_options_change_from_the_next_batch_on",
    ),
    "A relative `--model_base_path`": (
        f"{_OPTIONS}::test_one_model_by_flags",
        f"{_OPTIONS}::test_remote_storage_is_rejected_instead_of_waited_for",
    ),
    "There is no `SessionService`": (f"{_DIFFERENCES}::test_what_the_drop_in_does_not_do",),
    "TensorFlow Text and decision forests, which": (
        "tests/live/libraries/test_text_models.py::test_the_library_is_loaded_once_and_the_log_says_so",
        "tests/live/libraries/test_decision_forests.py::test_requests_share_calls_by_the_graph",
    ),
    "`model.tflite` needs the extra": (
        "tests/runtimes/litert/test_litert_model.py::test_without_its_package_a_load_says_how_to_install_it",
    ),
    "`--prefer_tflite_model` takes": (
        "tests/runtimes/litert/test_served_models.py::test_prefer_tflite_model_takes_the_other",
    ),
    "Inputs have the sizes of the file": (
        "tests/runtimes/litert/test_served_models.py::test_one_row_of_the_file_answers_any_number_of_rows",
        "tests/runtimes/test_every_runtime.py::test_a_shape_beyond_the_signature_is_the_graphs_to_judge",
    ),
    # The batching file.
    "| `max_batch_size` |": (
        f"{_OPTIONS}::test_batching_parameters",
        f"{_OPTIONS}::test_the_queue_is_limited_by_memory_or_holds_at_least_a_batch",
    ),
    "| `max_execution_batch_size` |": (f"{_PARAMETERS}::test_sizes_end_with_the_largest_execution",),
    "| `allowed_batch_sizes` |": (f"{_OPTIONS}::test_batching_parameters",),
    "| `batch_timeout_micros` |": (f"{_OPTIONS}::test_batching_parameters",),
    "| `max_enqueued_batches` |": (f"{_OPTIONS}::test_the_queue_is_limited_by_memory_or_holds_at_least_a_batch",),
    "| `num_batch_threads` |": (f"{_OPTIONS}::test_batching_parameters",),
    "| `thread_pool_name`": (f"{_PARAMETERS}::test_what_a_file_does_not_say_is_not_set",),
    # The metrics page.
    "It lies at the path of `prometheus_config`": (
        f"{_SERVER}/test_text_files.py::test_where_the_metrics_page_lies",
        "tests/server/test_server_models.py::test_metrics_lie_where_the_settings_say_too",
    ),
    "Times are in microseconds": (f"{_METRICS}::test_batches_are_told_with_their_padding_in_microseconds",),
    "| `:tensorflow:serving:request_count` |": (f"{_METRICS}::test_calls_are_counted_by_model_and_tensorflows_status",),
    "| `:tensorflow:serving:request_latency` |": (
        f"{_METRICS}::test_versions_signatures_and_protocols_of_a_model_add_up",
    ),
    "| `:tensorflow:serving:runtime_latency` |": (
        f"{_METRICS}::test_batches_are_told_with_their_padding_in_microseconds",
    ),
    "| `:tensorflow:serving:batching_session:processed_batch_size` |": (
        f"{_METRICS}::test_batches_are_told_with_their_padding_in_microseconds",
    ),
    "| `:tensorflow:serving:batching_session:padding_size` |": (
        f"{_METRICS}::test_batches_are_told_with_their_padding_in_microseconds",
    ),
    "| `:tensorflow:serving:batching_session:queuing_latency` |": (
        f"{_METRICS}::test_batches_are_told_with_their_padding_in_microseconds",
    ),
    "The label `API` is not there": (
        f"{_DIFFERENCES}::test_the_metrics_page_has_no_label_api_and_none_of_tensorflows_own",
    ),
    # The flags.
    "An unknown flag ends the start": (f"{_SERVER}/test_parsing.py::test_what_is_wrong_is_named",),
    "A flag that does nothing is accepted": (f"{_CLI}::test_each_flag_that_does_nothing_is_said_in_one_line",),
    "Written `--flag=value`": (f"{_SERVER}/test_parsing.py::test_flags_in_all_their_forms",),
}
