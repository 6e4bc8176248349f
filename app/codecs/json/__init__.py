"""JSON in TensorFlow Serving's dialect: parsing, nested lists to arrays, predict documents, writing.

Other codecs, protocols and `ferry predict` import from here.
"""
