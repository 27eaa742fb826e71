-- The functions of one session besides those of pushes (append.sql). A migration includes this file. Each of
-- their statements names one session, so a sharded PostgreSQL plans it.
--
-- ledger_fix_plans gives the rest of a transaction the plan settings of pushes (FIXED_PLANS, store/database.ts),
-- because no plan of a small table may scan a large one. A function with settings is one that a sharded
-- PostgreSQL refuses.
CREATE FUNCTION ledger_fix_plans() RETURNS void
LANGUAGE sql VOLATILE
AS $$
  SELECT set_config(name, value, true) FROM (VALUES ('enable_seqscan', 'off'), ('enable_hashjoin', 'off'),
    ('enable_mergejoin', 'off'), ('enable_bitmapscan', 'off'), ('plan_cache_mode', 'force_generic_plan'),
    ('jit', 'off')) settings (name, value);
$$;
--> statement-breakpoint
-- ledger_store_session_texts stores texts, runs and calls of tools, and how far the session is indexed; null:
-- nothing was stored, because an erasure holds the session, or the session is deleted, or another instance has
-- stored more since `from`. The lock excludes erasures, which take FOR UPDATE, and no push, which takes FOR NO
-- KEY UPDATE. The statements after the lock have new snapshots, so a text of an erased row is not stored.
--
--   from, up_to   m and e, numbers of messages and events; up_to also sp, has_speech, and tx, has_texts; from
--                 also known, false if nothing was stored of the session. If it is known and not there,
--                 reindex has forgotten its texts meanwhile
--   texts         d digest, p part, t stream, n seq, ty type, ca created, run, ro role, tx text, lo its letters
--                 to compare if they differ, ma marks
--   runs, calls   n seq, sa started, ea ended; of a run l last_seq, id, ft first text, oc outcome, us usage; of a
--                 call r seq of its run, id, nm name, fl has_failed. Those that a fork copied count in its parent
CREATE FUNCTION ledger_store_session_texts(
  wanted_id text, begun_from json, up_to json, language regconfig, texts json, runs json, calls json)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  project text;
  forked timestamptz; -- Null: the session is no fork.
  stored bigint;
BEGIN
  PERFORM ledger_fix_plans();
  SELECT s.project_id, CASE WHEN s.forked_at_seq IS NOT NULL OR s.forked_at_message_seq IS NOT NULL
    THEN s.created_at END INTO project, forked FROM sessions s
  WHERE s.id = wanted_id AND s.deleted_at IS NULL FOR KEY SHARE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  UPDATE indexed_sessions SET message_seq = (up_to->>'m')::bigint, event_seq = (up_to->>'e')::bigint,
    has_speech = (up_to->>'sp')::boolean, has_texts = (up_to->>'tx')::boolean
  WHERE session_id = wanted_id AND message_seq = (begun_from->>'m')::bigint
    AND event_seq = (begun_from->>'e')::bigint;
  IF NOT FOUND THEN
    INSERT INTO indexed_sessions (session_id, message_seq, event_seq, has_speech, has_texts)
    SELECT wanted_id, (up_to->>'m')::bigint, (up_to->>'e')::bigint, (up_to->>'sp')::boolean,
      (up_to->>'tx')::boolean
    WHERE NOT (begun_from->>'known')::boolean
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      RETURN NULL;
    END IF;
  END IF;
  INSERT INTO session_texts (session_id, digest, part, stream, seq, event_type, created_at, run_id, role,
    text, words)
  SELECT wanted_id, t.d, t.p, t.t, t.n, t.ty, t.ca, t.run, t.ro, t.tx,
    to_tsvector(language, COALESCE(t.lo, t.tx)) || array_to_tsvector(
      ARRAY(SELECT json_array_elements_text(t.ma)) || COALESCE(E'\x01p' || project, E'\x01'))
  FROM json_to_recordset(texts) AS t(d uuid, p integer, t text, n bigint, ty text, ca timestamptz, run text,
    ro text, tx text, lo text, ma json)
  WHERE NOT EXISTS (SELECT FROM session_texts k WHERE k.session_id = wanted_id AND k.digest = t.d AND k.part = t.p)
    AND CASE t.t
      WHEN 'events' THEN EXISTS (SELECT FROM session_events e WHERE e.session_id = wanted_id AND e.seq = t.n)
      ELSE EXISTS (SELECT FROM session_messages m WHERE m.session_id = wanted_id AND m.seq = t.n) END
  ON CONFLICT DO NOTHING;
  GET DIAGNOSTICS stored = ROW_COUNT;
  INSERT INTO session_runs AS k (session_id, seq, last_seq, run_id, started_at, first_text_at, ended_at, outcome, usage)
  SELECT wanted_id, r.n, r.l, r.id, r.sa, r.ft, r.ea, r.oc, r.us
  FROM json_to_recordset(runs) AS r(n bigint, l bigint, id text, sa timestamptz, ft timestamptz, ea timestamptz,
    oc text, us jsonb)
  WHERE EXISTS (SELECT FROM session_events e WHERE e.session_id = wanted_id AND e.seq = r.n
    AND (forked IS NULL OR e.recorded_at > forked))
  ON CONFLICT (session_id, seq) DO UPDATE SET last_seq = excluded.last_seq, first_text_at = excluded.first_text_at,
    ended_at = excluded.ended_at, outcome = excluded.outcome, usage = excluded.usage;
  INSERT INTO session_tool_calls AS k (session_id, seq, run_seq, call_id, name, started_at, ended_at, has_failed)
  SELECT wanted_id, c.n, c.r, c.id, c.nm, c.sa, c.ea, c.fl
  FROM json_to_recordset(calls) AS c(n bigint, r bigint, id text, nm text, sa timestamptz, ea timestamptz, fl boolean)
  WHERE EXISTS (SELECT FROM session_events e WHERE e.session_id = wanted_id AND e.seq = c.n)
    AND EXISTS (SELECT FROM session_runs r WHERE r.session_id = wanted_id AND r.seq = c.r)
  ON CONFLICT (session_id, seq) DO UPDATE SET ended_at = excluded.ended_at, has_failed = excluded.has_failed;
  RETURN stored;
