"""models.py: the list of the service's tables."""

import models
from texting import database


def test_no_table_is_missing_and_each_comes_after_those_that_it_refers_to():
    assert sorted(models.TABLES, key=str) == sorted(database.Table.__subclasses__(), key=str)
    for place, table in enumerate(models.TABLES):
        assert {*table._meta.model_refs} <= {*models.TABLES[: place + 1]}, table
