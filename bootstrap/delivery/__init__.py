"""Brings images to where they run. Each way is a module: baked into a node's image, loaded, pulled.

For a Kubernetes that others look after, `theirs` chooses one.
"""
