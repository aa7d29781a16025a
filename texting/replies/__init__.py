"""What recipients write back, and what follows from it.

Begin with `inbound.record`, which takes whatever a carrier reports: `meaning` (pure) reads a reply,
`model` keeps it, `opt_outs` obeys STOP and START, and receipts go to `messages`. `inbox` lists the
replies that wait for people.
"""
