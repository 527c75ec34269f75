"""Asks the till, in its own pod: python ask.py axles=3"""

import sys
import urllib.request

answer = urllib.request.urlopen(f"http://127.0.0.1:8000/?{sys.argv[1]}", timeout=600).read().decode()
print(f"it answers {answer}")
