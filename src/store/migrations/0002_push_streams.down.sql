DROP FUNCTION ledger_open_stream(text, bigint, boolean, boolean);
--> statement-breakpoint
-- ledger_append as 0001 made it.
CREATE OR REPLACE FUNCTION ledger_append(
  session_ids text[], create_missing boolean, lock_wait boolean,
  pushes json, messages json, events json, used json)
RETURNS json
LANGUAGE plpgsql VOLATILE
-- A plan made while the tables were empty must not scan them when they are large; and planning these
-- statements anew costs more than running them.
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
DECLARE
  held text[];
  bases json;
  refused json;
  missing text[];
  recorded timestamptz;
BEGIN
  FOR attempt IN 1..2 LOOP
    IF lock_wait THEN
      SELECT array_agg(s.id), json_agg(json_build_array(s.id, s.message_seq::text, s.event_seq::text, s.open_run_id))
        FILTER (WHERE s.deleted_at IS NULL)
      INTO held, bases FROM (
        SELECT * FROM sessions WHERE id = ANY (session_ids) ORDER BY id FOR NO KEY UPDATE
      ) s;
    ELSE
      SELECT array_agg(s.id), json_agg(json_build_array(s.id, s.message_seq::text, s.event_seq::text, s.open_run_id))
        FILTER (WHERE s.deleted_at IS NULL)
      INTO held, bases FROM (
        SELECT * FROM sessions WHERE id = ANY (session_ids) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
      ) s;
    END IF;
    EXIT WHEN cardinality(held) = cardinality(session_ids) OR NOT create_missing OR attempt = 2;
    SELECT array_agg(wanted.id ORDER BY wanted.id) INTO missing FROM unnest(session_ids) AS wanted(id)
    WHERE NOT EXISTS (SELECT FROM sessions s WHERE s.id = wanted.id);
    EXIT WHEN missing IS NULL;
    INSERT INTO sessions (id, created_at, updated_at)
    SELECT wanted.id, clock_timestamp(), clock_timestamp() FROM unnest(missing) AS wanted(id)
    ON CONFLICT DO NOTHING;
  END LOOP;
  recorded := clock_timestamp();

  IF held IS NULL OR cardinality(held) < cardinality(session_ids)
    OR COALESCE(json_array_length(bases), 0) < cardinality(held) THEN
    SELECT json_agg(json_build_array(wanted.id, CASE
      WHEN s.id IS NULL THEN 'not_found' WHEN s.id <> ALL (COALESCE(held, '{}')) THEN 'busy' ELSE 'deleted' END))
    INTO refused
    FROM unnest(session_ids) AS wanted(id) LEFT JOIN sessions s ON s.id = wanted.id
    WHERE s.id IS NULL OR s.deleted_at IS NOT NULL OR s.id <> ALL (COALESCE(held, '{}'));
    RETURN json_build_object('sessions', refused);
  END IF;

  IF pushes IS NOT NULL THEN
    -- The key comes before the epoch: fencing is for new rows. LIMIT keeps each look-up a walk down
    -- the index, whatever the planner believes of the table.
    SELECT json_agg(json_build_array(p.u, CASE
      WHEN kept.seq IS NULL THEN 'stale_epoch' WHEN kept.key_digest = p.dg THEN 'deduplicated' ELSE 'key_reused' END,
      kept.seq::text))
    INTO refused
    FROM json_to_recordset(pushes) AS p(u integer, s text, t text, key text, dg bytea, ep bigint)
    JOIN sessions s ON s.id = p.s
    LEFT JOIN LATERAL (
      (SELECT e.seq, e.key_digest FROM session_events e
        WHERE p.t = 'e' AND e.session_id = p.s AND e.idempotency_key = p.key LIMIT 1)
      UNION ALL
      (SELECT m.seq, m.key_digest FROM session_messages m
        WHERE p.t = 'm' AND m.session_id = p.s AND m.idempotency_key = p.key LIMIT 1)
      LIMIT 1
    ) kept ON true
    WHERE kept.seq IS NOT NULL OR p.ep < s.producer_epoch;
    IF refused IS NOT NULL THEN
      RETURN json_build_object('pushes', refused);
    END IF;
  END IF;

  IF messages IS NOT NULL THEN
    INSERT INTO session_messages (session_id, seq, id, event_type, payload, idempotency_key, key_digest,
      actor, sender, sent_at, created_at, recorded_at)
    SELECT r.s, s.message_seq + 1 + r.p, r.id, r.ty, r.pl, r.key, r.dg, r.act, r.snd, r.st, r.ca, recorded
    FROM json_to_recordset(messages) AS r(s text, p bigint, id uuid, ty text, pl text, key text, dg bytea,
      act text, snd text, st timestamptz, ca timestamptz)
    JOIN sessions s ON s.id = r.s;
  END IF;

  IF events IS NOT NULL THEN
    INSERT INTO session_events (session_id, seq, id, event_type, payload, idempotency_key, key_digest,
      actor, created_at, recorded_at, completed_at, event_count, run_id, fragments, conformant)
    SELECT r.s, s.event_seq + 1 + r.p, r.id, r.ty, r.pl, r.key, r.dg, r.act, r.ca, recorded, r.co, r.n,
      CASE WHEN r.w THEN r.rid ELSE s.open_run_id END, r.fr, r.cf
    FROM json_to_recordset(events) AS r(s text, p bigint, id uuid, ty text, pl text, key text, dg bytea,
      act text, ca timestamptz, co timestamptz, n integer, w boolean, rid text, fr bytea, cf boolean)
    JOIN sessions s ON s.id = r.s;
  END IF;

  UPDATE sessions SET
    message_seq = sessions.message_seq + r.m,
    event_seq = sessions.event_seq + r.e,
    producer_epoch = GREATEST(sessions.producer_epoch, r.ep),
    open_run_id = CASE WHEN r.w THEN r.rid ELSE sessions.open_run_id END,
    last_activity_at = recorded
  FROM json_to_recordset(used) AS r(s text, m bigint, e bigint, ep bigint, w boolean, rid text)
  WHERE sessions.id = r.s;

  RETURN json_build_object('bases', bases);
END
$$;
