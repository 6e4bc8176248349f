"""How a model is made ready to answer: loader.py owns the steps, each other file is one step.

Only server imports it; it imports model, placement, config, batching, runtime and core.
"""
