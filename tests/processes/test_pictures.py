"""bin/pictures.py: the pictures of the desk in docs/."""

import subprocess
import sys

from running import ROOT


def test_the_pictures_can_be_made(chromium, tmp_path):
    words = [sys.executable, ROOT / "bin/pictures.py", tmp_path]
    subprocess.run(words, check=True, capture_output=True, timeout=300)
    made = {path.name for path in tmp_path.glob("*.png")}
    assert made == {path.name for path in (ROOT / "docs/pictures").glob("*.png")}
