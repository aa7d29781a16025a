"""SMPP: the announced length of a text decides what belongs to it."""

import pytest

from carriers import pdus

FIELDS = b"\0\1\1" + b"15005550006\0" + b"\1\1" + b"12345\0" + b"\0\0\0\0\0\0\0\0\0"


def test_a_text_of_just_the_announced_length_is_read():
    assert pdus.delivery(pdus.DELIVER_SM, FIELDS + b"\4STOP").message == b"STOP"


def test_a_text_that_lacks_one_octet_is_malformed():
    with pytest.raises(ValueError, match="too soon"):
        pdus.delivery(pdus.DELIVER_SM, FIELDS + b"\5STOP")
