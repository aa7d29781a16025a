"""Packages of npm for tests, installed once and kept in pytest's cache."""

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def npm_package(request, tmp_path_factory):
    """Install a package, `npm_package("smpp", "0.5.1")`; return its folder, or skip."""

    def install(name, version):
        if not (shutil.which("node") and shutil.which("npm")):
            pytest.skip("there is no Node.js with npm")
        folder = Path(request.config.cache.mkdir(name)) / version
        if not folder.exists():
            fresh = tmp_path_factory.mktemp("npm") / name
            words = "npm install --no-audit --no-fund --ignore-scripts --fetch-retries=0"
            words = [*words.split(), f"{name}@{version}", "--prefix", fresh]
            try:
                subprocess.run(words, check=True, capture_output=True, timeout=60)
            except subprocess.SubprocessError:
                pytest.skip(f"the npm package {name} cannot be installed")
            with suppress(OSError):  # another process of the suite was faster
                shutil.move(fresh, folder)
        return folder / "node_modules"

    return install
