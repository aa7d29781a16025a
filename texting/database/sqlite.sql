-- What runs for each text or each round of a scheduler, on SQLite; see statements.py. postgres.sql
-- has the same names, sentences, parameters and results.

-- beat: Note that a scheduler is alive; change nothing if it has been declared dead.
UPDATE heartbeat SET beats = beats + 1, beat_at = :now WHERE sender = :sender

-- carrier_state: Read the state of a carrier.
SELECT * FROM carrier_state WHERE name = :name

-- open_of_sender: Find what a scheduler gives to a carrier (no result yet), or asks it about.
SELECT message_id, claim_number, result FROM attempt WHERE sender = :sender AND carrier = :carrier

-- is_any_due: Find whether a message that was due by an instant may be sent.
SELECT true AS is_due FROM message WHERE status IN ('queued') AND approved AND send_at <= :at LIMIT 1

-- hold_keys: Read the keys of new texts; let nobody lock them before the transaction ends.
SELECT id, role, limits, recipient_limit, paused_at, revoked_at FROM api_key
WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id

-- stored_before: Find the messages with these idempotency keys, or their digests once redacted.
SELECT key_id, idempotency_key, response, request_digest
FROM json_each(:rows) CROSS JOIN message INDEXED BY message_idempotency
WHERE key_id = json_extract(value, '$.key') AND idempotency_key = json_extract(value, '$.name')
UNION ALL SELECT key_id, json_extract(value, '$.name'), response, request_digest
FROM json_each(:rows) CROSS JOIN message INDEXED BY message_forgotten
WHERE key_id = json_extract(value, '$.key') AND idempotency_key IS NULL
    AND idempotency_digest IS NOT NULL AND idempotency_digest = json_extract(value, '$.digest')

-- listed: Find which of these numbers are on the Do Not Call list, and whether they opted out.
SELECT number, true AS opted_out FROM opt_out
WHERE number IN (SELECT value FROM json_each(:numbers))
UNION ALL SELECT number, false FROM do_not_call
WHERE number IN (SELECT value FROM json_each(:numbers))

-- begin_attempts: Note that these claimed messages are given to a carrier.
INSERT INTO attempt (message_id, claim_number, carrier, copy, sender, begun_at, allowed)
SELECT json_extract(value, '$.id'), json_extract(value, '$.claim_number'), :carrier,
    json_extract(value, '$.copy'), :sender, :now, json_extract(value, '$.allowed')
FROM json_each(:rows)

-- lock_messages: Lock these messages in the order of their ids; SQLite's transactions are alone.
SELECT value AS id FROM json_each(:ids) WHERE false

-- copies: Read the copies of these messages that are open, or have a reference, oldest first.
SELECT message_id, attempt.claim_number, attempt.carrier, result, words, reference, message.status
FROM attempt CROSS JOIN message ON message.id = message_id
WHERE message_id IN (SELECT value FROM json_each(:ids))
    AND (result IS NULL OR result = 'unclear' OR reference IS NOT NULL)
ORDER BY attempt.claim_number

-- accept: Note that a carrier accepted these locked messages, unless that is known.
UPDATE message SET carrier = :carrier, status = 'sent', finished_at = :now, last_error = NULL,
    last_error_at = NULL, attempts = max(1, attempts + each.tries), carrier_reference = each.reference
FROM (
    SELECT json_extract(value, '$.id') AS id, json_extract(value, '$.reference') AS reference,
        json_extract(value, '$.tries') AS tries
    FROM json_each(:rows)
) AS each
WHERE message.id = each.id AND status NOT IN ('sent', 'delivered', 'undelivered')
RETURNING "to", message.id, status, attempts, parts, last_error, finished_at, receipt_at,
    (SELECT key_id FROM event_address WHERE key_id = message.key_id AND off IS NULL) AS receiver

-- end_accepted: End the attempts that a carrier accepted.
UPDATE attempt SET result = 'taken', ended_at = :now, words = NULL, reference = each.reference,
    sender = NULL
