"""The parts of a compilation: the sources, types, kinds of rows and numbers of a pipeline's values.

Only app/pipelines imports it, by compilation.py. No I/O.
"""
