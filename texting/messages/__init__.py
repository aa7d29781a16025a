"""What becomes of a message: its state, its copies at carriers, and what people and time decide.

Begin with `model`: the table, and each change of a state. `attempts` has a row for each time that a
message was given to a carrier, `doubts` asks about those whose answer never came, `receipts` takes
what carriers report, `waiting` moves what is due, and `decisions` does what people say.
"""
