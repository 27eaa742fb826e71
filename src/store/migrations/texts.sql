-- The two functions that write the derived texts of search and runs of analytics. A migration includes this file. Their
-- settings are those of ledger_append: no plan of a small table may scan a large one.
--
-- ledger_store_texts stores texts, runs and calls of tools, and how far the session is indexed; null: nothing was stored, because
-- an erasure holds the session, or the session is deleted, or another instance has stored more since
-- `from`. The lock excludes erasures, which take FOR UPDATE, and no push, which takes FOR NO KEY UPDATE.
-- The statements after the lock have new snapshots, so a text of an erased row is not stored.
--
--   from, up_to   m and e, numbers of messages and events; up_to also sp, has_speech, and tx, has_texts; from
--                 also known, false if nothing was stored of the session. If it is known and not there,
--                 reindex has forgotten its texts meanwhile
--   texts         d digest, p part, t stream, n seq, ty type, ca created, run, ro role, tx text, lo its letters to compare if they
--                 differ, ma marks
--   runs, calls   n seq, sa started, ea ended; of a run l last_seq, id, ft first text, oc outcome, us usage; of a
--                 call r seq of its run, id, nm name, fl has_failed. Those that a fork copied count in its parent
CREATE FUNCTION ledger_store_texts(
  wanted_id text, begun_from json, up_to json, language regconfig, texts json, runs json, calls json)
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
  project text;
  forked timestamptz; -- Null: the session is no fork.
  stored bigint;
BEGIN
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
-- Deletes the texts, runs and calls that begin in rows up to a number; called in the statement that deletes the rows, under
-- the session's lock. A function, because its snapshot must be newer than the lock: the statement itself
-- does not see texts that were stored just before it had the lock.
CREATE FUNCTION ledger_forget_texts(wanted_id text, wanted_stream text, up_to bigint)
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
  forgotten bigint;
BEGIN
  DELETE FROM session_texts t WHERE t.session_id = wanted_id AND t.stream = wanted_stream AND t.seq <= up_to;
  GET DIAGNOSTICS forgotten = ROW_COUNT;
  IF wanted_stream = 'events' THEN
    DELETE FROM session_runs r WHERE r.session_id = wanted_id AND r.seq <= up_to;
    DELETE FROM session_tool_calls c WHERE c.session_id = wanted_id AND c.seq <= up_to;
  END IF;
  RETURN forgotten;
END
$$;
