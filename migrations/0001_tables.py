"""All tables, as they are in 1.0.0."""

import re

from peewee import SqliteDatabase

OF_SQLITE = {"SERIAL": "INTEGER", "BIGSERIAL": "INTEGER", "BIGINT": "INTEGER"}
OF_SQLITE |= {"BOOLEAN": "INTEGER", "UUID": "TEXT"}
"""The types of SQLite for those of Postgres."""

TABLES = """
CREATE TABLE api_key (
    id SERIAL NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    "group" TEXT,
    role TEXT NOT NULL DEFAULT 'sender',
    digest TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT,
    expires_at BIGINT,
    last_used_at BIGINT,
    old_digest TEXT,
    old_expires_at BIGINT,
    limits TEXT,
    paused_at BIGINT,
    hours TEXT,
    quiet_hours TEXT,
    check_dnc TEXT,
    expire_after TEXT,
    urgent BOOLEAN NOT NULL DEFAULT false,
    countries TEXT
);
CREATE UNIQUE INDEX api_key_digest ON api_key (digest);
CREATE INDEX api_key_old_digest ON api_key (old_digest);
CREATE UNIQUE INDEX api_key_live_name ON api_key (name) WHERE revoked_at IS NULL;
CREATE INDEX api_key_urgent ON api_key (id) WHERE urgent;
CREATE INDEX api_key_paused ON api_key (id) WHERE paused_at IS NOT NULL;

CREATE TABLE message (
    id UUID NOT NULL PRIMARY KEY,
    key_id INTEGER NOT NULL,
    "to" TEXT,
    message TEXT,
    send_date BIGINT,
    first_send_at BIGINT NOT NULL,
    send_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    due_since BIGINT,
    status TEXT NOT NULL,
    manual_mode BOOLEAN NOT NULL,
    available_to_group BOOLEAN NOT NULL,
    check_dnc BOOLEAN NOT NULL,
    approved BOOLEAN NOT NULL,
    approved_by TEXT,
    approved_at BIGINT,
    cancelled_by TEXT,
    attempts INTEGER NOT NULL,
    max_retries INTEGER NOT NULL,
    claim_number INTEGER NOT NULL DEFAULT 0,
    claims_before_retry INTEGER NOT NULL DEFAULT 0,
    in_doubt INTEGER NOT NULL DEFAULT 0,
    finished_at BIGINT,
    last_error TEXT,
    last_error_at BIGINT,
    carrier TEXT,
    carrier_reference TEXT,
    lane TEXT NOT NULL,
    receipt_at BIGINT,
    event_delivered_at BIGINT,
    created_at BIGINT NOT NULL,
    idempotency_key TEXT,
    request_digest TEXT,
    response TEXT,
    parts INTEGER NOT NULL,
    country TEXT NOT NULL,
    auto_reply_to TEXT,
    FOREIGN KEY (key_id) REFERENCES api_key (id)
);
CREATE INDEX message_due ON message (send_at, id) WHERE status IN ('scheduled');
CREATE INDEX message_sendable_key ON message (key_id, send_at, id)
    WHERE status IN ('queued') AND approved;
CREATE INDEX message_lane ON message (lane, key_id, send_at, id)
    WHERE status IN ('queued') AND approved;
CREATE INDEX message_awaiting ON message (status, send_at, id, expires_at)
    WHERE status IN ('scheduled', 'queued') AND NOT approved;
CREATE INDEX message_awaiting_key ON message (key_id, send_at, id)
    WHERE status IN ('scheduled', 'queued') AND NOT approved AND available_to_group;
CREATE INDEX message_expires ON message (expires_at) WHERE status IN ('scheduled', 'queued');
CREATE INDEX message_retrying ON message (due_since)
    WHERE status IN ('scheduled', 'queued') AND due_since IS NOT NULL;
CREATE INDEX message_finished ON message (status, finished_at, carrier, receipt_at)
    WHERE finished_at IS NOT NULL;
CREATE INDEX message_ended ON message (status, id) WHERE finished_at IS NOT NULL;
CREATE INDEX message_key ON message (key_id, id);
CREATE INDEX message_to ON message ("to", id);
CREATE UNIQUE INDEX message_idempotency ON message (key_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;

CREATE TABLE attempt (
    message_id UUID NOT NULL,
    claim_number INTEGER NOT NULL,
    carrier TEXT,
    sender UUID,
    begun_at BIGINT NOT NULL,
    ended_at BIGINT,
    result TEXT,
    reference TEXT,
    words TEXT,
    receipt TEXT,
    receipt_at BIGINT,
    ask_at BIGINT,
    PRIMARY KEY (message_id, claim_number),
    FOREIGN KEY (message_id) REFERENCES message (id) ON DELETE CASCADE
);
CREATE INDEX attempt_reference ON attempt (reference) WHERE reference IS NOT NULL;
CREATE INDEX attempt_ask ON attempt (carrier, ask_at)
    WHERE result = 'unclear' AND ask_at IS NOT NULL;
CREATE INDEX attempt_sender ON attempt (sender, carrier) WHERE sender IS NOT NULL;

CREATE TABLE audit (
    id BIGSERIAL NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL,
    who TEXT NOT NULL,
    who_key INTEGER,
    what TEXT NOT NULL,
    message_id UUID,
    key INTEGER,
    key_name TEXT,
    number TEXT,
    count INTEGER,
    details TEXT
);
CREATE INDEX audit_at ON audit (at);

CREATE TABLE carrier_state (
    name TEXT NOT NULL PRIMARY KEY,
    last_pass_at BIGINT,
    heard_until BIGINT,
    trouble TEXT,
    is_down BOOLEAN NOT NULL DEFAULT false,
    trouble_since BIGINT,
    by_texts BOOLEAN NOT NULL DEFAULT false,
    serves BOOLEAN NOT NULL DEFAULT false,
    paused_at BIGINT,
    retry_at BIGINT,
    pause REAL NOT NULL,
    probe_claimed_at BIGINT,
    probe_claimed_by UUID,
    last_accepted_at BIGINT,
    unanswered INTEGER NOT NULL DEFAULT 0,
    unmatched_logged_at BIGINT,
    rate_used_until BIGINT,
    place INTEGER,
    stand_ins TEXT
);

CREATE TABLE do_not_call (
    number TEXT NOT NULL PRIMARY KEY,
    added_at BIGINT NOT NULL,
    source TEXT NOT NULL
);

CREATE TABLE do_not_call_history (
    id SERIAL NOT NULL PRIMARY KEY,
    number TEXT NOT NULL,
    kind TEXT NOT NULL,
    at BIGINT NOT NULL,
    what TEXT NOT NULL,
    why TEXT NOT NULL,
    who TEXT,
    said_at BIGINT
);
CREATE INDEX do_not_call_history_number ON do_not_call_history (number);

CREATE TABLE early_receipt (
    reference TEXT NOT NULL PRIMARY KEY,
    carrier TEXT,
    delivered BOOLEAN NOT NULL,
    reason TEXT,
    received_at BIGINT NOT NULL,
    phone TEXT,
    message_id UUID
);
CREATE INDEX early_receipt_received_at ON early_receipt (received_at);
CREATE INDEX early_receipt_phone ON early_receipt (phone);
CREATE INDEX early_receipt_message_id ON early_receipt (message_id);

CREATE TABLE event (
    id BIGSERIAL NOT NULL PRIMARY KEY,
    webhook_id TEXT NOT NULL,
    key_id INTEGER NOT NULL,
    message_id UUID NOT NULL,
    at BIGINT NOT NULL,
    body TEXT NOT NULL,
    tries INTEGER NOT NULL,
    next_try_at BIGINT,
    last_answer TEXT,
    given_up_at BIGINT,
    reply_id UUID,
    FOREIGN KEY (key_id) REFERENCES api_key (id)
);
CREATE INDEX event_due ON event (key_id, next_try_at, at) WHERE next_try_at IS NOT NULL;
CREATE INDEX event_reply ON event (reply_id) WHERE reply_id IS NOT NULL;
CREATE INDEX event_given_up ON event (given_up_at, key_id) WHERE given_up_at IS NOT NULL;

CREATE TABLE event_address (
    key_id INTEGER NOT NULL PRIMARY KEY,
    url TEXT NOT NULL,
    secret TEXT NOT NULL,
    old_secret TEXT,
    old_secret_until BIGINT,
    off TEXT,
    failing_since BIGINT,
    failures INTEGER NOT NULL DEFAULT 0,
    FOREIGN KEY (key_id) REFERENCES api_key (id)
);

CREATE TABLE heartbeat (
    sender UUID NOT NULL PRIMARY KEY,
    beats INTEGER NOT NULL,
    beat_at BIGINT NOT NULL
);

CREATE TABLE ignored_opt_out (
    id SERIAL NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL
);
CREATE INDEX ignored_opt_out_at ON ignored_opt_out (at);

CREATE TABLE key_country (
    key_id INTEGER NOT NULL,
    country TEXT NOT NULL,
    first_at BIGINT NOT NULL,
    told_at BIGINT,
    PRIMARY KEY (key_id, country),
    FOREIGN KEY (key_id) REFERENCES api_key (id)
);
CREATE INDEX key_country_untold ON key_country (first_at) WHERE told_at IS NULL;

CREATE TABLE key_use (
    key_id INTEGER NOT NULL,
    begins BIGINT NOT NULL,
    seconds INTEGER NOT NULL,
    in_parts BOOLEAN NOT NULL,
    used BIGINT NOT NULL,
    PRIMARY KEY (key_id, begins, seconds, in_parts)
);

CREATE TABLE last_reply (
    number TEXT NOT NULL PRIMARY KEY,
    said_at BIGINT NOT NULL
);

CREATE TABLE notice (
    subject TEXT NOT NULL PRIMARY KEY,
    told_at BIGINT,
    level INTEGER NOT NULL DEFAULT 0,
    newest TEXT
);

CREATE TABLE opt_out (
    number TEXT NOT NULL PRIMARY KEY,
    added_at BIGINT NOT NULL,
    source TEXT NOT NULL
);

CREATE TABLE opt_out_message (
    id TEXT NOT NULL PRIMARY KEY,
    at BIGINT NOT NULL
);

CREATE TABLE public_address (
    url TEXT NOT NULL PRIMARY KEY,
    answered_at BIGINT NOT NULL,
    is_silent BOOLEAN NOT NULL
);

CREATE TABLE reply (
    id UUID NOT NULL PRIMARY KEY,
    carrier TEXT NOT NULL,
    number TEXT NOT NULL,
    text TEXT NOT NULL,
    at BIGINT NOT NULL,
    received_at BIGINT NOT NULL,
    message_id UUID,
    key INTEGER,
    available_to_group BOOLEAN NOT NULL DEFAULT false,
    opted_out BOOLEAN NOT NULL DEFAULT false,
    may_be_no BOOLEAN NOT NULL DEFAULT false,
    read_at BIGINT,
    read_by TEXT,
    part_reference TEXT,
    parts INTEGER,
    pieces TEXT,
    due_at BIGINT
);
CREATE INDEX reply_waiting ON reply (may_be_no, at, id) WHERE read_at IS NULL AND NOT opted_out;
CREATE INDEX reply_maybe ON reply (number) WHERE may_be_no;
CREATE INDEX reply_key ON reply (key, at, id) WHERE available_to_group;
CREATE INDEX reply_unread ON reply (at, id) WHERE read_at IS NULL;
CREATE INDEX reply_at ON reply (at, id);
CREATE INDEX reply_number ON reply (number, at, id);
CREATE INDEX reply_number_first ON reply (number, (
    CASE WHEN read_at IS NOT NULL OR opted_out THEN 0 WHEN may_be_no THEN 2 ELSE 1 END
), at, id);
CREATE INDEX reply_message ON reply (message_id);
CREATE INDEX reply_due ON reply (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE retention (
    id INTEGER NOT NULL PRIMARY KEY,
    next_at BIGINT,
    purged_until BIGINT,
    redacted_until BIGINT
);

CREATE TABLE sign_in (
    id TEXT NOT NULL PRIMARY KEY,
    key_id INTEGER NOT NULL,
    digest TEXT NOT NULL,
    began_at BIGINT NOT NULL,
    looks_for TEXT,
    FOREIGN KEY (key_id) REFERENCES api_key (id)
);
CREATE INDEX sign_in_began_at ON sign_in (began_at);
"""


def up(migrator, db):
    tables = TABLES
    if isinstance(db, SqliteDatabase):
        tables = re.sub(r"\b[A-Z]+\b", lambda word: OF_SQLITE.get(word[0], word[0]), tables)
    for statement in tables.split(";"):
        if statement.strip():
            db.execute_sql(statement)
