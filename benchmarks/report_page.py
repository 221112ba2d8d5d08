"""How long a browser takes to open and draw the page of a report.

  python3 benchmarks/report_page.py [--spool build/release/spool] [PLAN FLAGS...]

plans, by default GPT-2 1558M for an H200 in 24 GiB, and opens the page in a headless Chromium, five times at
each of three widths: the time from the beginning of the navigation to the first picture with contents,
which has all drawings, and the page's bytes.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "end_to_end"))

import chromium

PLAN = "--model gpt2-1558m --machine h200 --batch 16 --seq 1024 --memory 24GiB".split()
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
WIDTHS, TIMES = [1280, 760, 375], 5
LONGEST = 30  # seconds until a picture


def paint_ms(browser, page):
    browser.open(page.as_uri())
    until = time.monotonic() + LONGEST
    while (ms := browser.run(PAINT)) is None:
        if time.monotonic() > until:
            sys.exit(f"report_page.py: the browser has drawn nothing of {page} in {LONGEST} s")
        time.sleep(0.01)
    return ms


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--spool", default="build/release/spool", help="the program spool")
    arguments, plan = parser.parse_known_args()
    if not chromium.find():
        sys.exit("report_page.py: there is no Chromium here; Debian's package is chromium")
    with tempfile.TemporaryDirectory(prefix="spool-page-") as folder:
        page = pathlib.Path(folder) / "plan.html"
        command = [arguments.spool, "plan", *(plan or PLAN), "--report", page]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr.strip())
        print(f"{page.stat().st_size} bytes")
        with chromium.Chromium(chromium.find()) as browser:
            for width in WIDTHS:
                browser.resize(width)
                times = [paint_ms(browser, page) for _ in range(TIMES)]
                print(f"{width} wide: first {times[0]:.0f} ms, median {statistics.median(times):.0f} ms")


if __name__ == "__main__":
    main()
