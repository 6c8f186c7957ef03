#!/usr/bin/env python3
"""Checks the manifests of packaging/kubernetes and the files of packaging/containers against the programs and one another: every option in
them exists; ports, names, labels, volumes and accounts agree. With the Python module kubernetes_validate they are also checked against
Kubernetes' own schemas. `keys` runs against a real server behind a kubectl of the test's own."""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

SOURCE, BUILD = os.environ["SOURCE_ROOT"], os.environ["BUILD_ROOT"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "lib"))
sys.path.insert(0, os.path.join(SOURCE, "tests", "integration", "ha"))
from processes.wire import Server

FOLDER = os.path.join(SOURCE, "packaging", "kubernetes")
PROGRAMS = {"rendezvous": "rendezvous/rendezvous", "launcherd": "launcherd/launcherd", "ddpctl": "ddpctl/ddpctl",
            "ddp-worker": "worker/ddp-worker"}
WRITTEN = {"ddp-control": {"/var/lib/ddp", "/run/ddp", "/tmp"},
           "ddp-worker": {"/var/lib/ddp", "/run/ddp", "/tmp", "/home/ddp", "/dev/shm"}}
USER = 10001
OLDEST = "1.25"  # the version of the schemas in kubernetes_validate


def load():
    """{file: [object]} of all manifests."""
    import yaml  # pylint: disable=import-outside-toplevel # only where it is installed
    files = {}
    for name in sorted(os.listdir(FOLDER)):
        if name.endswith(".yaml"):
            with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
                files[name] = [item for item in yaml.safe_load_all(file) if item]
    return files


def options_of(program, *verb):
    done = subprocess.run([os.path.join(BUILD, PROGRAMS[program]), *verb, "--help"], capture_output=True, text=True, check=True)
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", done.stdout))


def check_command(words, where):
    """Checks the command of a container: it is one of our programs, with options that the program has."""
    program, rest = words[0], words[1:]
    assert program in PROGRAMS, f"{where}: {program} is none of our programs"
    if "--" in rest:
        at = rest.index("--")
        check_command(rest[at + 1:], where)
        rest = rest[:at]
    known = options_of(program)
    for word in rest:
        if program == "ddpctl" and re.fullmatch(r"[a-z]+", word):
            known |= options_of(program, word)
    for word in rest:
        name = word.split("=", 1)[0]
        assert not word.startswith("--") or name in known, f"{where}: {program} has no option {name}"
    return dict(word.split("=", 1) for word in rest if word.startswith("--") and "=" in word)


def commands_of(container):
    """The commands of a container: its args and its probes. For `sh -c` the programs that it calls."""
    command = container.get("command", []) + container.get("args", [])
    if command[:2] == ["sh", "-c"]:
        assert 'exec ddpctl "$@"' in command[2], command[2]
        yield "login", ["ddpctl", *re.search(r"ddpctl (login \S+)", command[2])[1].split()]
        command = command[3:]
    yield "args", command
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        if "exec" in container.get(probe, {}):
            yield probe, container[probe]["exec"]["command"]


def check_container(pod, container, claims, where):
    image = container["image"].split(":")[0]
    assert image in WRITTEN, f"{where}: no Containerfile makes {image}"
    for kind in (pod["securityContext"], container["securityContext"]):
        assert kind.get("privileged") is not True, where
    assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] == USER, where
    assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                            "capabilities": {"drop": ["ALL"]}}, where
    volumes = {volume["name"] for volume in pod["volumes"]} | claims
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert set(mounts.values()) == volumes, f"{where}: volumes {volumes}, mounted {mounts}"
    options = {}
    for what, words in commands_of(container):
        given = check_command(words, f"{where} {what}")
        if what == "args":
            options = given
        for value in given.values():  # a folder or socket that the program writes must be in a volume
            path = value.removeprefix("unix:").removeprefix("@")
            if path.startswith("/") and what == "args" and "--cwd" not in given:
                assert any(path == at or path.startswith(at + "/") for at in mounts), f"{where}: {path} is in no volume"
    return options, mounts