FROM (
    SELECT json_extract(value, '$.id') AS id, json_extract(value, '$.claim_number') AS claim_number,
        json_extract(value, '$.reference') AS reference
    FROM json_each(:rows)
) AS each
WHERE message_id = each.id AND attempt.claim_number = each.claim_number

-- has_early_receipts: Find whether a carrier's kept receipt may be about one of these messages.
SELECT true AS has_some FROM early_receipt
WHERE carrier = :carrier AND reference IN (SELECT value FROM json_each(:references))
UNION ALL SELECT true FROM early_receipt
WHERE carrier = :carrier AND message_id IN (SELECT value FROM json_each(:ids))
UNION ALL SELECT true FROM early_receipt
WHERE carrier = :carrier AND phone IN (SELECT value FROM json_each(:phones))
LIMIT 1

-- lanes_after: Find, for each of these lanes, the next one with messages to be sent.
SELECT (
    SELECT lane FROM message WHERE lane > value AND status IN ('queued') AND approved
    ORDER BY lane LIMIT 1
) AS lane
FROM json_each(:lanes)

-- keys_with_texts: Find the keys that have messages to be sent, in any lane, and are not paused.
SELECT id, urgent FROM api_key WHERE paused_at IS NULL AND (
    SELECT 1 FROM message INDEXED BY message_sendable_key
    WHERE key_id = api_key.id AND status IN ('queued') AND approved
    ORDER BY key_id, send_at, id LIMIT 1
) IS NOT NULL

-- pairs_with_texts: Find which of these pairs of lane and key have messages to be sent.
SELECT lane, key_id FROM (
    SELECT json_extract(value, '$[0]') AS lane, json_extract(value, '$[1]') AS key_id
    FROM json_each(:pairs)
) AS pair WHERE (
    SELECT 1 FROM message INDEXED BY message_lane
    WHERE (lane, key_id) >= (pair.lane, pair.key_id) AND (lane, key_id) <= (pair.lane, pair.key_id)
        AND status IN ('queued') AND approved
    ORDER BY lane, key_id, send_at, id LIMIT 1
) IS NOT NULL

-- ready_since: Find since when the first message of these pairs of lane and key could have gone.
SELECT max(few.send_at, coalesce(few.approved_at, few.send_at)) AS at, pair.lane, pair.key_id
FROM (
    SELECT json_extract(value, '$[0]') AS lane, json_extract(value, '$[1]') AS key_id
    FROM json_each(:pairs)
) AS pair CROSS JOIN message AS few ON few.id IN (
    SELECT id FROM message INDEXED BY message_lane
    WHERE (lane, key_id) >= (pair.lane, pair.key_id) AND (lane, key_id) <= (pair.lane, pair.key_id)
        AND status IN ('queued') AND approved
    ORDER BY lane, key_id, send_at, id LIMIT 1
)

-- claimable: Find messages to be sent of keys in lanes, of each key a share that is longest due.
SELECT id, key_id, send_at FROM (
    SELECT few.id, few.key_id, few.send_at,
        ROW_NUMBER() OVER (PARTITION BY few.key_id ORDER BY few.send_at, few.id) AS place
    FROM (
        SELECT json_extract(value, '$[0]') AS lane, json_extract(value, '$[1]') AS key_id
        FROM json_each(:pairs)
    ) AS pair CROSS JOIN message AS few ON few.id IN (
        SELECT id FROM message INDEXED BY message_lane
        WHERE (lane, key_id) >= (pair.lane, pair.key_id)
            AND (lane, key_id) <= (pair.lane, pair.key_id)
            AND status IN ('queued') AND approved
        ORDER BY lane, key_id, send_at, id LIMIT :share
    )
    WHERE (SELECT paused_at FROM api_key WHERE id = pair.key_id) IS NULL
) AS placed WHERE place <= :share

-- claim: Claim the messages that `claimable` would find.
UPDATE message SET status = 'sending', claim_number = claim_number + 1 WHERE id IN (
    SELECT id FROM ({claimable}) AS found
) RETURNING *
