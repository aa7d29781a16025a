"""Admission of new messages, and what becomes of them at carriers, with people and with time.

`storing` keeps new messages for good, if `admission` finds no reason against it; `inserts` has
those that arrive together share a statement.

`model` has the table, and each change of a state. `attempts` has a row for each time that a
message was given to a carrier, `doubts` asks about those whose answer never came, `receipts` takes
what carriers report, `waiting` moves what is due, and `decisions` does what people say.
"""