def pods(files):
    for name, items in files.items():
        for item in items:
            template = item.get("spec", {}).get("template") if item["kind"] in ("StatefulSet", "Deployment", "DaemonSet", "Job") else None
            if template:
                yield f"{name}: {item['kind']} {item['metadata']['name']}", item, template


def check_pods(files):
    found = {}
    for where, item, template in pods(files):
        pod, labels = template["spec"], template["metadata"]["labels"]
        claims = {claim["metadata"]["name"] for claim in item["spec"].get("volumeClaimTemplates", [])}
        assert pod["automountServiceAccountToken"] is False, where
        if "selector" in item["spec"]:
            assert item["spec"]["selector"]["matchLabels"].items() <= labels.items(), where
        assert len(pod["containers"]) == 1 and "initContainers" not in pod, where
        options, mounts = check_container(pod, pod["containers"][0], claims, where)
        assert mounts.keys() <= WRITTEN[pod["containers"][0]["image"]] | {"/etc/ddp", "/etc/ddp/key", "/etc/ddp/etcd"}, (where, mounts)
        found[where] = (pod, labels, options)
    return found


def find(files, kind, name):
    return next(item for items in files.values() for item in items if item["kind"] == kind and item["metadata"]["name"] == name)


def check_network(files, found):
    """The server's port is the same number everywhere, and all who need it may reach it."""
    services = {name: item for name, items in files.items() for item in items if item["kind"] == "Service"}
    assert services.keys() == {"rendezvous.yaml", "etcd-rendezvous.yaml"}, services.keys()
    port = services["rendezvous.yaml"]["spec"]["ports"][0]["port"]
    names = {"rendezvous.yaml": "rendezvous.ddp.svc", "etcd-rendezvous.yaml": "$(POD_NAME).rendezvous.ddp.svc"}
    assert services["etcd-rendezvous.yaml"]["spec"]["clusterIP"] == "None", "each server has a name of its own"
    for where, (pod, labels, options) in found.items():
        if "rendezvous" not in where.split()[-1]:
            continue
        file = where.split(":")[0]
        service = services[file]
        assert service["spec"]["ports"][0]["port"] == port, where
        assert service["spec"]["selector"].items() <= labels.items(), where
        assert pod["containers"][0]["ports"][0] == {"name": service["spec"]["ports"][0]["targetPort"], "containerPort": port}, where
        assert options["--listen"].endswith(f":{port}") and options["--advertise"] == f"{names[file]}:{port}", (where, options)
    policy = find(files, "NetworkPolicy", "rendezvous")["spec"]
    rule = policy["ingress"][0]
    assert rule["ports"] == [{"protocol": "TCP", "port": port}], rule
    callers = [peer["podSelector"]["matchLabels"] for peer in rule["from"]]
    for where, (_, labels, _) in found.items():
        calls = "rendezvous" not in where.split()[-1]
        assert not calls or any(caller.items() <= labels.items() for caller in callers), f"{where} may not call the server: {callers}"
    assert find(files, "NetworkPolicy", "deny-all")["spec"] == {"podSelector": {}, "policyTypes": ["Ingress"]}


