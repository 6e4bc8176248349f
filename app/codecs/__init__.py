"""Bodies to arrays and back: JSON, .npy, .npz, MessagePack, protocol buffers and images, each format in one file.

Protocols and transports import from here; codecs import only `app.core`.
"""
