#!/usr/bin/env python3
"""How long pages of `tamp inspect --html` take to load in headless Chromium: medians of several starts of the browser, in milliseconds.

    page_load.py [--runs N] FILE.html...

load: from the start of the navigation to the end of the load event. Parts of the page's script: parse (JSON and what is derived from it), layout
(the graph, the table), draw (three canvases, with the browser's own first layout of the page).
"""
import argparse
import html
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

LOOK = """<script>addEventListener("load", () => setTimeout(() => {
  const { navigationStart, loadEventEnd } = performance.timing, at = (name) => performance.getEntriesByName(name)[0].startTime;
  document.body.dataset.times = JSON.stringify({ load: loadEventEnd - navigationStart, parse: at("parsed") - at("begun"), layout: at("laid out") - at("parsed"),
    draw: at("drawn") - at("laid out") });
}, 0));</script>"""


def once(browser, text):
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder, "page.html")
        page.write_text(text.replace("</body>", LOOK + "</body>"))
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/browser", "--window-size=1500,1300", "--timeout=20000",
                   "--dump-dom", f"file://{page}"]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120)
    found = re.search(r'data-times="([^"]*)"', done.stdout)
    if not found:
        sys.exit(f"the page did not come to its end: {done.stderr[-500:]}")
    return json.loads(html.unescape(found[1]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("pages", nargs="+", metavar="FILE.html")
    arguments = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        sys.exit("no chromium: test/run.sh installs it (test_packages of cmake/packages.sh)")
    print("| page | MB | load | parse | layout | draw |\n|---|---|---|---|---|---|")
    for name in arguments.pages:
        text = pathlib.Path(name).read_text()
        runs = [once(browser, text) for _ in range(arguments.runs)]
        medians = [f"{statistics.median(run[what] for run in runs):.0f}" for what in ("load", "parse", "layout", "draw")]
        print(f"| {pathlib.Path(name).name} | {len(text.encode()) / 1e6:.2f} | {' | '.join(medians)} |", flush=True)


if __name__ == "__main__":
    main()
