from app.repository.memory.load_estimates import LoadEstimates

MB = 2**20
VARIABLES = frozenset({("saved_model.pb", 1000, 0), ("variables/variables.data-00000-of-00001", 300 * MB, 0)})
CONSTANTS = frozenset({("saved_model.pb", 300 * MB, 0)})
TFLITE = frozenset({("model.tflite", 100 * MB, 0)})


def test_variables_take_their_size_and_constants_of_a_graph_many_times_theirs() -> None:
    estimates = LoadEstimates()
    assert 301 * MB <= estimates.need("m", VARIABLES) <= 330 * MB  # measured: 301 MB
    assert 4113 * MB <= estimates.need("m", CONSTANTS) <= 4400 * MB  # measured: 4,113 MB
    assert 300 * MB <= estimates.need("m", TFLITE) <= 330 * MB  # measured: 312 MB


def test_what_a_load_of_the_model_took_counts_for_the_next_within_bounds_until_it_leaves() -> None:
    estimates = LoadEstimates()
    by_files = estimates.need("m", VARIABLES)
    estimates.note("m", VARIABLES, 1.5 * by_files)
    assert estimates.need("m", VARIABLES) == int(1.5 * by_files)
    assert estimates.need("other", VARIABLES) == by_files
    estimates.note("m", VARIABLES, 100.0 * by_files)
    assert estimates.need("m", VARIABLES) == 2 * by_files
    estimates.note("m", VARIABLES, 0.0)  # not measured
    assert estimates.need("m", VARIABLES) == 2 * by_files
    estimates.forget("m")
    assert repr(estimates) == "<LoadEstimates {}>"
