"""The steps of a load, which make a model ready to answer: loader.py owns the order, every other file is one step.

Only server imports it; it imports model, placement, config, batching, runtime and core.
"""
