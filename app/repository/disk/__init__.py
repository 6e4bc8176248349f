"""The versions on disk, and the check whether a version may be loaded now.

All access to the models' storage is here, in processes that can be given up. For the repository and `ferry models`.
"""
