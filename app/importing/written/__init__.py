"""What an import writes beside the model, into `assets.extra`: names of classes, warm-up requests, golden requests.

It runs in the child process of an import; only app/importing imports it.
"""
