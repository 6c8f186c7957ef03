"""The report of a job in a real browser: on screens of 360 to 1600 pixels, light and dark. Nothing may be wider than the screen, no texts
in a chart may overlap or leave it, and every text must have enough contrast. Skips, and says so, without Chromium (chromium, google-chrome,
or the program that DDP_BROWSER names). With DDP_BROWSER_PICTURES=DIR it keeps pictures there."""
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "lib"))
from processes.case import Case, Cluster
from processes.runner import equal, run_and_exit

SKIPPED = 77
BROWSER = os.environ.get("DDP_BROWSER") or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (360, 768, 1600)

# Data for everything that a report shows: two restarts, checkpoints, validations, a spike, an odd program name.
PROGRAM = r'''
import json, math, os, sys
rank, generation = int(os.environ["RANK"]), int(os.environ["DDP_GENERATION"])
if rank == 0:
    file = open(os.environ["DDP_METRICS"], "a", buffering=1)
    def put(**fields):
        file.write(json.dumps(fields) + "\n")
    first = {1: 1, 2: 3001, 3: 3201}[generation]
    put(kind="resume", step=first - 1, generation=generation)
    for step in range(first, {1: 3500, 2: 3300, 3: 12001}[generation]):
        loss = 2.3 * math.exp(-step / 1500) + 0.001 + (900 if step == 5000 else 0) + 0.0005 * math.sin(step)
        put(kind="step", epoch=1 + step // 1000, step=step, loss=loss, lr=0.1 * 0.5 ** (step // 3000), images_per_s=40000 + step % 97,
            acc1=90 * (1 - loss / 1000), step_ms=20 + step % 5, data_ms=0.1, exposed_ms=3, loss_scale=2.0 ** (10 + step // 2000))
        if step % 500 == 0:
            put(kind="checkpoint", step=step)
        if step % 1000 == 0:
            put(kind="epoch", epoch=step // 1000, step=step, loss=loss)
            put(kind="validation", epoch=step // 1000, step=step, loss=loss * 1.2, acc1=70 + step / 1000, acc5=90 + step / 2000)
    print(f"<b>line</b> {generation} " * 40)
    if generation < 3:
        sys.exit(3)
'''

# Runs in a page that shows the report in a frame; the result is JSON in the body.
LOOK = r'''<!DOCTYPE html><body><iframe id="f" style="border:0" width="WIDTH" height="900" src="PAGE"></iframe><script>
function luminance(c) {
  const l = c.map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * l[0] + 0.7152 * l[1] + 0.0722 * l[2];
}
function numbers(color) { return color.match(/[\d.]+/g).map(Number); }
function contrast(a, b) {
  const x = luminance(a), y = luminance(b);
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
}
function behind(win, element) {
  for (let at = element; at; at = at.parentElement) {
    const c = numbers(win.getComputedStyle(at).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c.slice(0, 3);
  }
  return [255, 255, 255];
}
onload = () => {
  const frame = document.getElementById("f"), win = frame.contentWindow, doc = frame.contentDocument;
  const found = {problems: [], texts: 0, charts: 0, background: behind(win, doc.body)};
  const say = text => { if (found.problems.length < 20) found.problems.push(text); };
  if (doc.documentElement.scrollWidth > doc.documentElement.clientWidth)
    say("scrolls: " + doc.documentElement.scrollWidth + " > " + doc.documentElement.clientWidth);
  for (const element of doc.querySelectorAll("body *")) {
    const box = element.getBoundingClientRect();
    if (box.width > 0 && (box.right > WIDTH + 1 || box.left < -1)) say("leaves the screen: " + element.outerHTML.slice(0, 80));
    const own = [...element.childNodes].some(n => n.nodeType == 3 && n.data.trim());
    if (!own || ["title", "desc"].includes(element.tagName)) continue;
    found.texts++;
    const style = win.getComputedStyle(element);
    const color = numbers(element.closest("svg") ? style.fill : style.color).slice(0, 3), ratio = contrast(color, behind(win, element));
    if (ratio < 4.5) say("contrast " + ratio.toFixed(2) + ": " + element.textContent.slice(0, 40));
  }
  for (const chart of doc.querySelectorAll("svg.chart")) {
    found.charts++;
    const frameBox = chart.getBoundingClientRect(), texts = [...chart.querySelectorAll("text")];
    const boxes = texts.map(t => t.getBoundingClientRect());
    if (frameBox.height < 100) say("a flat chart");
    boxes.forEach((a, i) => {
      if (a.left < frameBox.left - 1 || a.right > frameBox.right + 1 || a.top < frameBox.top - 1 || a.bottom > frameBox.bottom + 1)
        say("leaves its chart: " + texts[i].textContent);
      boxes.slice(i + 1).forEach((b, k) => {
        if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
          say("one over the other: " + texts[i].textContent + " and " + texts[i + 1 + k].textContent);
      });
    });
    for (const line of chart.querySelectorAll("polyline, .restart, .ckpt, circle")) {
      const box = line.getBoundingClientRect();
      if (box.left < frameBox.left - 1 || box.right > frameBox.right + 1 || box.top < frameBox.top - 1 || box.bottom > frameBox.bottom + 1)
        say("a line leaves its chart");
    }
  }
  document.body.innerHTML = "<pre>" + JSON.stringify(found).replace(/&/g, "&amp;").replace(/</g, "&lt;") + "</pre>";
};
</script></body>'''


