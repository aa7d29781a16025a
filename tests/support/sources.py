"""The modules of the service, as the tests of its layout and style read them."""

from running import ROOT

AT_ROOT = sorted(ROOT.glob("*.py"))
IN_PACKAGE = sorted(ROOT.glob("texting/**/*.py"))
SOURCES = [*AT_ROOT, *IN_PACKAGE]
