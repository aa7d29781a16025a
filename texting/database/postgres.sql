-- What runs for each text or each round of a scheduler, on Postgres; see statements.py. sqlite.sql
-- has the same names, sentences, parameters and results. Ids are compared with an array: a plan
-- for a query in its place may read the whole table.

-- beat: Note that a scheduler is alive; change nothing if it has been declared dead.
UPDATE heartbeat SET beats = beats + 1, beat_at = :now WHERE sender = CAST(:sender AS uuid)

-- carrier_state: Read the state of a carrier.
SELECT * FROM carrier_state WHERE name = :name

-- open_of_sender: Find what a scheduler gives to a carrier (no result yet), or asks it about.
SELECT message_id, claim_number, result FROM attempt
WHERE sender = CAST(:sender AS uuid) AND carrier = :carrier

-- is_any_due: Find whether a message that was due by an instant may be sent.
SELECT true AS is_due FROM message WHERE status IN ('queued') AND approved AND send_at <= :at LIMIT 1

-- hold_keys: Read the keys of new texts; let nobody lock them before the transaction ends.
SELECT id, role, limits, recipient_limit, paused_at, revoked_at FROM api_key
WHERE id = ANY(ARRAY(
    SELECT CAST(value AS integer) FROM json_array_elements_text(CAST(:ids AS json)) AS each(value)
))
ORDER BY id FOR KEY SHARE

-- stored_before: Find the messages with these idempotency keys, or their digests once redacted.
SELECT key_id, each.name AS idempotency_key, response, request_digest
FROM json_to_recordset(CAST(:rows AS json)) AS each(key integer, name text, digest text)
CROSS JOIN LATERAL (
    SELECT key_id, response, request_digest FROM message
    WHERE key_id = each.key AND idempotency_key = each.name
    UNION ALL SELECT key_id, response, request_digest FROM message
    WHERE key_id = each.key AND idempotency_key IS NULL AND idempotency_digest IS NOT NULL
        AND idempotency_digest = each.digest
) AS found

-- listed: Find which of these numbers are on the Do Not Call list, and whether they opted out.
SELECT number, true AS opted_out FROM opt_out
WHERE number = ANY(ARRAY(SELECT json_array_elements_text(CAST(:numbers AS json))))
UNION ALL SELECT number, false FROM do_not_call
WHERE number = ANY(ARRAY(SELECT json_array_elements_text(CAST(:numbers AS json))))

-- begin_attempts: Note that these claimed messages are given to a carrier.
INSERT INTO attempt (message_id, claim_number, carrier, copy, sender, begun_at, allowed)
SELECT id, claim_number, :carrier, copy, CAST(:sender AS uuid), :now, allowed
FROM json_to_recordset(CAST(:rows AS json))
    AS each(id uuid, claim_number integer, copy integer, allowed text)

-- lock_messages: Lock these messages in the order of their ids; SQLite's transactions are alone.
SELECT id FROM message
WHERE id = ANY(ARRAY(
    SELECT CAST(value AS uuid) FROM json_array_elements_text(CAST(:ids AS json)) AS each(value)
))
ORDER BY id FOR UPDATE

-- copies: Read the copies of these messages that are open, or have a reference, oldest first.
SELECT message_id, attempt.claim_number, attempt.carrier, result, words, reference, message.status
FROM attempt JOIN message ON message.id = message_id
WHERE message_id = ANY(ARRAY(
        SELECT CAST(value AS uuid) FROM json_array_elements_text(CAST(:ids AS json)) AS each(value)
    ))
    AND (result IS NULL OR result = 'unclear' OR reference IS NOT NULL)
ORDER BY attempt.claim_number

-- accept: Note that a carrier accepted these locked messages, unless that is known.
UPDATE message SET carrier = :carrier, status = 'sent', finished_at = :now, last_error = NULL,
    last_error_at = NULL, attempts = greatest(1, attempts + each.tries), carrier_reference = each.reference
FROM json_to_recordset(CAST(:rows AS json)) AS each(id uuid, reference text, tries integer)
WHERE message.id = each.id AND status NOT IN ('sent', 'delivered', 'undelivered')
RETURNING "to", message.id, status, attempts, parts, last_error, finished_at, receipt_at,
    (SELECT key_id FROM event_address WHERE key_id = message.key_id AND off IS NULL) AS receiver