def browse(case, url, is_dark, *args):
    done = subprocess.run([BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--allow-file-access-from-files",
                           f"--user-data-dir={case.dir}/profile", f"--blink-settings=preferredColorScheme={0 if is_dark else 1}",
                           *args, url], capture_output=True, text=True, timeout=120, check=False, env={**os.environ, "HOME": case.dir})
    equal(done.returncode, 0, done.stderr[-1000:])
    return done.stdout


def look(case, page, width, is_dark):
    with open(f"{case.dir}/look.html", "w", encoding="utf-8") as file:
        file.write(LOOK.replace("WIDTH", str(width)).replace("PAGE", f"file://{page}"))
    text = re.search("<pre>(.*)</pre>", browse(case, f"file://{case.dir}/look.html", is_dark, "--dump-dom"), re.DOTALL)
    assert text, "the page that looks did not run"
    found = json.loads(text.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    pictures = os.environ.get("DDP_BROWSER_PICTURES")
    if pictures:
        shade = "dark" if is_dark else "light"
        browse(case, f"file://{page}", is_dark, f"--screenshot={pictures}/{os.path.basename(page)[:-5]}-{width}-{shade}.png",
               f"--window-size={max(width, 500)},2400")
    return found


def check(case, page, charts):
    for width in WIDTHS:
        for is_dark in (False, True):
            found = look(case, page, width, is_dark)
            about = f"{os.path.basename(page)}, {width} pixels, {'dark' if is_dark else 'light'}"
            equal(found["problems"], [], about)
            equal((found["charts"], found["texts"] > 20, sum(found["background"]) < 384), (charts, True, is_dark), about)


def a_report_is_readable_everywhere():
    with Case() as case, Cluster(case) as cluster:
        job = cluster.submit("-n", "4", "--max-restarts", "2", "--name", "a-name-of-the-longest-kind-that-a-job-may-have-0123456789012345",
                             "--", sys.executable, "-c", PROGRAM, "x" * 300, "<script>")
        equal(cluster.ctl("wait", job).returncode, 0)
        equal(cluster.ctl("report", job, "-o", f"{case.dir}/full.html").returncode, 0)
        check(case, f"{case.dir}/full.html", 6)
        job = cluster.submit("--max-restarts", "0", "--", "sh", "-c", "echo {} > $DDP_METRICS; exit 7")
        equal(cluster.ctl("wait", job).returncode, 7)
        equal(cluster.ctl("report", job, "-o", f"{case.dir}/none.html").returncode, 0)
        check(case, f"{case.dir}/none.html", 0)


if __name__ == "__main__":
    if BROWSER is None:
        print("skipped: there is no Chromium here (Debian's package chromium), so nobody looked at the report")
        sys.exit(SKIPPED)
    run_and_exit([a_report_is_readable_everywhere])
