"""Checks the files of deploy/, for scripts/check-deploy.sh. Arguments: the programs of the origin and of NATS."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import kubernetes_validate
import yaml
from compose_spec import PyCompose

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
# The version of Kubernetes whose schemas are used.
KUBERNETES = "1.32"


def accepts(name, text, command):
    """Makes sure that a program accepts a configuration, which it gets as its last argument."""
    with tempfile.NamedTemporaryFile("w", suffix=name.replace("/", "-")) as file:
        file.write(text)
        file.flush()
        # The names of a server come from its environment.
        environment = {**os.environ, "HOSTNAME": "nats-1", "POD_NAME": "nats-0"}
        done = subprocess.run([*command, file.name], capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        sys.exit(f"{name}: {done.stdout}{done.stderr}")
    print(f"{name}: accepted by {Path(command[0]).name}")


def promtool(*arguments):
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"promtool {' '.join(arguments)}: {done.stdout}{done.stderr}")
    print(f"promtool {' '.join(Path(it).name for it in arguments)}: accepted")


def check_dashboard(file):
    """Lets promtool read all expressions of a dashboard. Panels must have numbers and places of their own."""
    panels = json.loads(file.read_text())["panels"]
    places, rules = set(), []
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        if cells & places or max(x for x, _ in cells) > 23:
            sys.exit(f"{file.name}: no room for {panel['title']}")
        places |= cells
        for target in panel.get("targets", []):
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$stream", ".*")
            rules.append({"record": f"panel:{panel['id']}:{target['refId']}", "expr": expression})
    if len({panel["id"] for panel in panels}) != len(panels):
        sys.exit(f"{file.name}: two panels have the same number")
    with tempfile.NamedTemporaryFile("w", suffix=f"-{file.stem}.yml") as rule_file:
        yaml.safe_dump({"groups": [{"name": file.stem, "rules": rules}]}, rule_file)
        rule_file.flush()
        promtool("check", "rules", rule_file.name)


def check_image():
    """Makes sure that the context of the image has all that is copied from it."""
    kept = {line[1:] for line in (DEPLOY / "Dockerfile.dockerignore").read_text().split() if line.startswith("!")}
    for line in (DEPLOY / "Dockerfile").read_text().splitlines():
        match line.split():
            case ["COPY", *paths, _] if not paths[0].startswith("--from="):
                missing = [path for path in paths if path.split("/")[0] not in kept or not (DEPLOY.parent / path).exists()]
                if missing:
                    sys.exit(f"Dockerfile: not in the context: {', '.join(missing)}")
    print("Dockerfile: its context has what it copies")


def main():
    headwater, nats = sys.argv[1:]
    node, server = [headwater, "check", "--config"], [nats, "-t", "-c"]

    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    # The parser of YAML has taken the merges out, so that what is checked is what the services get.
    services = PyCompose.from_json(json.dumps(compose)).service_names()
    print(f"compose.yaml: {', '.join(services)}")
    for name, config in compose["configs"].items():
        # Compose replaces $$ by $.
        accepts(f"compose.yaml/{name}", config["content"].replace("$$", "$"), server if name == "nats" else node)
    for name, service in compose["services"].items():
        for config in service["configs"]:
            if config["source"] not in compose["configs"]:
                sys.exit(f"compose.yaml: {name} names a configuration that does not exist: {config['source']}")

    check_image()
    promtool("check", "rules", str(DEPLOY / "prometheus/alerts.yml"))
    promtool("test", "rules", str(DEPLOY / "prometheus/alerts_test.yml"))
    check_dashboard(DEPLOY / "grafana/headwater.json")

    folder = DEPLOY / "kubernetes"
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    for resource in kustomization["resources"]:
        for manifest in yaml.safe_load_all((folder / resource).read_text()):
            kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
            print(f"{resource}: {manifest['kind']} {manifest['metadata']['name']}")
    for generated in kustomization["configMapGenerator"]:
        for file in generated["files"]:
            accepts(f"kubernetes/{file}", (folder / file).read_text(), server if file == "nats.conf" else node)


if __name__ == "__main__":
    main()
