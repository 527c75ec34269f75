"""Delivery of images to nodes. Each way is a module: baked into a node's image, loaded, pulled.

For an existing Kubernetes cluster, `theirs` chooses one.
"""
