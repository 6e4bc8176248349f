"""The splitting of a SavedModel's large dense layers over several devices (`ferry shard`).

Nothing here runs while Ferry serves: the result is an ordinary SavedModel that names its devices.
"""
