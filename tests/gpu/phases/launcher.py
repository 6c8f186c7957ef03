"""The GPU under launcherd: a worker killed by -9 leaves it free, launcherd proves that by itself, and only then the next
generation starts there and trains to the end. usage: launcher.py BUILD"""
import json
import os
import signal
import subprocess

import gpu
import common

MODEL = ["-a", "convnet", "-b", "8"] if common.IS_STANDIN else ["-a", "resnet50", "-b", "64"]
STEPS = 24 if common.IS_STANDIN else 300
WAIT_S = 20
JOB_LIMIT_S = 45


def workers(token):
    """Pids of ddp-workers of this run."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/comm", encoding="ascii", errors="replace") as comm:
                if comm.read().strip() != "ddp-worker":
                    continue
            with open(f"/proc/{name}/environ", "rb") as environ:
                if token.encode() in environ.read().split(b"\0"):
                    found.append(int(name))
        except OSError:
            continue
    return found


def ask(server, *args):
    done = subprocess.run([common.DDPCTL, "--server", server, *args, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, timeout=WAIT_S, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def steps_in(path):
    try:
        with open(path, encoding="ascii") as file:
            return len(file.readlines())
    except OSError:
        return 0


def slot_of(server):
    node = ask(server, "node", "show", "node0").get("node", {})
    return node.get("gpus"), (node.get("slot_list") or [{}])[0].get("state")


def kill_one(checks, server, token, log):
    """Kills the worker in training, waits for the next; seconds between."""
    gpu.wait_for("training", lambda: steps_in(log) >= 4)
    gpus, state = slot_of(server)
    checks.that(gpus == 1 or (gpus or 0) > 1, f"launcherd found the GPU by itself: {gpus}")
    checks.that(state == "busy", f"its slot is busy: {state}")
    victim = workers(token)
    assert len(victim) == 1, f"workers {victim}"
    os.kill(victim[0], signal.SIGKILL)
    watch = gpu.Stopwatch()
    gpu.wait_for("the next generation", lambda: [pid for pid in workers(token) if pid != victim[0]])
    return watch.passed_s


def finish(job, limit_s):
    """Its exit code; ends it after the limit."""
    try:
        return job.wait(limit_s)
    except subprocess.TimeoutExpired:
        job.terminate()
        job.wait(WAIT_S)
        return f"none within {limit_s} s, {job.returncode} on SIGTERM"


def main():
    checks = common.Checks()
    token = f"PHASE_TOKEN={os.getpid()}"
    with common.folder() as where:
        data = common.write_data(os.path.join(where, "data"), 256 if common.IS_STANDIN else 2000)
        state, log = os.path.join(where, "state"), os.path.join(where, "loss")
        baseline = gpu.Baseline()
        args = [*MODEL, "--device", "cuda", "--max-steps", str(STEPS), "--checkpoint-dir", os.path.join(where, "ckpt"),
                "--checkpoint-every", "2" if common.IS_STANDIN else "20", "--resume", "auto", "--loss-log", log, data]
        command = common.standalone(1, args, "--state-dir", state, "-e", token)
        command[command.index("--max-restarts") + 1] = "1"
        with open(os.path.join(where, "said"), "w", encoding="utf-8") as said:
            job = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                   env=common.environ())
        server = f"unix:{state}/rendezvous.sock"
        took = checks.attempt("kill -9 under launcherd", kill_one, checks, server, token, log)
        events = [event["text"] for event in ask(server, "events").get("events", [])]
        code = finish(job, JOB_LIMIT_S if took is not None else 0)
        with open(os.path.join(where, "said"), encoding="utf-8", errors="replace") as file:
            text = file.read()
        if not checks.that(code == 0, f"the job ends well in its second generation: exit code {code}"):
            print(text[-1500:])
        checks.that(took is not None and took <= gpu.FREE_WITHIN_S + 2, f"from the kill to the next worker: {took} s")
        checks.that(not [event for event in events if "quarantined" in event], f"the slot was never quarantined: {events}")
        checks.that(baseline.seconds_until_back() is not None, "in the end the GPU is as before")
    if took is not None:
        common.figure(f"the next worker {took:.2f} s after the kill")
    checks.end()


if __name__ == "__main__":
    main()