END
$$;
--> statement-breakpoint
-- ledger_read_turns is what claims ask first: the state of each session, and the arrivals that its turn would take,
-- in one row an arrival, or one row without. It takes no lock: ledger_append_pushes compares the state under
-- the lock. A session that does not exist has no row.
--
--   claims      n number in the answer, s session, k key of the start of the run, u only arrivals up to this number,
--               r rows and b stored bytes at most (one arrival may have more), a take the messages of the open run
--               again, if none of its newest events is output
--   stored_seq  the start of the run, if it is stored: then without arrivals
--   from_seq    the watermark before the turn, and redelivered, the number of its messages that are taken again
CREATE FUNCTION ledger_read_turns(claims json)
RETURNS TABLE (
  claim integer, deleted boolean, message_seq bigint, event_seq bigint, turn_seq bigint, pending_count bigint,
  open_run_id text, producer_epoch bigint, stored_seq bigint, from_seq bigint, redelivered bigint,
  seq bigint, id uuid, event_type text, payload text, created_at text, sent_at text, sender text)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
  wanted record;
  wanted_id text;
  open_turn_seq bigint;
  bytes bigint;
BEGIN
  PERFORM ledger_fix_plans();
  FOR wanted IN SELECT c.* FROM json_to_recordset(claims) AS c(
    n integer, s text, k text, u bigint, r integer, b bigint, a boolean)
  LOOP
    wanted_id := wanted.s;
    SELECT wanted.n, s.deleted_at IS NOT NULL, s.message_seq, s.event_seq, s.turn_seq, s.pending_count,
      s.open_run_id, s.producer_epoch, s.turn_seq, 0, s.open_turn_seq, (
        SELECT e.seq FROM session_events e WHERE e.session_id = wanted_id AND e.idempotency_key = wanted.k LIMIT 1)
    INTO claim, deleted, message_seq, event_seq, turn_seq, pending_count, open_run_id, producer_epoch, from_seq,
      redelivered, open_turn_seq, stored_seq
    FROM sessions s WHERE s.id = wanted_id;
    CONTINUE WHEN NOT FOUND;
    IF wanted.a AND open_turn_seq IS NOT NULL AND 'RUN_STARTED' = (
      SELECT e.event_type FROM (
        SELECT e.seq, e.event_type FROM session_events e WHERE e.session_id = wanted_id ORDER BY e.seq DESC LIMIT 100
      ) e WHERE e.event_type <> 'META' ORDER BY e.seq DESC LIMIT 1)
    THEN
      from_seq := open_turn_seq;
      SELECT count(*) INTO redelivered FROM session_messages m
      WHERE m.session_id = wanted_id AND m.seq > open_turn_seq AND m.seq <= turn_seq AND m.event_type = 'user';
    END IF;
    bytes := NULL;
    FOR seq, id, event_type, payload, created_at, sent_at, sender IN
      SELECT m.seq, m.id, m.event_type, m.payload, extract(epoch FROM m.created_at)::text,
        extract(epoch FROM m.sent_at)::text, m.sender
      FROM session_messages m
      WHERE stored_seq IS NULL AND pending_count + redelivered > 0 AND m.session_id = wanted_id
        AND m.seq > from_seq AND m.seq <= wanted.u AND m.event_type = 'user'
      ORDER BY m.seq LIMIT wanted.r
    LOOP
      EXIT WHEN bytes + octet_length(payload) + COALESCE(octet_length(sender), 0) > wanted.b;
      bytes := COALESCE(bytes, 0) + octet_length(payload) + COALESCE(octet_length(sender), 0);
      RETURN NEXT;
    END LOOP;
    IF bytes IS NULL THEN
      RETURN NEXT; -- The columns of an arrival are null.
    END IF;
  END LOOP;
