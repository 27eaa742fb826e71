-- The two functions that write the derived texts of search. A migration includes this file. Their
-- settings are those of ledger_append: no plan of a small table may scan a large one.
--
-- ledger_store_texts stores texts, and how far the session is indexed; null: nothing was stored, because
-- an erasure holds the session, or the session is deleted, or another instance has stored more since
-- `from`. The lock excludes erasures, which take FOR UPDATE, and no push, which takes FOR NO KEY UPDATE.
-- The statements after the lock have new snapshots, so a text of an erased row is not stored.
--
--   from, up_to   m and e, numbers of messages and events; up_to also sp, has_speech
--   texts         d digest, p part, t stream, n seq, ty type, ca created, run, ro role, tx text, lo its letters to compare if they
--                 differ, ma marks
CREATE FUNCTION ledger_store_texts(
  wanted_id text, begun_from json, up_to json, language regconfig, texts json)
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
  stored bigint;
BEGIN
  SELECT s.project_id INTO project FROM sessions s
  WHERE s.id = wanted_id AND s.deleted_at IS NULL FOR KEY SHARE SKIP LOCKED;
  IF NOT FOUND THEN
    RETURN NULL;
  END IF;
  UPDATE indexed_sessions SET message_seq = (up_to->>'m')::bigint, event_seq = (up_to->>'e')::bigint,
    has_speech = (up_to->>'sp')::boolean
  WHERE session_id = wanted_id AND message_seq = (begun_from->>'m')::bigint
    AND event_seq = (begun_from->>'e')::bigint;
  IF NOT FOUND THEN
    INSERT INTO indexed_sessions (session_id, message_seq, event_seq, has_speech)
    SELECT wanted_id, (up_to->>'m')::bigint, (up_to->>'e')::bigint, (up_to->>'sp')::boolean
    WHERE (begun_from->>'m')::bigint = 0 AND (begun_from->>'e')::bigint = 0
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
  RETURN stored;
END
$$;
--> statement-breakpoint
-- Deletes the texts that begin in rows up to a number; called in the statement that deletes the rows, under
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
  RETURN forgotten;
END
$$;
