"""Shows the dashboards that Ray has made for Grafana, and a query of the first."""

import json
from pathlib import Path

# A job works in a folder of its session: runtime_resources/working_dir_files/_ray_pkg_<hash>.
folder = Path.cwd().parents[2] / "metrics" / "grafana"
files = sorted(folder.glob("dashboards/*.json"))
for file in files:
    dashboard = json.loads(file.read_text())
    panels = [panel for row in dashboard["panels"] for panel in (row.get("panels") or [row])]
    print(f"{file.name}: {dashboard['title']}, {len(panels)} panels")
    if file.name == "default_grafana_dashboard.json":
        panel = next(panel for panel in panels if panel.get("targets"))
        print(f"  {panel['title']}: {panel['targets'][0]['expr']}")
print(f"there are {len(files)} dashboards in {folder}")
