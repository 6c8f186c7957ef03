"""The pages of `ddpctl http` in a real browser, tested like the report (report_browser_test.py): on screens of 360 to 1600 pixels, light and
dark. The browser also loads them from the server itself, and must find nothing that the page's content security policy forbids. Skips, and says so, without
Chromium."""
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case
from processes.gpus import GpuCluster
from processes.runner import equal, run_and_exit
from processes.waiting import Gate, wait_for
from http_test import PROGRAM, Http  # noqa: E402
from report_browser_test import BROWSER, SKIPPED, browse, check  # noqa: E402

LONG = "a-name-of-the-longest-kind-that-a-job-may-have-0123456789012345"


def keep(case, page, path, name, up):
    """Saves the page as a file, with its style sheet beside it."""
    text = page.ok(path).replace('http-equiv="refresh"', 'data-was="refresh"')
    file_path = os.path.join(case.dir, name)
    with open(os.path.join(os.path.dirname(file_path), up, "style.css"), "w", encoding="utf-8") as file:
        file.write(page.ok("/style.css"))
    with open(file_path, "w", encoding="utf-8") as file:
        file.write(text)
    return file_path


def said_by_browser(case, url):
    """What the browser logs: content that the page's policy forbids, missing files."""
    done = subprocess.run([BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={case.dir}/profile", "--enable-logging=stderr",
                           "--dump-dom", url], capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "HOME": case.dir})
    equal(done.returncode, 0, done.stderr[-1000:])
    return "".join(line for line in done.stderr.splitlines(True) if "CONSOLE" in line or "Content Security Policy" in line)


def pages_are_readable_everywhere():
    lines = {f"g{i}": f"gauges {i} {12 * i} {40 + i} {100000 * i} 700000" for i in range(8)}
    with Case() as case, GpuCluster(case, gpus=8, lines=lines) as cluster, Http(case, cluster.address) as page:
        go = Gate(f"{case.dir}/go")
        failed = cluster.submit("--max-restarts", "0", "--name", "failed", "--", "sh", "-c", "echo " + "word" * 200 + "; exit 7")
        equal(cluster.ctl("wait", failed).returncode, 7)
        job = cluster.submit("-n", "6", "--name", LONG, "--", sys.executable, "-c", PROGRAM, go.path, "0")
        for i in range(3):
            cluster.submit("-n", "8", "--name", f"waits-{i}", "--", "true")
        user = cluster.status(job)["user"]
        wait_for("the step", lambda: page.metric(f'ddp_job_step{{job="{job}",name="{LONG}",user="{user}"}}') == 50)
        equal(cluster.ctl("node", "drain", "node0", "--slot", "7", "--reason", "a reason of many words, and one " + "w" * 100).returncode, 0)
        wait_for("the drain", lambda: "a reason of many words" in page.ok("/"))
        wait_for("the gauges", lambda: "84 %" in page.ok("/"))
        check(case, keep(case, page, "/", "index.html", "."), 0)
        os.mkdir(os.path.join(case.dir, "jobs"))
        check(case, keep(case, page, f"/jobs/{job}", "jobs/job.html", ".."), 2)
        for path, text in (("/", "waits-2"), (f"/jobs/{job}", "Log of rank 0")):
            url = f"http://127.0.0.1:{page.port}{path}?refresh=0"
            shown = browse(case, url, False, "--dump-dom")
            assert text in shown, shown[:2000]
            said = said_by_browser(case, url)
            assert "CONSOLE" not in said, said
        go.open()
        equal(cluster.ctl("wait", job).returncode, 0)


if __name__ == "__main__":
    if BROWSER is None:
        print("skipped: there is no Chromium here (Debian's package chromium), so nobody looked at the pages")
        sys.exit(SKIPPED)
    run_and_exit([pages_are_readable_everywhere])
