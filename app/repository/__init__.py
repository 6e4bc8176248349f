"""The models of a folder or a list: which versions lie on disk, which are served, and their states from load to unload.

Only app/server makes a repository; protocols know it by app/core/interfaces.py; frontends copy its catalog.
"""
