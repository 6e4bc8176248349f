"""What a plan is made with: the sources, types, kinds of rows and numbers of a pipeline's values.

Only app/pipelines imports it, by compilation.py. No I/O.
"""
