"""Give queued messages to a carrier, once each, and record what becomes of them.

In the order of a text's way: `sender` does the steps of one carrier. `watch` says whether texts may
go through it now, by its pauses and troubles (`carrier_state`) and by SEND_RATE (`rate`). `claims`
takes the next texts, `outcomes` judges each, `attempts` notes that it is given, and `sends` has a
thread give it, on what `runtime` provides. `recorder` records the answer, and what the carrier says
of texts in doubt (`doubts`); `receipts`, `inbound`, `replies` and `meaning` take what carriers
report later, of which `inbox` lists the replies. If a scheduler dies, `heartbeats.take_over` queues
its texts. `retention` forgets what is too old.
"""
