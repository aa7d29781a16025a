"""Give queued messages to carriers, once each, and record the answers.

Begin with `sender`, the steps of one carrier: `watch` says whether texts may go now, by its pauses
(`carrier_state`) and SEND_RATE (`rate`); `claims` takes the next texts, `outcomes` judges each, and
`sends` has a thread of `runtime` give it; `recorder` records the answer. `heartbeats` takes over
from dead schedulers, and `retention` deletes what is too old.
"""
