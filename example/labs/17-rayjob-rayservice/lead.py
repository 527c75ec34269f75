"""Leads ./invokew debug and ./invokew breakpoints to the cluster of a RayService: python lead.py toll

`./invokew up` leads them back.
"""

import os
import sys
from pathlib import Path

sys.path.append(str(Path.cwd()))  # It is run in the clone.

from bootstrap.given_settings import parse
from bootstrap.targets import choice
from rayside.settings import ENVIRONMENT_PREFIX
from rayside.system.shell import Shell

given = {
    name.removeprefix(ENVIRONMENT_PREFIX).lower(): value
    for name, value in os.environ.items()
    if name.startswith(ENVIRONMENT_PREFIX)
}
kubernetes = choice.existing(parse(given), Shell()).kubernetes
assert kubernetes, "this is for a cluster on Kubernetes"
service = kubernetes.kube.ray("rayservices", sys.argv[1])
assert service, f"there is no RayService {sys.argv[1]}"
cluster = service["status"]["activeServiceStatus"]["rayClusterName"]
kubernetes.lead_to(cluster)
print(f"now for the RayCluster {cluster}")
