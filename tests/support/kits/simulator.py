"""The carrier `simulator:`."""

from kits import Kit

KIT = Kit(url="simulator:", bad_urls={"simulator:": "s3cret //s3cret"})
