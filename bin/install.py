"""Install a file of pinned requirements, and show how many packages were found."""

import re
import subprocess
import sys
from pathlib import Path

requirements = sys.argv[1]
total = len(re.findall("^[a-z].*==", Path(requirements).read_text(), re.MULTILINE))
pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-color"]
pip += ["--progress-bar=off", "--require-hashes", "-r", requirements]
said, found, is_seen = [], 0, sys.stdout.isatty()
print(f"installing {total} packages of {requirements} (the first time takes a minute)", flush=True)
with subprocess.Popen(pip, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
    for line in process.stdout:
        said.append(line)
        found += line.startswith(("Collecting ", "Requirement already satisfied: "))
        if is_seen:
            action = "installing" if line.startswith("Installing") else f"{found} of {total} found"
            print(f"\r{action} ...", end="\033[K\r", flush=True)
if is_seen:
    print("\033[K", end="", flush=True)
if process.returncode:
    sys.stderr.writelines(said[-20:])
sys.exit(process.returncode)
