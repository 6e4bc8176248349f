"""Pipelines: models of models. A version folder with `pipeline.yaml` in place of a graph says how others answer.

Imported by repository, server and the command line; it imports the models that answer the steps, and core.
"""
