-- The chains of rows: they find any changed, swapped, removed or added row. A migration includes this file.
--
--   chain of a row = SHA-256 of the chain before it, and of the row in PostgreSQL's binary form of a record
--                    (the number and the OID of each field, its length, its bytes; docs/operations.md)
--   before the first row: the id of the session
--
-- A session has for each stream the chain and chain_seq, the number up to which it counts; chain_from, the
-- first number whose row it covers (null: 1); and chain_cut, the chain before that row if rows were erased.
-- A session that an older version wrote has none, or a chain_seq that is not its counter: then the next
-- append begins a new chain.
--
-- These two are inlined where they are called, and only with values: no statement of a table has them,
-- because the nodes of a sharded PostgreSQL do not have these functions.
CREATE FUNCTION ledger_message_link(
  chain bytea, seq bigint, id uuid, event_type text, payload text, idempotency_key text, key_digest bytea, actor text,
  sender text, sent_at timestamptz, created_at timestamptz, recorded_at timestamptz)
RETURNS bytea
LANGUAGE sql STABLE
AS $$
  SELECT sha256(chain || record_send(ROW(seq, id, event_type, payload, idempotency_key, key_digest, actor, sender,
    sent_at, created_at, recorded_at)))
$$;
--> statement-breakpoint
CREATE FUNCTION ledger_event_link(
  chain bytea, seq bigint, id uuid, event_type text, payload text, idempotency_key text, key_digest bytea, actor text,
  created_at timestamptz, recorded_at timestamptz, completed_at timestamptz, event_count integer, run_id text,
  fragments bytea, conformant boolean)
RETURNS bytea
LANGUAGE sql STABLE
AS $$
  SELECT sha256(chain || record_send(ROW(seq, id, event_type, payload, idempotency_key, key_digest, actor, created_at,
    recorded_at, completed_at, event_count, run_id, fragments, conformant)))
$$;
--> statement-breakpoint
-- The chain of the stored rows that begin in a span of numbers, and the last number of the last one (null: no
-- row). `before` is the chain before the span; null: the span is the beginning of the chain.
-- Payloads are read one by one, in the loop.
CREATE FUNCTION ledger_chain(
  wanted_id text, wanted_stream text, before bytea, from_seq bigint, up_to bigint,
  OUT chain bytea, OUT last_seq bigint)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  r record;
BEGIN
  chain := COALESCE(before, convert_to(wanted_id, 'UTF8'));
  IF wanted_stream = 'messages' THEN
    FOR r IN SELECT * FROM session_messages m
      WHERE m.session_id = wanted_id AND m.seq >= from_seq AND m.seq <= up_to ORDER BY m.seq
    LOOP
      chain := ledger_message_link(chain, r.seq, r.id, r.event_type, r.payload, r.idempotency_key, r.key_digest,
        r.actor, r.sender, r.sent_at, r.created_at, r.recorded_at);
      last_seq := r.seq;
    END LOOP;
  ELSE
    FOR r IN SELECT * FROM session_events e
      WHERE e.session_id = wanted_id AND e.seq >= from_seq AND e.seq <= up_to ORDER BY e.seq
    LOOP
      chain := ledger_event_link(chain, r.seq, r.id, r.event_type, r.payload, r.idempotency_key, r.key_digest,
        r.actor, r.created_at, r.recorded_at, r.completed_at, r.event_count, r.run_id, r.fragments, r.conformant);
      last_seq := r.seq + r.event_count - 1;
    END LOOP;
  END IF;
END
$$;
--> statement-breakpoint
-- Covers the rows that a transaction has stored without an append, after the counters given: those of a fork,
-- or of an import. Chains that end at these counters go on, and others begin.
CREATE FUNCTION ledger_extend_chains(wanted_id text, messages_before bigint, events_before bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  s sessions;
  m record;
  e record;
BEGIN
  SELECT * INTO s FROM sessions WHERE id = wanted_id;
  SELECT * INTO m FROM ledger_chain(wanted_id, 'messages',
    CASE WHEN s.message_chain_seq = messages_before THEN s.message_chain END, messages_before + 1, s.message_seq);
  SELECT * INTO e FROM ledger_chain(wanted_id, 'events',
    CASE WHEN s.event_chain_seq = events_before THEN s.event_chain END, events_before + 1, s.event_seq);
  IF m.last_seq IS NOT NULL THEN
    UPDATE sessions SET message_chain = m.chain, message_chain_seq = message_seq,
      message_chain_from = CASE WHEN message_chain_seq = messages_before THEN message_chain_from
        ELSE messages_before + 1 END,
      message_chain_cut = CASE WHEN message_chain_seq = messages_before THEN message_chain_cut END
    WHERE id = wanted_id;
  END IF;
  IF e.last_seq IS NOT NULL THEN
    UPDATE sessions SET event_chain = e.chain, event_chain_seq = event_seq,
      event_chain_from = CASE WHEN event_chain_seq = events_before THEN event_chain_from ELSE events_before + 1 END,
      event_chain_cut = CASE WHEN event_chain_seq = events_before THEN event_chain_cut END
    WHERE id = wanted_id;
  END IF;
END
$$;
