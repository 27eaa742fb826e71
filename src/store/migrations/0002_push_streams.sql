-- Push streams: their numbers in ledger_append, and how one is opened. The arguments of ledger_append
-- stay as 0001 made them, so that an instance of the version before goes on while the instances are
-- replaced one after the other. What 0001 says of it holds, and more of its JSON has a meaning:
--
--   pushes    also the ranges of push streams: u, s, ep, st stream, f first and l last client number,
--             id of the first row
--   used      also cs the last client number, rf how many numbers were refused. A unary push that
--             raises the epoch begins the count anew: it comes after the ranges of its batch
--
-- A range is judged under the lock, like a key: the session row says which stream is the newest and up
-- to which number it is committed.
CREATE OR REPLACE FUNCTION ledger_append(
  session_ids text[], create_missing boolean, lock_wait boolean,
  pushes json, messages json, events json, used json)
RETURNS json
LANGUAGE plpgsql VOLATILE
-- A plan made while the tables were empty must not scan them when they are large, as a hash or merge
-- join of all sessions and a bitmap of all rows of one do; and planning these statements anew costs
-- more than running them.
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_bitmapscan = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
DECLARE
  held text[];
  bases json;
  refused json;
  refused_ranges json;
  has_ranges boolean;
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
    recorded := clock_timestamp(); -- One time for both columns: the clock goes on between two calls.
    INSERT INTO sessions (id, created_at, updated_at)
    SELECT wanted.id, recorded, recorded FROM unnest(missing) AS wanted(id)
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
      kept.seq::text)) FILTER (WHERE kept.seq IS NOT NULL OR (p.st IS NULL AND p.ep < s.producer_epoch)),
      bool_or(p.st IS NOT NULL)
    INTO refused, has_ranges
    FROM json_to_recordset(pushes) AS p(u integer, s text, t text, key text, dg bytea, ep bigint, st bigint)
    JOIN sessions s ON s.id = p.s
    LEFT JOIN LATERAL (
      (SELECT e.seq, e.key_digest FROM session_events e
        WHERE p.t = 'e' AND e.session_id = p.s AND e.idempotency_key = p.key LIMIT 1)
      UNION ALL
      (SELECT m.seq, m.key_digest FROM session_messages m
        WHERE p.t = 'm' AND m.session_id = p.s AND m.idempotency_key = p.key LIMIT 1)
      LIMIT 1
    ) kept ON true;

    IF has_ranges THEN
      -- Of an epoch below the session's or of a stream that is not its newest nothing is said but that;
      -- else a range follows on what is committed or on the range before it, or is committed itself.
      -- Its first row is then among the newest of the session, hence the way from the head backwards.
      SELECT json_agg(json_build_array(r.u, r.verdict, kept.seq::text))
      INTO refused_ranges
      FROM (
        SELECT p.u, p.s, p.id, CASE
          WHEN p.ep < s.producer_epoch THEN 'stale_epoch'
          WHEN p.ep IS DISTINCT FROM s.producer_epoch OR p.st <> s.producer_stream THEN 'stream_replaced'
          WHEN p.l <= s.producer_client_seq THEN 'deduplicated'
          WHEN p.f > before.l + 1 THEN 'gap'
          WHEN p.f <= before.l THEN 'overlap'
        END AS verdict
        FROM (
          SELECT *, lag(l) OVER (PARTITION BY s, ep, st ORDER BY u) AS sent
          FROM json_to_recordset(pushes) AS p(u integer, s text, ep bigint, st bigint, f bigint, l bigint, id uuid)
          WHERE st IS NOT NULL
        ) p
        JOIN sessions s ON s.id = p.s
        CROSS JOIN LATERAL (SELECT GREATEST(s.producer_client_seq, p.sent) AS l) before
      ) r
      LEFT JOIN LATERAL (
        SELECT e.seq FROM session_events e
        WHERE r.verdict = 'deduplicated' AND e.session_id = r.s AND e.id = r.id ORDER BY e.seq DESC LIMIT 1
      ) kept ON true
      WHERE r.verdict IS NOT NULL;
      IF EXISTS (SELECT FROM json_array_elements(refused_ranges) AS r WHERE r->>1 = 'overlap') THEN
        RAISE EXCEPTION 'a range of a push stream overlaps what is committed: %', refused_ranges;
      END IF;
    END IF;

    IF refused IS NOT NULL OR refused_ranges IS NOT NULL THEN
      RETURN json_build_object('pushes', refused, 'ranges', refused_ranges);
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
    producer_client_seq = CASE WHEN r.ep > sessions.producer_epoch THEN 0
      ELSE COALESCE(r.cs, sessions.producer_client_seq) END,
    producer_refused = CASE WHEN r.ep > sessions.producer_epoch THEN 0
      ELSE sessions.producer_refused + COALESCE(r.rf, 0) END,
    open_run_id = CASE WHEN r.w THEN r.rid ELSE sessions.open_run_id END,
    last_activity_at = recorded
  FROM json_to_recordset(used) AS r(s text, m bigint, e bigint, ep bigint, cs bigint, rf bigint, w boolean, rid text)
  WHERE sessions.id = r.s;

  RETURN json_build_object('bases', bases);