END
$$;
--> statement-breakpoint
-- Deletes the first rows of one stream, and what search and analytics have of them: at most rows_max rows with
-- bytes_max stored bytes, or one larger row; only rows that begin at or below `up_to`, and that are before the
-- first one that was recorded after `recorded_up_to`. With spares_turns, waiting messages of a claimed session
-- stay, and those of the open run's turn. It never waits: is_locked is false if another transaction holds the
-- session. With a hold nothing is deleted. The counts of the session lose just the deleted rows. The statements
-- after the lock have new snapshots, so they see what the holder before has stored or deleted.
CREATE FUNCTION ledger_erase_rows(
  wanted_id text, wanted_stream text, up_to bigint, recorded_up_to timestamptz, spares_turns boolean,
  rows_max integer, bytes_max bigint,
  OUT is_locked boolean, OUT hold text, OUT rows bigint, OUT bytes bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  session record;
  end_seq bigint;
  counted_rows bigint;
  counted_bytes bigint;
  pending bigint;
BEGIN
  PERFORM ledger_fix_plans();
  rows := 0;
  bytes := 0;
  SELECT s.hold, s.turn_seq, CASE WHEN s.has_claimed THEN COALESCE(s.open_turn_seq, s.turn_seq) END AS spared_from
  INTO session FROM sessions s WHERE s.id = wanted_id FOR UPDATE SKIP LOCKED;
  is_locked := FOUND;
  hold := session.hold;
  IF NOT is_locked OR hold IS NOT NULL THEN
    RETURN;
  END IF;
  IF spares_turns THEN
    up_to := LEAST(up_to, session.spared_from);
  END IF;
  up_to := COALESCE(up_to, 9223372036854775807);
  recorded_up_to := COALESCE(recorded_up_to, 'infinity');
  IF wanted_stream = 'messages' THEN
    SELECT max(c.seq), count(*), COALESCE(sum(c.size), 0), count(*), COALESCE(sum(c.size), 0),
      count(*) FILTER (WHERE c.event_type = 'user' AND c.seq > session.turn_seq)
    INTO end_seq, rows, bytes, counted_rows, counted_bytes, pending FROM (
      SELECT r.*, sum(r.size) OVER upwards AS total, row_number() OVER upwards AS place,
        bool_and(r.recorded_at <= recorded_up_to) OVER upwards AS is_old
      FROM (
        SELECT m.seq, m.recorded_at, m.event_type, octet_length(m.payload) + COALESCE(octet_length(m.sender), 0) AS size
        FROM session_messages m WHERE m.session_id = wanted_id AND m.seq <= up_to ORDER BY m.seq LIMIT rows_max
      ) r WINDOW upwards AS (ORDER BY r.seq)
    ) c WHERE c.is_old AND (c.total <= bytes_max OR c.place = 1);
    DELETE FROM session_messages m WHERE m.session_id = wanted_id AND m.seq <= end_seq;
  ELSE
    -- Feedback is not counted (FEEDBACK_KEY in store/rows.ts).
    SELECT max(c.seq), count(*), COALESCE(sum(c.size), 0), count(*) FILTER (WHERE c.counts),
      COALESCE(sum(c.size) FILTER (WHERE c.counts), 0), 0
    INTO end_seq, rows, bytes, counted_rows, counted_bytes, pending FROM (
      SELECT r.*, sum(r.size) OVER upwards AS total, row_number() OVER upwards AS place,
        bool_and(r.recorded_at <= recorded_up_to) OVER upwards AS is_old
      FROM (
        SELECT e.seq, e.recorded_at, octet_length(e.payload) + COALESCE(octet_length(e.run_id), 0)
            + COALESCE(octet_length(e.fragments), 0) AS size,
          (e.event_type = 'META' AND e.idempotency_key ~ '^feedbackp[0-9a-f]{32}m[0-9a-f]{32}n[0-9]{10}$') IS NOT TRUE AS counts
        FROM session_events e WHERE e.session_id = wanted_id AND e.seq <= up_to ORDER BY e.seq LIMIT rows_max
      ) r WINDOW upwards AS (ORDER BY r.seq)
    ) c WHERE c.is_old AND (c.total <= bytes_max OR c.place = 1);
    DELETE FROM session_events e WHERE e.session_id = wanted_id AND e.seq <= end_seq;
  END IF;
  IF rows = 0 THEN
    RETURN;
  END IF;
  UPDATE sessions s SET
    row_count = s.row_count - counted_rows,
    payload_bytes = s.payload_bytes - counted_bytes,
    pending_count = s.pending_count - pending,
    waiting_since = CASE WHEN s.pending_count > pending THEN s.waiting_since END
  WHERE s.id = wanted_id;
  DELETE FROM session_texts t WHERE t.session_id = wanted_id AND t.stream = wanted_stream AND t.seq <= end_seq;
  IF wanted_stream = 'events' THEN
    DELETE FROM session_runs r WHERE r.session_id = wanted_id AND r.seq <= end_seq;
    DELETE FROM session_tool_calls c WHERE c.session_id = wanted_id AND c.seq <= end_seq;
  END IF;
END
$$;
--> statement-breakpoint
-- ledger_last_message_at is the number of the last message that is not after an event in the order of both
-- streams (conversation/merging.ts). The times of all events up to it count, as there. What is read is
-- MATERIALIZED: otherwise the index of recorded_at may be walked over all sessions.
CREATE FUNCTION ledger_last_message_at(wanted_id text, up_to_event bigint, head bigint)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  last_said bigint;
BEGIN
  WITH happened AS MATERIALIZED (
    SELECT e.recorded_at, e.created_at FROM session_events e
    WHERE e.session_id = wanted_id AND e.seq <= up_to_event
  ), latest AS MATERIALIZED (
    SELECT * FROM happened ORDER BY recorded_at DESC, created_at DESC LIMIT 1
  ), said AS MATERIALIZED (
    SELECT m.seq, m.recorded_at, m.created_at FROM session_messages m
    WHERE m.session_id = wanted_id AND m.seq <= head
  )
  SELECT COALESCE(min(s.seq) - 1, head) INTO last_said FROM said s, latest l
  WHERE (s.recorded_at, s.created_at) > (l.recorded_at, l.created_at);
  RETURN last_said;
END
$$;
--> statement-breakpoint
-- ledger_fork_session makes the session `fork_id` with a copy of the rows of `parent_id` up to an event, or up
-- to a message; the other one is null. It is one transaction: all of the fork is stored, or nothing. The parent is
-- not locked, because rows that have numbers do not change: pushes go on, and a row that an erasure deletes
-- meanwhile is copied or not. The session comes last, so feeds, which wait for transactions that hold the
-- table `sessions`, do not wait for the copy. Another session of that id that was made meanwhile is a
-- unique_violation.
--
--   is fork_id there? ──► the cut ──► small enough? ──► turns at the cut ──► copy ──► the session
--
-- The answer has `kind`:
--   forked      again: the session was there, of the same request
--   exists      a session of that id is there, of another request
--   not_found, deleted
--   beyond      head: the number is above it
--   erased      no row ends at or below the number
--   too_large   rows and bytes, or the first number above a limit
CREATE FUNCTION ledger_fork_session(
  parent_id text, fork_id text, at_event bigint, at_message bigint, maker text, rows_max bigint, bytes_max bigint)
RETURNS json
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  known sessions;
  parent sessions;
  -- The fork has the rows up to these numbers.
  last_event bigint;
  last_message bigint;
  taken bigint; -- The watermark.
  is_claimed boolean;
  last_start bigint;
  open_run text;
  copied_rows bigint;
  copied_bytes bigint;
  waiting bigint;
  latest timestamptz;
  made timestamptz;
BEGIN
  PERFORM ledger_fix_plans();
  SELECT * INTO known FROM sessions s WHERE s.id = fork_id;
  IF FOUND THEN
    RETURN json_build_object('again', true, 'kind', CASE
      WHEN known.deleted_at IS NULL AND known.parent_session_id = parent_id
        AND known.forked_at_seq IS NOT DISTINCT FROM at_event
        AND known.forked_at_message_seq IS NOT DISTINCT FROM at_message THEN 'forked' ELSE 'exists' END);
  END IF;
  SELECT * INTO parent FROM sessions s WHERE s.id = parent_id;
  IF NOT FOUND THEN
    RETURN json_build_object('kind', 'not_found');
  ELSIF parent.deleted_at IS NOT NULL THEN
    RETURN json_build_object('kind', 'deleted');
  ELSIF at_event > parent.event_seq OR at_message > parent.message_seq THEN
    RETURN json_build_object('kind', 'beyond', 'head',
      (CASE WHEN at_event IS NULL THEN parent.message_seq ELSE parent.event_seq END)::text);
  END IF;

  IF at_event IS NOT NULL THEN
    -- The first and the last number of a row have all of it, another one has none of it, as a cursor.
    SELECT CASE WHEN at_event > e.seq AND at_event < e.seq + e.event_count - 1 THEN e.seq - 1
      ELSE e.seq + e.event_count - 1 END INTO last_event
    FROM session_events e WHERE e.session_id = parent_id AND e.seq <= at_event ORDER BY e.seq DESC LIMIT 1;
    IF last_event IS NULL
      OR NOT EXISTS (SELECT FROM session_events e WHERE e.session_id = parent_id AND e.seq <= last_event) THEN
      RETURN json_build_object('kind', 'erased');
    END IF;
    last_message := ledger_last_message_at(parent_id, last_event, parent.message_seq);
  ELSE
    last_message := at_message;
    IF NOT EXISTS (SELECT FROM session_messages m WHERE m.session_id = parent_id AND m.seq = at_message) THEN
      RETURN json_build_object('kind', 'erased');
    END IF;
    WITH said AS MATERIALIZED (
      SELECT m.recorded_at, m.created_at FROM session_messages m
      WHERE m.session_id = parent_id AND m.seq <= at_message
    ), latest AS MATERIALIZED (
      SELECT * FROM said ORDER BY recorded_at DESC, created_at DESC LIMIT 1
    ), happened AS MATERIALIZED (
      SELECT e.seq, e.recorded_at, e.created_at FROM session_events e
      WHERE e.session_id = parent_id AND e.seq <= parent.event_seq
    )
    SELECT COALESCE(min(e.seq) - 1, parent.event_seq) INTO last_event FROM happened e, latest l
    WHERE (e.recorded_at, e.created_at) >= (l.recorded_at, l.created_at);
  END IF;

  IF parent.row_count > rows_max OR parent.payload_bytes > bytes_max THEN
    SELECT count(*), COALESCE(sum(r.bytes), 0) INTO copied_rows, copied_bytes FROM (
      (SELECT octet_length(m.payload) + COALESCE(octet_length(m.sender), 0) AS bytes FROM session_messages m
        WHERE m.session_id = parent_id AND m.seq <= last_message LIMIT rows_max + 1)
      UNION ALL
      (SELECT octet_length(e.payload) + COALESCE(octet_length(e.run_id), 0)
          + COALESCE(octet_length(e.fragments), 0)
        FROM session_events e WHERE e.session_id = parent_id AND e.seq <= last_event LIMIT rows_max + 1)
    ) r;
    IF copied_rows > rows_max OR copied_bytes > bytes_max THEN
      RETURN json_build_object('kind', 'too_large', 'rows', copied_rows, 'bytes', copied_bytes);
    END IF;
  END IF;

  -- As the parent was then. A claim has its own key, and its RUN_STARTED says which messages it took; the
  -- service writes that text (api/turns/run-started.ts), so it is not parsed: a payload may have \u0000.
  SELECT substring(e.payload FROM '"session":\{"consumed":\{"first":\d+,"last":(\d{1,18})\}')::bigint INTO taken
  FROM session_events e
  WHERE e.session_id = parent_id AND e.seq <= last_event AND e.event_type = 'RUN_STARTED' AND e.conformant
    AND e.idempotency_key = 'claim:' || e.run_id
  ORDER BY e.seq DESC LIMIT 1;
  is_claimed := taken IS NOT NULL;
  IF NOT is_claimed THEN
    SELECT r.seq INTO last_start FROM session_events r
    WHERE r.session_id = parent_id AND r.seq <= last_event AND r.event_type = 'RUN_STARTED' AND r.conformant
    ORDER BY r.seq DESC LIMIT 1;
    IF last_start IS NOT NULL THEN
      taken := ledger_last_message_at(parent_id, last_start, last_message);
    END IF;
  END IF;
  taken := LEAST(COALESCE(taken, 0), last_message);
  SELECT CASE WHEN e.conformant AND e.event_type IN ('RUN_FINISHED', 'RUN_ERROR') THEN NULL ELSE e.run_id END
  INTO open_run FROM session_events e
  WHERE e.session_id = parent_id AND e.seq <= last_event ORDER BY e.seq DESC LIMIT 1;

  -- Events first: retention deletes the messages of a run before its events, so no message is copied of a run
  -- whose events were deleted in between.
  INSERT INTO session_events (session_id, seq, id, event_type, payload, idempotency_key, key_digest,
    actor, created_at, recorded_at, completed_at, event_count, run_id, fragments, conformant)
  SELECT fork_id, e.seq, e.id, e.event_type, e.payload, e.idempotency_key, e.key_digest, e.actor,
    e.created_at, e.recorded_at, e.completed_at, e.event_count, e.run_id, e.fragments, e.conformant
  FROM session_events e WHERE e.session_id = parent_id AND e.seq <= last_event;
  INSERT INTO session_messages (session_id, seq, id, event_type, payload, idempotency_key, key_digest,
    actor, sender, sent_at, created_at, recorded_at)
  SELECT fork_id, m.seq, m.id, m.event_type, m.payload, m.idempotency_key, m.key_digest, m.actor, m.sender,
    m.sent_at, m.created_at, m.recorded_at
  FROM session_messages m WHERE m.session_id = parent_id AND m.seq <= last_message;
  SELECT count(*), COALESCE(sum(octet_length(m.payload) + COALESCE(octet_length(m.sender), 0)), 0),
    count(*) FILTER (WHERE m.event_type = 'user' AND m.seq > taken), max(m.recorded_at)
  INTO copied_rows, copied_bytes, waiting, latest
  FROM session_messages m WHERE m.session_id = fork_id;
  -- Feedback is not counted (FEEDBACK_KEY in store/rows.ts).
  SELECT copied_rows + count(*) FILTER (WHERE c.counts),
    copied_bytes + COALESCE(sum(c.bytes) FILTER (WHERE c.counts), 0), GREATEST(latest, max(c.recorded_at))
  INTO copied_rows, copied_bytes, latest
  FROM (
    SELECT octet_length(e.payload) + COALESCE(octet_length(e.run_id), 0) + COALESCE(octet_length(e.fragments), 0)
        AS bytes, e.recorded_at,
      (e.event_type = 'META' AND e.idempotency_key ~ '^feedbackp[0-9a-f]{32}m[0-9a-f]{32}n[0-9]{10}$') IS NOT TRUE
        AS counts
    FROM session_events e WHERE e.session_id = fork_id
  ) c;

  -- A watch of sessions reads by changed_at: the time is taken under the lock (store/feed.ts).
  LOCK TABLE sessions IN ROW EXCLUSIVE MODE;
  made := clock_timestamp();
  INSERT INTO sessions (id, name, project_id, prompt, created_by_user_id, llm_model, agent_id,
    parent_session_id, forked_at_seq, forked_at_message_seq, labels, annotations, capabilities, created_at,
    updated_at, changed_at, message_seq, event_seq, open_run_id, turn_seq, has_claimed, pending_count,
    waiting_since, last_activity_at, active_at, row_count, payload_bytes)
  SELECT fork_id, s.name, s.project_id, s.prompt, maker, s.llm_model, s.agent_id, s.id, at_event, at_message,
    s.labels, s.annotations, s.capabilities, made, made, made, last_message, last_event, open_run, taken,
    is_claimed, waiting, CASE WHEN waiting > 0 THEN made END, latest, COALESCE(latest, made), copied_rows, copied_bytes
  FROM sessions s WHERE s.id = parent_id AND s.deleted_at IS NULL;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'session % was deleted while it was copied', parent_id USING ERRCODE = 'no_data_found';
  END IF;
  RETURN json_build_object('kind', 'forked', 'again', false, 'rows', copied_rows);
END
$$;
