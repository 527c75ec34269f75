"""Runs the task of main.py for each file in this one process, where any debugger and profiler reaches it."""

import pipeline
import ray
from main import FILES, total

print(f"sold {pipeline.aggregate([total._function(file) for file in FILES])}")
print(f"Ray is connected: {ray.is_initialized()}")
