"""Steps of a connection to a Ray cluster, and the engine that makes steps ready."""
