"""How a model is made ready to answer: loader.py owns the steps, each other file is one step.

Imported by server only; it imports model, config, repository, batching, runtime and core.
"""
