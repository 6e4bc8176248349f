"""Pipelines: models of models. A version folder has `pipeline.yaml` in place of a graph, which names other models.

Imported by repository, server and the command line; it imports the models that answer the steps, and core.
"""