-- end_accepted: End the attempts that a carrier accepted.
UPDATE attempt SET result = 'taken', ended_at = :now, words = NULL, reference = each.reference,
    sender = NULL
FROM json_to_recordset(CAST(:rows AS json)) AS each(id uuid, claim_number integer, reference text)
WHERE message_id = each.id AND attempt.claim_number = each.claim_number

-- has_early_receipts: Find whether a carrier's kept receipt may be about one of these messages.
SELECT true AS has_some FROM early_receipt
WHERE carrier = :carrier
    AND reference = ANY(ARRAY(SELECT json_array_elements_text(CAST(:references AS json))))
UNION ALL SELECT true FROM early_receipt
WHERE carrier = :carrier AND message_id = ANY(ARRAY(
        SELECT CAST(value AS uuid) FROM json_array_elements_text(CAST(:ids AS json)) AS each(value)
    ))
UNION ALL SELECT true FROM early_receipt
WHERE carrier = :carrier
    AND phone = ANY(ARRAY(SELECT json_array_elements_text(CAST(:phones AS json))))
LIMIT 1

-- lanes_after: Find, for each of these lanes, the next one with messages to be sent.
SELECT (
    SELECT lane FROM message WHERE lane > value AND status IN ('queued') AND approved
    ORDER BY lane LIMIT 1
) AS lane
FROM json_array_elements_text(CAST(:lanes AS json)) AS each(value)

-- keys_with_texts: Find the keys that have messages to be sent, in any lane, and are not paused.
SELECT id, urgent FROM api_key WHERE paused_at IS NULL AND (
    SELECT 1 FROM message WHERE key_id = api_key.id AND status IN ('queued') AND approved
    ORDER BY key_id, send_at, id LIMIT 1
) IS NOT NULL

-- pairs_with_texts: Find which of these pairs of lane and key have messages to be sent.
SELECT lane, key_id FROM (
    SELECT value->>0 AS lane, CAST(value->>1 AS integer) AS key_id
    FROM json_array_elements(CAST(:pairs AS json)) AS each(value)
) AS pair WHERE (
    SELECT 1 FROM message
    WHERE (lane, key_id) >= (pair.lane, pair.key_id) AND (lane, key_id) <= (pair.lane, pair.key_id)
        AND status IN ('queued') AND approved
    ORDER BY lane, key_id, send_at, id LIMIT 1
) IS NOT NULL

-- ready_since: Find since when the first message of these pairs of lane and key could have gone.
SELECT greatest(few.send_at, few.approved_at) AS at, pair.lane, pair.key_id
FROM (
    SELECT value->>0 AS lane, CAST(value->>1 AS integer) AS key_id
    FROM json_array_elements(CAST(:pairs AS json)) AS each(value)
) AS pair CROSS JOIN LATERAL (
    SELECT send_at, approved_at FROM message
    WHERE (lane, key_id) >= (pair.lane, pair.key_id) AND (lane, key_id) <= (pair.lane, pair.key_id)
        AND status IN ('queued') AND approved
    ORDER BY lane, key_id, send_at, id LIMIT 1
) AS few

-- claimable: Find messages to be sent of keys in lanes, of each key a share that is longest due.
SELECT id, key_id, send_at FROM (
    SELECT few.id, few.key_id, few.send_at,
        ROW_NUMBER() OVER (PARTITION BY few.key_id ORDER BY few.send_at, few.id) AS place
    FROM (
        SELECT value->>0 AS lane, CAST(value->>1 AS integer) AS key_id
        FROM json_array_elements(CAST(:pairs AS json)) AS each(value)
    ) AS pair CROSS JOIN LATERAL (
        SELECT id, key_id, send_at FROM message
        WHERE (lane, key_id) >= (pair.lane, pair.key_id)
            AND (lane, key_id) <= (pair.lane, pair.key_id)
            AND status IN ('queued') AND approved
        ORDER BY lane, key_id, send_at, id LIMIT :share FOR UPDATE SKIP LOCKED
    ) AS few
    WHERE (SELECT paused_at FROM api_key WHERE id = pair.key_id) IS NULL
) AS placed WHERE place <= :share

-- claim: Claim the messages that `claimable` would find.
UPDATE message SET status = 'sending', claim_number = claim_number + 1 WHERE id = ANY(ARRAY(
    SELECT id FROM ({claimable}) AS found
)) RETURNING *
