"""Graphs of TensorFlow without Python code: what the readers of `formats/` share that read frozen graphs, checkpoints
of TensorFlow 1 and functions of SavedModels. Only app/importing/formats imports this package.
"""
