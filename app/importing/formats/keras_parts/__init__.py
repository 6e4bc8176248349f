"""Parts of the readers of Keras' files: checks before a library touches a file, the libraries, and free sizes.

Only keras_archive.py, keras_hdf5.py, keras_model.py and readers of folders that hold such files import this package.
"""
