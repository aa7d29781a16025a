"""Who may do how much, to whom: keys and their limits, sign-ins, the Do Not Call list.

And who did what: the audit.
"""
