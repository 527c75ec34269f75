"""Smooths two gauges in this process, without Ray: under valgrind every instruction takes long."""

import gauge

print(gauge.smooth([3.0, 4.0, 8.0, 6.0, 1.0, 5.0], 6))
print(gauge.smooth([9.0] * 8, 8))
