-- As ledger_append_pushes of append.sql, whose comment is about this function too, with the chains of rows
-- (chain.sql), for services with INTEGRITY=chain. The chains are read with the lock, and each stored row is linked to that of its session and
-- stream. Where a chain does not end at the counter, a function without chains has stored the rows after it:
-- a new chain begins.
CREATE FUNCTION ledger_append_chained_pushes(
  session_ids text[], create_missing boolean, wait_for_locks boolean, conditions json, limits bigint[],
  used_messages bigint[], used_events bigint[], used_rows bigint[], used_bytes bigint[],
  used_open_run_rows bigint[],
  message_sessions integer[], message_places bigint[],
  message_ids uuid[], message_types text[], message_payloads text[],
  message_created_at timestamptz[], message_keys text[],
  message_digests bytea[], message_actors text[],
  message_senders text[], message_sent_at timestamptz[],
  event_sessions integer[], event_places bigint[], event_ids uuid[],
  event_types text[], event_payloads text[],
  event_created_at timestamptz[], event_keys text[],
  event_digests bytea[], event_actors text[],
  event_completed_at timestamptz[], event_counts integer[],
  event_run_ids text[], event_fragments bytea[],
  event_conformant boolean[], epochs bigint[], client_seqs bigint[],
  refused_numbers bigint[], new_run_ids text[], arrivals bigint[],
  taken_arrivals bigint[], new_turn_seqs bigint[],
  open_turn_seqs bigint[], run_messages bigint[],
  run_arrivals bigint[], cancels boolean[],
  OUT message_seqs bigint[], OUT event_seqs bigint[], OUT open_run_ids text[],
  OUT most_rows bigint, OUT most_bytes bigint,
  OUT verdicts text[], OUT refused_pushes json, OUT full_sessions json)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  count integer := cardinality(session_ids);
  only_id text := CASE WHEN count = 1 THEN session_ids[1] END;
  locked_ids text[];
  deleted boolean[];
  message_chains bytea[];
  event_chains bytea[];
  most_pending bigint;
  recorded timestamptz;
  wanted_id text;
  found_place integer := 1;
  locked_message_seqs bigint[];
  locked_event_seqs bigint[];
  locked_run_ids text[];
  locked_message_chains bytea[];
  locked_event_chains bytea[];
  session record;
  session_place integer := 0;
  epoch bigint;
  producer_stream bigint;
  client_seq bigint;
  turn_seq bigint;
  open_run_id text;
  event_seq bigint;
  cancel_seq bigint;
  push record;
  stored_digest bytea;
  stored_row json;
  verdict text;
  last_client_seq bigint;
  run_bytes bigint;
  refusals json[] := '{}';
  full_amounts json[] := '{}';
