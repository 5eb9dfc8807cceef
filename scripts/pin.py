"""Compare the behaviour of two commits bit for bit: python scripts/pin.py OLD NEW.

"." is the working tree. For each commit, a subprocess runs scripts/pin_probe.py of that commit
(or of this tree, if the commit has none), which returns facts: hashes of weights, batches and
predictions, and files as text. This script prints each difference, and exits with 1 if a fact
differs, fails, or is missing in NEW. The facts of a commit are cached in .pin/.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from difflib import unified_diff
from fnmatch import fnmatch
from functools import partial
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROBE = ("scripts/pin_probe.py", "scripts/pin.toml")
MAX_LINES = 12
"""Lines to print of one difference."""


def git(*arguments: str) -> bytes | None:
    """Return the output of a git command, or None if the command fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def run_probe(tree: Path, probe: Path, pattern: str) -> dict[str, str]:
    """Return the facts about the source tree in a folder."""
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "facts.json"
        command = [sys.executable, str(probe), str(out), pattern]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"the probe of {tree} failed:\n{done.stderr[-4000:]}")
        facts: dict[str, str] = json.loads(out.read_text(encoding="utf-8"))
        return facts


def collect_facts(commit: str, pattern: str) -> dict[str, str]:
    """Return the facts about a commit, from the cache if possible."""
    if commit == ".":
        return run_probe(ROOT, ROOT / PROBE[0], pattern)
    name = git("rev-parse", "--verify", f"{commit}^{{commit}}")
    if name is None:
        raise SystemExit(f"git knows no commit {commit!r}")
    sha = name.decode().strip()
    own = [git("show", f"{sha}:{path}") for path in PROBE]
    probe = [text or (ROOT / path).read_bytes() for text, path in zip(own, PROBE, strict=True)]
    environment = f"{sys.version} {version('torch')} {version('numpy')} {version('pyarrow')}"
    key = hashlib.sha256(b"\0".join([sha.encode(), environment.encode(), *probe])).hexdigest()[:20]
    cached = ROOT / ".pin" / f"{sha[:12]}-{key}.json"
    if cached.exists():
        facts: dict[str, str] = json.loads(cached.read_text(encoding="utf-8"))
        return {n: text for n, text in facts.items() if fnmatch(n.partition(": ")[0], pattern)}
    with tempfile.TemporaryDirectory() as folder:
        archive = git("archive", sha, "src", *(p for p, t in zip(PROBE, own, strict=True) if t))
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        tree = Path(folder)
        facts = run_probe(tree, (tree if own[0] else ROOT) / PROBE[0], pattern)
    if pattern == "*" and not any(text.startswith("ERROR") for text in facts.values()):
        cached.parent.mkdir(exist_ok=True)
        temporary = cached.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(facts), encoding="utf-8")
        temporary.replace(cached)
    return facts


def compare(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[list[str], Counter[str]]:
    """Return lines about the facts that are not equal, and the number of facts by status."""
    lines, counts = [], Counter[str]()
    for name in sorted(old.keys() | new.keys()):
        if name not in old:
            status = "only in NEW"
        elif name not in new:
            status = "only in OLD"
        elif new[name].startswith("ERROR"):
            status = "failing"
        else:
            status = "equal" if old[name] == new[name] else "different"
        counts[status] += 1
        if status == "equal":
            continue
        lines.append(f"{status}: {name}")
        before, after = (facts.get(name, "").splitlines() for facts in (old, new))
        if status == "failing":
            lines += after[:MAX_LINES]
        elif status == "different":
            shown = list(unified_diff(before, after, n=0, lineterm=""))[2:]
            shown = [line for line in shown if not line.startswith("@@")]
            lines += [f"    {line[:200]}" for line in shown[:MAX_LINES]]
            if len(shown) > MAX_LINES:
                lines.append(f"    ... {len(shown) - MAX_LINES} more lines")
    return lines, counts


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", metavar="OLD", help="commit, or . for the working tree")
    parser.add_argument("new", metavar="NEW")
    parser.add_argument("--only", metavar="PATTERN", default="*", help="such as 'aggregator/*'")
    given = parser.parse_args()
    with ThreadPoolExecutor(2) as pool:
        old, new = pool.map(partial(collect_facts, pattern=given.only), (given.old, given.new))
    lines, counts = compare(old, new)
    print(*lines, sep="\n", end="\n" if lines else "")
    print(", ".join(f"{count:,} {status}" for status, count in counts.items()) or "no facts")
    return int(counts["equal"] + counts["only in NEW"] < counts.total() or not counts)


if __name__ == "__main__":
    raise SystemExit(main())