def check_node(files, found):
    daemon = find(files, "DaemonSet", "launcherd")
    pod, _, options = next(value for where, value in found.items() if where.endswith("DaemonSet launcherd"))
    args = pod["containers"][0]["args"]
    assert "--drain-on-term" in args and pod["terminationGracePeriodSeconds"] >= 30 + 30, args
    assert pod["hostPID"] is True and daemon["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 1
    mount = next(m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "keys")
    env = {e["name"]: e.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath") for e in pod["containers"][0]["env"]}
    assert mount["subPathExpr"] == "$(NODE_NAME)" and env["NODE_NAME"] == "spec.nodeName", (mount, env)
    assert options["--join"] == "@" + mount["mountPath"], options


def check_containerfile(found):
    """The stages of the Containerfile are the images of the manifests, with the same user and folders; their commands are right too."""
    with open(os.path.join(SOURCE, "packaging", "containers", "Containerfile"), encoding="utf-8") as file:
        text = file.read()
    for image, written in WRITTEN.items():
        stage = re.search(rf"\nFROM \S+ AS {image.removeprefix('ddp-')}\n((?:(?!\nFROM ).*\n?)*)", text)[1].split("\nFROM ")[0]
        assert re.search(rf"^USER {USER}:{USER}$", stage, re.M), image
        volumes = set(re.search(r"^VOLUME (.*)$", stage, re.M)[1].split())
        assert volumes == written - {"/dev/shm"}, (image, volumes)
        command = json.loads(re.search(r"^CMD (.*)$", stage, re.M)[1])
        check_command([re.sub(r"^(--[a-z-]+)$", r"\1", word) for word in command], image)
    for line in re.findall(r"^(?:ARG \w*BASE=|FROM )(\S+)", text, re.M):
        assert "/" not in line, f"the host of a registry: {line}"
    assert {pod["containers"][0]["image"] for pod, _, _ in found.values()} == set(WRITTEN)
    with open(os.path.join(SOURCE, "packaging", "containers", "setup"), encoding="utf-8") as file:
        assert f"--uid {USER} --gid {USER}" in file.read()


def check_kustomization(files):
    top = files["kustomization.yaml"][0]
    assert set(top["resources"]) == set(files) - {"kustomization.yaml", "job.yaml"} - {n for n in files if n.startswith("etcd-")}, top
    version = subprocess.run([os.path.join(BUILD, PROGRAMS["ddpctl"]), "version", "--json"], capture_output=True, text=True, check=True)
    for image in top["images"]:
        assert image["newTag"] == json.loads(version.stdout)["version"], image
    for name, items in files.items():
        for item in items if name != "kustomization.yaml" else []:
            assert item["kind"] == "Namespace" or item["metadata"]["namespace"] == top["namespace"], (name, item["metadata"])


def check_schemas(files):
    try:
        import kubernetes_validate  # pylint: disable=import-outside-toplevel # only where it is installed
    except ImportError:
        print("not held against Kubernetes' schemas: no Python module kubernetes_validate")
        return
    count = 0
    for name, items in files.items():
        for item in items if name != "kustomization.yaml" else []:
            for version in (OLDEST, kubernetes_validate.latest_version()):
                kubernetes_validate.validate(item, version, strict=True)
            count += 1
    print(f"{count} objects are as Kubernetes' schemas say, {OLDEST} and {kubernetes_validate.latest_version()}")


KUBECTL = """#!/usr/bin/env python3
# Plays kubectl over one server and one folder of Secrets.
import json, os, subprocess, sys
args = sys.argv[1:]
assert args[:2] == ["--namespace", "ddp"], args
args, folder = args[2:], os.environ["SECRETS"]
if args[0] == "exec":
    socket = json.loads(os.environ["SOCKETS"]).get(args[1])
    if socket is None:
        sys.exit(f"Error from server (NotFound): pods {args[1]} not found")
    assert args[2] == "--" and "ddpctl" in (args[3], args[5]), args
    words = {"unix:/run/ddp/rendezvous.sock": socket, "ddpctl": os.environ["DDPCTL"]}
    sys.exit(subprocess.run([words.get(word, word) for word in args[3:]], check=False).returncode)
path = os.path.join(folder, args[2] if args[0] != "create" else args[3])
if args[:2] == ["get", "secret"]:
    sys.exit(0 if os.path.exists(path) else 1)
if args[:3] == ["create", "secret", "generic"]:
    json.dump({}, open(path, "x"))
elif args[:2] == ["patch", "secret"] and args[3:] == ["--patch-file", "/dev/stdin"]:
    secret = json.load(open(path))
    secret.update(json.load(sys.stdin)["stringData"])
    json.dump(secret, open(path, "w"))
else:
    sys.exit(f"kubectl of the test: {args}")
"""


class Keys:
    """packaging/kubernetes/keys with a kubectl of the test's own, in a folder."""

    def __init__(self, folder, sockets):
        self.secrets, kubectl = os.path.join(folder, "secrets"), os.path.join(folder, "kubectl")
        os.mkdir(self.secrets)
        with open(kubectl, "w", encoding="ascii") as file:
            file.write(KUBECTL)
        os.chmod(kubectl, 0o755)
        self.env = {**os.environ, "KUBECTL": kubectl, "SECRETS": self.secrets, "SOCKETS": json.dumps(sockets),
                    "DDPCTL": os.path.join(BUILD, PROGRAMS["ddpctl"])}

    def run(self, *words):
        return subprocess.run([os.path.join(FOLDER, "keys"), *words], env=self.env, capture_output=True, text=True, check=False)

    def read(self, name):
        with open(os.path.join(self.secrets, name), encoding="utf-8") as file:
            return json.load(file)


def check_keys():
    with tempfile.TemporaryDirectory(prefix="ddp-keys-") as folder:
        server = Server(os.path.join(BUILD, PROGRAMS["rendezvous"]), os.path.join(folder, "state"), "--listen", "127.0.0.1:0", "--require-key",
                        "--advertise", "rendezvous.ddp.svc:7400")
        keys = Keys(folder, {"rendezvous-0": f"unix:{folder}/state/rendezvous.sock"})
        done = keys.run("node", "gpu01", "gpu-2.example")
        assert done.returncode == 0 and "ddp://" not in done.stdout + done.stderr, done
        first = keys.read("ddp-node-keys")
        assert [re.match(r"ddp://rendezvous\.ddp\.svc:7400/([^#]*)#.{40,}$", first[name])[1] for name in first] == list(first) == \
            ["gpu01", "gpu-2.example"], list(first)
        assert keys.run("node", "gpu01").returncode == 0  # a second call makes a new key
        again = keys.read("ddp-node-keys")
        assert again["gpu01"] != first["gpu01"] and again["gpu-2.example"] == first["gpu-2.example"]
        assert keys.run("user").returncode == 0
        assert keys.read("ddp-user-key")["key"].startswith("ddp://rendezvous.ddp.svc:7400/ddp#")
        done = keys.run("node", "no/name")
        assert done.returncode == 1 and "no key was made for node no/name" in done.stderr, done
        assert keys.run("pod", "x").returncode == 1 and keys.run("node").returncode == 1
        assert server.stop() == 0
        done = keys.run("node", "gpu01")
        assert done.returncode == 1 and "no server leads" in done.stderr, done


def check_keys_of_several():
    """Keys are made by the leader, whichever server that is."""
    if shutil.which("etcd") is None:
        print("keys of several servers not tried: etcd is not installed (Debian: etcd-server)")
        return
    from processes.servers import Cluster  # ends the test where etcd is not installed
    cluster = Cluster(BUILD, ["--require-key"], nodes=0, every_s=1)
    try:
        keys = Keys(cluster.folder, {f"rendezvous-{i}": server.asked for i, server in enumerate(cluster.servers)})
        for name in ("gpu01", "gpu02"):
            leader, token = cluster.leader(), cluster.seen.newest()
            done = keys.run("node", name)
            assert done.returncode == 0, done
            assert f"{leader.address}" in keys.read("ddp-node-keys")[name], keys.read("ddp-node-keys")[name].split("#")[0]
            leader.end_by(signal.SIGKILL)
            cluster.seen.wait_above(token)
        assert set(keys.read("ddp-node-keys")) == {"gpu01", "gpu02"}
    finally:
        cluster.close()


def main():
    try:
        files = load()
    except ImportError:
        print("skipped: no Python module yaml (Debian: python3-yaml)")
        return 77
    found = check_pods(files)
    check_network(files, found)
    check_node(files, found)
    check_containerfile(found)
    check_kustomization(files)
    check_schemas(files)
    check_keys()
    check_keys_of_several()
    print(f"ok: {len(found)} pods, {sum(len(items) for items in files.values())} objects")
    return 0


if __name__ == "__main__":
    sys.exit(main())
