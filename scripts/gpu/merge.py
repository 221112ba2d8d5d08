"""Adds a report to a file of results: merge.py RESULTS REPORT WORDS.

The benchmarks of Google Benchmark's report are added with the words before their names, and its context
is kept if the results have none. A report without benchmarks becomes the member that WORDS names."""

import json
import pathlib
import sys

target, file, words = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
results = json.loads(target.read_text()) if target.exists() else {}
report = json.loads(file.read_text())
if "benchmarks" in report:
    results.setdefault("context", report.get("context", {}))
    for benchmark in report["benchmarks"]:
        results.setdefault("benchmarks", []).append({**benchmark, "name": words + benchmark["name"]})
else:
    results[words] = report
target.write_text(json.dumps(results, indent=2) + "\n")
file.unlink()
