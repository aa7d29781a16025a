"""The carrier `console:`."""

from kits import Kit

KIT = Kit(url="console:", bad_urls={"console:": "s3cret //s3cret"})
