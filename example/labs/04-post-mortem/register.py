"""The land register, with which a district is not always connected at once."""

from ray._private.worker import global_worker


def attempt() -> int:
    """Returns 0 where Ray runs this task for the first time, 1 in its first retry, and so on.

    Ray shows the number in its dashboard, and has no public function for it.
    """
    return global_worker.core_worker.get_current_task_attempt_number()


def connect(district: str) -> None:
    if district == "west" and attempt() < 2:
        raise ConnectionError(f"no line to {district}")
