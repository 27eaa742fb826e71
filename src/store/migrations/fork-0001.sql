-- The functions that copy the beginning of a session. A migration includes this file. Their settings are
-- those of ledger_append: no plan of a small table may scan a large one.
--
-- ledger_messages_at is the number of the last message that is not after an event in the order of both
-- streams (conversation/merging.ts). The times of all events up to it count, as there. What is read is
-- MATERIALIZED: otherwise the index of recorded_at may be walked over all sessions.
CREATE FUNCTION ledger_messages_at(wanted_id text, up_to_event bigint, head bigint)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
SET jit = off
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
-- ledger_fork makes the session `fork_id` with a copy of the rows of `parent_id` up to an event, or up to a
-- message; the other one is null. It is one transaction: all of the fork is stored, or nothing. The parent is
-- not locked, because rows that have numbers do not change: pushes go on, and a row that an erasure deletes
-- meanwhile is copied or not, in one snapshot. The session comes last, so feeds, which wait for
-- transactions that hold the table `sessions`, do not wait for the copy. Another session of that id that was
-- made meanwhile is a unique_violation.
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
CREATE FUNCTION ledger_fork(
  parent_id text, fork_id text, at_event bigint, at_message bigint, maker text, rows_max bigint, bytes_max bigint)
RETURNS json
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
DECLARE
  known sessions;
  parent sessions;
  -- The fork has the rows up to these numbers.
  last_event bigint;
  last_message bigint;
  taken bigint; -- The watermark.
  is_claimed boolean;
  open_run text;
  copied_rows bigint;
  copied_bytes bigint;
  waiting bigint;
  latest timestamptz;
  made timestamptz;
BEGIN
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
    last_message := ledger_messages_at(parent_id, last_event, parent.message_seq);
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
    SELECT ledger_messages_at(parent_id, e.seq, last_message) INTO taken
    FROM (
      SELECT r.seq FROM session_events r
      WHERE r.session_id = parent_id AND r.seq <= last_event AND r.event_type = 'RUN_STARTED' AND r.conformant
      ORDER BY r.seq DESC LIMIT 1
    ) e;
  END IF;
  taken := LEAST(COALESCE(taken, 0), last_message);
  SELECT CASE WHEN e.conformant AND e.event_type IN ('RUN_FINISHED', 'RUN_ERROR') THEN NULL ELSE e.run_id END
  INTO open_run FROM session_events e
  WHERE e.session_id = parent_id AND e.seq <= last_event ORDER BY e.seq DESC LIMIT 1;

  WITH said AS (
    INSERT INTO session_messages (session_id, seq, id, event_type, payload, idempotency_key, key_digest,
      actor, sender, sent_at, created_at, recorded_at)
    SELECT fork_id, m.seq, m.id, m.event_type, m.payload, m.idempotency_key, m.key_digest, m.actor, m.sender,
      m.sent_at, m.created_at, m.recorded_at
    FROM session_messages m WHERE m.session_id = parent_id AND m.seq <= last_message
    RETURNING octet_length(payload) + COALESCE(octet_length(sender), 0) AS bytes, recorded_at,
      event_type = 'user' AND seq > taken AS waits
  ), happened AS (
    INSERT INTO session_events (session_id, seq, id, event_type, payload, idempotency_key, key_digest,
      actor, created_at, recorded_at, completed_at, event_count, run_id, fragments, conformant)
    SELECT fork_id, e.seq, e.id, e.event_type, e.payload, e.idempotency_key, e.key_digest, e.actor,
      e.created_at, e.recorded_at, e.completed_at, e.event_count, e.run_id, e.fragments, e.conformant
    FROM session_events e WHERE e.session_id = parent_id AND e.seq <= last_event
    RETURNING octet_length(payload) + COALESCE(octet_length(run_id), 0) + COALESCE(octet_length(fragments), 0)
      AS bytes, recorded_at, false AS waits
  )
  SELECT count(*), COALESCE(sum(c.bytes), 0), count(*) FILTER (WHERE c.waits), max(c.recorded_at)
  INTO copied_rows, copied_bytes, waiting, latest
  FROM (SELECT * FROM said UNION ALL SELECT * FROM happened) c;

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
