"""Give queued messages to carriers, once each, and record the answers.

What happens to one text, from its claim to the record of its answer:

1. A scheduler's round calls `Sender.step` for each carrier. `CarrierWatch.permission` says who may
   send now: everybody, nobody, or after a pause one text as a probe.
2. `Turns.claim` takes the next texts: automatic replies first, then urgent keys, then the others in
   turn. The text is now `sending`, and its claim number counts one more. If no beat of this
   scheduler is stored in the same transaction (`Pulse.beat_in_transaction`), nothing is claimed.
3. `Sender.judge` has `outcomes.judge` look at lists, hours, age and doubts. What may not go gets
   its Outcome by `Message.apply`.
4. `Sender.within_rate` takes SEND_RATE, `Attempt.begin` writes the attempt, and the transaction
   ends: from now on, this scheduler's heartbeat is the lease on the text.
5. `Sends.give` runs in a thread. It connects, looks again whether the heartbeat is fresh and the
   hours allow it, and gives the text to the carrier. It uses no database.
6. `Recorder.record` takes the answer. A yes goes through `receipts.record_accepted`, which also
   finds receipts that came first. For a no, `outcomes.after_error` decides between another try,
   another carrier, a pause and an end; `Recorder.end_attempt` ends the attempt.
7. If no answer came, the attempt is unclear and the text in doubt: `doubts.recount` has the message
   repeat that. `Questions.ask` asks the carrier, and `QuestionRecorder` records what it says; a
   carrier that cannot be asked is given one more copy.
8. If the scheduler dies, another one sees no beats (`Pulse.watch`) and deletes its heartbeat, which
   frees its attempts. `doubts.take_over` marks them as unclear and queues their texts.

`reports` records what carriers report without being asked. `carrier_state` is what all schedulers
know of a carrier, `rate` is SEND_RATE, `runtime` has threads and clocks, and `retention` deletes
what is too old.
"""
