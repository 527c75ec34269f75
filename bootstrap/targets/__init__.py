"""Has each target, where Ray runs: its steps as one list, and how Ray is reached on it."""
