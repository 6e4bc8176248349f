"""The TreeLSTM of `bench.trees`, and callers who compute it without a pipeline. Only that script imports from here."""
