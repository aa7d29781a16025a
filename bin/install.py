"""Install a file of pinned requirements, and show how many packages are there."""

import re
import subprocess
import sys
from pathlib import Path

requirements = sys.argv[1]
total = len(re.findall("^[a-z].*==", Path(requirements).read_text(), re.MULTILINE))
pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-color"]
pip += ["--progress-bar=off", "--require-hashes", "-r", requirements]
done, is_seen = 0, sys.stdout.isatty()
print(f"installing {total} packages of {requirements} (the first time takes a minute)", flush=True)
with subprocess.Popen(pip, stdout=subprocess.PIPE, text=True) as process:
    for line in process.stdout:
        done += line.startswith(("Collecting ", "Requirement already satisfied: "))
        if is_seen:
            action = "installing" if line.startswith("Installing") else f"{done} of {total} found"
            print(f"\r{action} ...", end="\033[K\r", flush=True)
if is_seen:
    print("\033[K", end="", flush=True)
sys.exit(process.returncode)
