"""The models of a folder or a list: which versions lie on disk, which are served, and their states from load to unload.

Only server makes a repository; protocols know it by `core/interfaces.py`. Other parts import single files:
lists of models (model_server, frontends, protocols.tensorflow_serving), the catalog (frontends), the layout (cli).
"""
