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
