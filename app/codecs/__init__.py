"""Bodies to arrays and back: JSON, .npy, .npz, MessagePack, protocol buffers and images, each format in one file.

Codecs import only core. Protocols and `transports/http` import them; config, repository, model_server and cli import
one of the folders below (text files of protocol buffers, JSON).
"""
