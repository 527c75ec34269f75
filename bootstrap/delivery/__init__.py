"""Brings images to where they run. Each way is a module: baked into a node's image, loaded into a node."""
