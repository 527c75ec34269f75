#!/bin/sh
# Asks the till, in the newest head's pod of the RayService: sh ask.sh axles=3
set -eu
kubectl="$(dirname "$0")/../../example/labs/kubectl"
pod=$("$kubectl" get pod --selector lab=toll --sort-by .metadata.creationTimestamp --output name | tail -1)
exec "$kubectl" exec "$pod" --container ray-head -- python /opt/toll/ask.py "$1"
