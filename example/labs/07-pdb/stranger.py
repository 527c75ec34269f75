"""Talks to the task that waits in pdb as a stranger would: over a plain connection, without Ray's token."""

import os
import socket

import ray
import waiting
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@ray.remote(num_cpus=0)
def connect(address):
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        shown = waiting.until_prompt(connection)
        connection.sendall(b"import os; print('user', os.getuid(), 'in process', os.getpid())\n")
        shown += waiting.until_prompt(connection)
        connection.sendall(b"c\n")
    return f"user {os.getuid()} in process {os.getpid()} connects\n" + shown


ray.init(log_to_driver=False)
task = waiting.newest()
there = NodeAffinitySchedulingStrategy(task["node_id"], soft=False)
print(ray.get(connect.options(scheduling_strategy=there).remote(task["pdb_address"])))
