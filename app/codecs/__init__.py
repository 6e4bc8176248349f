"""Codecs: bodies to arrays and back, in JSON, .npy, .npz, MessagePack, protocol buffers and images, a file a format.

Codecs import only core. Protocols and `transports/http` import them; config, repository, model_server and cli import
one of the folders below (text files of protocol buffers, JSON).
"""
