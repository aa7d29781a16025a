"""Rows of several requests in one statement."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from peewee import IntegrityError, OperationalError

from databases import on_both
from stored_messages import create
from texting.database import db
from texting.messages.inserts import MOST, Inserts
from texting.messages.model import Message

pytestmark = on_both


class Doubling:
    """Double numbers, once `go_on` is set; remember the batches, and refuse whatever is odd."""

    def __init__(self):
        self.batches, self.go_on, self.outage = [], threading.Event(), None
        self.go_on.set()

    def __call__(self, numbers):
        self.batches.append(numbers)
        self.go_on.wait(60)
        if self.outage:
            raise self.outage
        for number in numbers:
            if number % 2:
                error = IntegrityError(f"{number} is odd")
                error.orig = ValueError()
                raise error
        return [number * 2 for number in numbers]


@pytest.fixture
def double(database_url):
    return Doubling()


def insert_each(double, *numbers):
    """Insert the first number and, while it is under way, all others; outcomes or errors."""
    inserts = Inserts(double)
    double.go_on.clear()
    with ThreadPoolExecutor(len(numbers)) as pool:
        futures = [pool.submit(inserts.insert, numbers[0])]
        while not double.batches:
            pass
        futures += [pool.submit(inserts.insert, number) for number in numbers[1:]]
        while inserts._rows.qsize() < len(numbers) - 1:
            pass
        double.go_on.set()
        return [future.exception() or future.result() for future in futures]


def test_rows_that_come_while_one_is_inserted_share_a_statement_and_each_gets_its_outcome(double):
    assert insert_each(double, 0, 2, 4, 6) == [0, 4, 8, 12]
    assert [sorted(batch) for batch in double.batches] == [[0], [2, 4, 6]]


def test_no_more_rows_share_a_statement_than_it_takes(double):
    evens = range(0, 160, 2)
    assert insert_each(double, *evens) == [2 * number for number in evens]
    assert max(map(len, double.batches)) == MOST


def test_an_error_of_one_row_reaches_its_request_and_no_neighbour(double):
    first, bad, *others = insert_each(double, 0, 7, 2, 4, 6)
    assert (first, others) == (0, [4, 8, 12])
    assert str(bad) == "7 is odd"


def test_an_outage_reaches_all_of_a_batch_without_a_statement_for_each(double):
    double.outage = OperationalError("the disk is gone")
    assert insert_each(double, 0, 2, 4) == [double.outage] * 3
    assert len(double.batches) == 2


def test_a_row_of_a_transaction_is_inserted_in_it_and_alone(database_url):
    with db.atomic() as transaction:
        create("undone")
        transaction.rollback()
    create("kept")
    assert [message.message for message in Message.select()] == ["kept"]