BEGIN
  IF count IS NULL THEN
    RETURN;
  END IF;
  FOR attempt IN 1..2 LOOP
    IF only_id IS NULL THEN
      SELECT array_agg(s.id), array_agg(s.message_seq), array_agg(s.event_seq), array_agg(s.open_run_id),
        array_agg(CASE WHEN s.message_chain_seq = s.message_seq THEN s.message_chain END),
        array_agg(CASE WHEN s.event_chain_seq = s.event_seq THEN s.event_chain END),
        array_agg(s.deleted_at IS NOT NULL), max(s.row_count), max(s.payload_bytes),
        max(s.pending_count) FILTER (WHERE s.has_claimed)
      INTO locked_ids, message_seqs, event_seqs, open_run_ids, message_chains, event_chains, deleted,
        most_rows, most_bytes, most_pending FROM (
        SELECT * FROM sessions WHERE sessions.id = ANY (session_ids)
        ORDER BY sessions.id COLLATE "C" FOR NO KEY UPDATE SKIP LOCKED
      ) s;
    ELSIF wait_for_locks THEN
      SELECT ARRAY[s.id], ARRAY[s.message_seq], ARRAY[s.event_seq], ARRAY[s.open_run_id],
        ARRAY[CASE WHEN s.message_chain_seq = s.message_seq THEN s.message_chain END],
        ARRAY[CASE WHEN s.event_chain_seq = s.event_seq THEN s.event_chain END],
        ARRAY[s.deleted_at IS NOT NULL], s.row_count, s.payload_bytes, CASE WHEN s.has_claimed THEN s.pending_count END
      INTO locked_ids, message_seqs, event_seqs, open_run_ids, message_chains, event_chains, deleted,
        most_rows, most_bytes, most_pending
      FROM sessions s WHERE s.id = only_id FOR NO KEY UPDATE;
    ELSE
      SELECT ARRAY[s.id], ARRAY[s.message_seq], ARRAY[s.event_seq], ARRAY[s.open_run_id],
        ARRAY[CASE WHEN s.message_chain_seq = s.message_seq THEN s.message_chain END],
        ARRAY[CASE WHEN s.event_chain_seq = s.event_seq THEN s.event_chain END],
        ARRAY[s.deleted_at IS NOT NULL], s.row_count, s.payload_bytes, CASE WHEN s.has_claimed THEN s.pending_count END
      INTO locked_ids, message_seqs, event_seqs, open_run_ids, message_chains, event_chains, deleted,
        most_rows, most_bytes, most_pending
      FROM sessions s WHERE s.id = only_id FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    EXIT WHEN cardinality(locked_ids) = count OR NOT create_missing OR attempt = 2;
    FOREACH wanted_id IN ARRAY session_ids LOOP
      CONTINUE WHEN wanted_id = ANY (locked_ids);
      PERFORM FROM sessions s WHERE s.id = wanted_id;
      CONTINUE WHEN FOUND;
      recorded := COALESCE(recorded, clock_timestamp()); -- One time for both columns.
      INSERT INTO sessions (id, created_at, updated_at) VALUES (wanted_id, recorded, recorded)
      ON CONFLICT DO NOTHING;
    END LOOP;
    EXIT WHEN recorded IS NULL;
  END LOOP;
  recorded := clock_timestamp();

  IF cardinality(locked_ids) IS DISTINCT FROM count OR true = ANY (deleted) THEN
    locked_message_seqs := message_seqs;
    locked_event_seqs := event_seqs;
    locked_run_ids := open_run_ids;
    locked_message_chains := message_chains;
    locked_event_chains := event_chains;
    message_seqs := array_fill(NULL::bigint, ARRAY[count]);
    event_seqs := message_seqs;
    open_run_ids := array_fill(NULL::text, ARRAY[count]);
    verdicts := open_run_ids;
    FOR place IN 1..count LOOP
      IF locked_ids[found_place] = session_ids[place] THEN
        message_seqs[place] := locked_message_seqs[found_place];
        event_seqs[place] := locked_event_seqs[found_place];
        open_run_ids[place] := locked_run_ids[found_place];
        message_chains[place] := locked_message_chains[found_place];
        event_chains[place] := locked_event_chains[found_place];
        IF deleted[found_place] THEN
          verdicts[place] := 'deleted';
        END IF;
        found_place := found_place + 1;
      ELSE
        PERFORM FROM sessions s WHERE s.id = session_ids[place];
        verdicts[place] := CASE WHEN FOUND THEN 'busy' ELSE 'not_found' END;
      END IF;
    END LOOP;
  END IF;

  IF conditions IS NOT NULL THEN
    FOR push IN SELECT c.*, c.state->>'turn_seq' AS turn_seq FROM json_to_recordset(conditions) AS c(
      number integer, session integer, stream text, key text, digest bytea, epoch bigint, producer_stream bigint,
      first bigint, last bigint, row_id uuid, state json)
    LOOP
      CONTINUE WHEN verdicts[push.session] <> 'judged';
      wanted_id := session_ids[push.session];
      IF push.session <> session_place AND (push.epoch IS NOT NULL OR push.state IS NOT NULL) THEN
        SELECT s.producer_epoch, s.producer_stream, s.producer_client_seq, s.turn_seq, s.open_run_id, s.event_seq,
          s.cancel_seq
        INTO epoch, producer_stream, client_seq, turn_seq, open_run_id, event_seq, cancel_seq
        FROM sessions s WHERE s.id = wanted_id;
        session_place := push.session;
        last_client_seq := client_seq;
      END IF;
      verdict := NULL;
      stored_row := NULL;
      IF push.producer_stream IS NOT NULL THEN
        -- A range of an old epoch, or of a stream that is not the newest, gets that verdict alone. Any
        -- other range continues the committed numbers or the range before it, or is committed already.
        verdict := CASE
          WHEN push.epoch < epoch THEN 'stale_epoch'
          WHEN push.epoch IS DISTINCT FROM epoch
            OR push.producer_stream <> producer_stream THEN 'stream_replaced'
          WHEN push.last <= client_seq THEN 'deduplicated'
          WHEN push.first > last_client_seq + 1 THEN 'gap'
          WHEN push.first <= last_client_seq THEN 'overlap'
        END;
        last_client_seq := GREATEST(client_seq, push.last);
        IF verdict = 'deduplicated' THEN
          -- The row is among the newest of its session, so the look-up walks backwards from the head.
          SELECT json_build_array(e.seq::text, e.id, e.event_type, e.payload, extract(epoch FROM e.created_at)::text,
            extract(epoch FROM e.completed_at)::text, e.event_count, e.run_id, e.fragments, e.conformant)
          INTO stored_row FROM session_events e
          WHERE e.session_id = wanted_id AND e.id = push.row_id ORDER BY e.seq DESC LIMIT 1;
        ELSIF verdict = 'overlap' THEN
          RAISE EXCEPTION 'a range of a push stream overlaps what is committed: % of %', push.first, wanted_id;
        END IF;
      ELSE
        -- The key comes before the epoch: fencing is for new rows. With LIMIT each look-up is a walk down
        -- the index, for any statistics of the table.
        IF push.key IS NOT NULL THEN
          IF push.stream = 'e' THEN
            SELECT e.key_digest, json_build_array(e.seq::text, e.id, e.event_type, e.payload,
              extract(epoch FROM e.created_at)::text, extract(epoch FROM e.completed_at)::text, e.event_count,
              e.run_id, e.fragments, e.conformant)
            INTO stored_digest, stored_row FROM session_events e
            WHERE e.session_id = wanted_id AND e.idempotency_key = push.key LIMIT 1;
          ELSE
            SELECT m.key_digest, json_build_array(m.seq::text, m.id, m.event_type, m.payload,
              extract(epoch FROM m.created_at)::text, extract(epoch FROM m.sent_at)::text, m.sender)
            INTO stored_digest, stored_row FROM session_messages m
            WHERE m.session_id = wanted_id AND m.idempotency_key = push.key LIMIT 1;
          END IF;
        END IF;
        IF stored_row IS NOT NULL THEN
          verdict := CASE WHEN stored_digest = push.digest THEN 'deduplicated' ELSE 'key_reused' END;
        ELSIF push.state IS NULL THEN
          verdict := CASE WHEN push.epoch < epoch THEN 'stale_epoch' END;
        ELSIF turn_seq <> push.turn_seq::bigint
          OR open_run_id IS DISTINCT FROM push.state->>'run_id'
          OR epoch IS DISTINCT FROM (push.state->>'epoch')::bigint
          OR event_seq <> (push.state->>'event_seq')::bigint
          OR (push.state->>'uncancelled' IS NOT NULL AND cancel_seq IS NOT NULL) THEN
          verdict := 'turn_moved';
        END IF;
      END IF;
      IF verdict IS NOT NULL THEN
        refusals := refusals || json_build_array(push.number, verdict,
          CASE WHEN verdict = 'deduplicated' THEN stored_row END);
        verdicts := COALESCE(verdicts, array_fill(NULL::text, ARRAY[count]));
        verdicts[push.session] := 'judged';
      END IF;
    END LOOP;
    IF cardinality(refusals) > 0 THEN
      refused_pushes := array_to_json(refusals);
    END IF;
  END IF;

  -- Nearly always every session is far below its limits, and one comparison, of the fullest session with
  -- the largest part, answers for all.
  IF most_rows > limits[4] OR most_bytes > limits[5] OR most_pending > limits[6] THEN
    FOR place IN 1..count LOOP
      CONTINUE WHEN used_rows[place] = 0 OR verdicts[place] IS NOT NULL;
      SELECT * INTO session FROM sessions s WHERE s.id = session_ids[place];
      run_bytes := COALESCE(octet_length(session.open_run_id), 0);
      CONTINUE WHEN session.row_count + used_rows[place] <= limits[1]
        AND session.payload_bytes + used_bytes[place] + used_open_run_rows[place] * run_bytes <= limits[2]
        AND NOT COALESCE(session.has_claimed AND arrivals[place] > 0 AND session.pending_count + arrivals[place]
          - COALESCE(taken_arrivals[place], 0) > limits[3], false);
      full_amounts := full_amounts || json_build_array(place, session.row_count, session.payload_bytes, run_bytes,
        CASE WHEN session.has_claimed THEN session.pending_count END);
      verdicts := COALESCE(verdicts, array_fill(NULL::text, ARRAY[count]));
      verdicts[place] := 'full';
    END LOOP;
    IF cardinality(full_amounts) > 0 THEN
      full_sessions := array_to_json(full_amounts);
    END IF;
  END IF;

  IF message_sessions IS NOT NULL THEN
    INSERT INTO session_messages (session_id, seq, id, event_type, payload, idempotency_key, key_digest,
      actor, sender, sent_at, created_at, recorded_at)
    SELECT session_ids[r.session], message_seqs[r.session] + 1 + r.place, r.id, r.type, r.payload, r.key, r.digest,
      r.actor, r.sender, r.sent_at, r.created_at, recorded
    FROM unnest(message_sessions, message_places, message_ids, message_types, message_payloads,
      message_created_at, message_keys, message_digests, message_actors, message_senders, message_sent_at)
      AS r(session, place, id, type, payload, created_at, key, digest, actor, sender, sent_at)
    WHERE verdicts IS NULL OR verdicts[r.session] IS NULL;
    -- By elements: a query over the arrays took 9 µs more for one row, and 0.5 µs more for each of many rows.
    FOR item IN 1..cardinality(message_sessions) LOOP
      session_place := message_sessions[item];
      CONTINUE WHEN verdicts[session_place] IS NOT NULL;
      IF message_chains[session_place] IS NULL THEN
        message_chains[session_place] := convert_to(session_ids[session_place], 'UTF8');
        IF message_seqs[session_place] > 0 THEN
          UPDATE sessions s SET message_chain_from = s.message_seq + 1, message_chain_cut = NULL
          WHERE s.id = session_ids[session_place];
        END IF;
      END IF;
      message_chains[session_place] := ledger_message_link(message_chains[session_place],
        message_seqs[session_place] + 1 + message_places[item], message_ids[item], message_types[item],
        message_payloads[item], message_keys[item], message_digests[item], message_actors[item],
        message_senders[item], message_sent_at[item], message_created_at[item], recorded);
    END LOOP;
  END IF;

  IF event_sessions IS NOT NULL THEN
    INSERT INTO session_events (session_id, seq, id, event_type, payload, idempotency_key, key_digest,
      actor, created_at, recorded_at, completed_at, event_count, run_id, fragments, conformant)
    SELECT session_ids[r.session], event_seqs[r.session] + 1 + r.place, r.id, r.type, r.payload, r.key, r.digest,
      r.actor, r.created_at, recorded, r.completed_at, COALESCE(r.count, 1),
      CASE WHEN r.run_id IS NULL THEN open_run_ids[r.session] ELSE NULLIF(r.run_id, '') END,
      r.fragments, COALESCE(r.conformant, true)
    FROM unnest(event_sessions, event_places, event_ids, event_types, event_payloads, event_created_at,
      event_keys, event_digests, event_actors, event_completed_at, event_counts, event_run_ids,
      event_fragments, event_conformant)
      AS r(session, place, id, type, payload, created_at, key, digest, actor, completed_at, count, run_id,
        fragments, conformant)
    WHERE verdicts IS NULL OR verdicts[r.session] IS NULL;
    FOR item IN 1..cardinality(event_sessions) LOOP
      session_place := event_sessions[item];
      CONTINUE WHEN verdicts[session_place] IS NOT NULL;
      IF event_chains[session_place] IS NULL THEN
        event_chains[session_place] := convert_to(session_ids[session_place], 'UTF8');
        IF event_seqs[session_place] > 0 THEN
          UPDATE sessions s SET event_chain_from = s.event_seq + 1, event_chain_cut = NULL
          WHERE s.id = session_ids[session_place];
        END IF;
      END IF;
      event_chains[session_place] := ledger_event_link(event_chains[session_place],
        event_seqs[session_place] + 1 + event_places[item], event_ids[item], event_types[item], event_payloads[item],
        event_keys[item], event_digests[item], event_actors[item], event_created_at[item], recorded,
        event_completed_at[item], COALESCE(event_counts[item], 1),
        CASE WHEN event_run_ids[item] IS NULL THEN open_run_ids[session_place] ELSE NULLIF(event_run_ids[item], '') END,
        event_fragments[item], COALESCE(event_conformant[item], true));
    END LOOP;
  END IF;

  UPDATE sessions SET
    message_seq = sessions.message_seq + r.messages,
    event_seq = sessions.event_seq + r.events,
    message_chain = COALESCE(r.message_chain, sessions.message_chain),
    message_chain_seq = CASE WHEN r.message_chain IS NULL THEN sessions.message_chain_seq
      ELSE sessions.message_seq + r.messages END,
    event_chain = COALESCE(r.event_chain, sessions.event_chain),
    event_chain_seq = CASE WHEN r.event_chain IS NULL THEN sessions.event_chain_seq
      ELSE sessions.event_seq + r.events END,
    producer_epoch = GREATEST(sessions.producer_epoch, r.epoch),
    producer_client_seq = CASE WHEN r.epoch > sessions.producer_epoch THEN 0
      ELSE COALESCE(r.client_seq, sessions.producer_client_seq) END,
    producer_refused = CASE WHEN r.epoch > sessions.producer_epoch THEN 0
      ELSE sessions.producer_refused + COALESCE(r.refused, 0) END,
    open_run_id = CASE WHEN r.run_id IS NULL THEN sessions.open_run_id ELSE NULLIF(r.run_id, '') END,
    row_count = sessions.row_count + r.rows,
    payload_bytes = sessions.payload_bytes + r.bytes
      + r.open_run_rows * COALESCE(octet_length(sessions.open_run_id), 0),
    turn_seq = CASE WHEN r.turn_seq IS NOT NULL THEN r.turn_seq WHEN sessions.has_claimed THEN sessions.turn_seq
      ELSE COALESCE(sessions.message_seq + r.run_messages, sessions.turn_seq) END,
    open_turn_seq = CASE WHEN r.run_id IS NULL THEN sessions.open_turn_seq ELSE r.open_turn_seq END,
    -- An index has this column too.
    cancel_seq = CASE WHEN r.run_id IS NOT NULL THEN NULL WHEN r.cancels THEN sessions.message_seq + 1
      ELSE sessions.cancel_seq END,
    has_claimed = sessions.has_claimed OR r.turn_seq IS NOT NULL,
    pending_count = CASE WHEN r.run_arrivals IS NULL OR sessions.has_claimed
      THEN sessions.pending_count + COALESCE(r.arrivals, 0) - COALESCE(r.taken, 0) ELSE r.run_arrivals END,
    -- An index has this column, so it changes only when the session begins or ceases to wait.
    waiting_since = CASE WHEN NOT r.is_turn THEN sessions.waiting_since
      WHEN CASE WHEN r.run_arrivals IS NULL OR sessions.has_claimed
        THEN sessions.pending_count + COALESCE(r.arrivals, 0) - COALESCE(r.taken, 0) ELSE r.run_arrivals END > 0
      THEN COALESCE(sessions.waiting_since, recorded) END,
    last_activity_at = recorded,
    -- Indexes have this column, so it changes each 10 s, or when an index is written for another column.
    active_at = CASE WHEN r.run_id IS NOT NULL OR (r.is_turn AND sessions.waiting_since IS NULL)
      OR recorded >= sessions.active_at + interval '10 s' THEN recorded ELSE sessions.active_at END,
    -- An index has this column too: it changes when the session begins to wait, or with a run. A claim
    -- and a RUN_STARTED, which end the waiting, change the run.
    changed_at = CASE WHEN r.run_id IS NOT NULL OR (r.is_turn AND sessions.waiting_since IS NULL) THEN recorded
      ELSE sessions.changed_at END
  FROM (
    SELECT *, COALESCE(u.arrivals > 0 OR u.turn_seq IS NOT NULL OR u.run_messages IS NOT NULL OR u.cancels, false)
      AS is_turn
    FROM unnest(session_ids, used_messages, used_events, used_rows, used_bytes, used_open_run_rows, epochs,
      client_seqs, refused_numbers, new_run_ids, arrivals, taken_arrivals, new_turn_seqs, open_turn_seqs,
      run_messages, run_arrivals, cancels, message_chains, event_chains) WITH ORDINALITY
      AS u(id, messages, events, rows, bytes, open_run_rows, epoch, client_seq, refused, run_id, arrivals, taken,
        turn_seq, open_turn_seq, run_messages, run_arrivals, cancels, message_chain, event_chain, place)
  ) r
  WHERE sessions.id = r.id AND (verdicts IS NULL OR verdicts[r.place] IS NULL);
END
$$;
