"""What holds for every suite."""

import signal

# Where the tests are a job in the background of a script, they were started with Ctrl-C ignored, and
# every process that they start would be too.
signal.signal(signal.SIGINT, signal.default_int_handler)