END
$$;
--> statement-breakpoint
-- Makes a new stream the newest of its session: whatever an older one still has under way is refused.
-- A transaction of its own: lock, then judge and write with a fresh snapshot, as in ledger_append. An
-- epoch of 0 stands for the highest plus 1. Without lock_wait a session that is held is `busy`.
CREATE FUNCTION ledger_open_stream(
  wanted_id text, wanted_epoch bigint, create_missing boolean, lock_wait boolean)
RETURNS json
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET plan_cache_mode = force_generic_plan
SET jit = off
AS $$
DECLARE
  highest bigint;
  taken bigint;
  is_deleted boolean; -- Null until the session is locked.
  created timestamptz;
  opened json;
BEGIN
  FOR attempt IN 1..2 LOOP
    IF lock_wait THEN
      SELECT s.producer_epoch, s.deleted_at IS NOT NULL INTO highest, is_deleted
      FROM sessions s WHERE s.id = wanted_id FOR NO KEY UPDATE;
    ELSE
      SELECT s.producer_epoch, s.deleted_at IS NOT NULL INTO highest, is_deleted
      FROM sessions s WHERE s.id = wanted_id FOR NO KEY UPDATE SKIP LOCKED;
    END IF;
    EXIT WHEN is_deleted IS NOT NULL OR NOT create_missing OR attempt = 2
      OR EXISTS (SELECT FROM sessions s WHERE s.id = wanted_id);
    created := clock_timestamp();
    INSERT INTO sessions (id, created_at, updated_at) VALUES (wanted_id, created, created)
    ON CONFLICT DO NOTHING;
  END LOOP;

  IF is_deleted IS NULL THEN
    RETURN json_build_object('kind', CASE
      WHEN EXISTS (SELECT FROM sessions s WHERE s.id = wanted_id) THEN 'busy' ELSE 'not_found' END);
  END IF;
  IF is_deleted THEN
    RETURN json_build_object('kind', 'deleted');
  END IF;
  IF (wanted_epoch <> 0 AND wanted_epoch < highest) OR (wanted_epoch = 0 AND highest = 9223372036854775807) THEN
    RETURN json_build_object('kind', 'stale_epoch', 'highest', highest::text);
  END IF;

  taken := CASE WHEN wanted_epoch = 0 THEN COALESCE(highest, 0) + 1 ELSE wanted_epoch END;
  UPDATE sessions SET
    producer_epoch = taken,
    producer_stream = producer_stream + 1,
    producer_client_seq = CASE WHEN taken = highest THEN producer_client_seq ELSE 0 END,
    producer_refused = CASE WHEN taken = highest THEN producer_refused ELSE 0 END
  WHERE id = wanted_id
  RETURNING json_build_object('kind', 'opened', 'epoch', producer_epoch::text, 'stream', producer_stream::text,
    'client_seq', producer_client_seq::text, 'refused', producer_refused::text) INTO opened;
  RETURN opened;
END
$$;
