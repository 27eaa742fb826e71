-- What a session holds in bytes is what is stored of its rows: payloads, senders, run ids and fragment
-- indexes (0004 counted payloads alone). What 0001, 0002 and 0004 say of ledger_append holds, and more of
-- its JSON has a meaning:
--
--   used      b is all those bytes, without the run ids of rows that are in the run which is open when
--             the batch begins; q is the number of those rows
--   full      a fourth number: the bytes of the id of the open run
--
-- An instance of the version before sends no q, and its rows are counted here. While it also erases, the
-- counts of those sessions stay too high, by what it does not know of.
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
  first_use json := used->0;
  most_rows bigint;
  most_bytes bigint;
BEGIN
  FOR attempt IN 1..2 LOOP
    IF lock_wait THEN
      SELECT array_agg(s.id), json_agg(json_build_array(s.id, s.message_seq::text, s.event_seq::text, s.open_run_id))
        FILTER (WHERE s.deleted_at IS NULL), max(s.row_count), max(s.payload_bytes)
      INTO held, bases, most_rows, most_bytes FROM (
        SELECT * FROM sessions WHERE id = ANY (session_ids) ORDER BY id FOR NO KEY UPDATE
      ) s;
    ELSE
      SELECT array_agg(s.id), json_agg(json_build_array(s.id, s.message_seq::text, s.event_seq::text, s.open_run_id))
        FILTER (WHERE s.deleted_at IS NULL), max(s.row_count), max(s.payload_bytes)
      INTO held, bases, most_rows, most_bytes FROM (
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

  -- What a batch adds has room beside what each session holds, or nothing of it is stored: which of its
  -- pushes have room the caller finds out. Nearly always no session is anywhere near its limit, so that
  -- one comparison of the fullest with the largest part answers for all.
  IF most_rows > (first_use->>'rr')::bigint OR most_bytes > (first_use->>'br')::bigint THEN
    SELECT json_agg(json_build_array(r.s, s.row_count, s.payload_bytes, open_run.bytes))
    INTO refused
    FROM json_to_recordset(used) AS r(s text, n bigint, b bigint, q bigint)
    JOIN sessions s ON s.id = r.s
    CROSS JOIN LATERAL (SELECT COALESCE(octet_length(s.open_run_id), 0) AS bytes) open_run
    WHERE r.n > 0 AND (s.row_count + r.n > (first_use->>'rx')::bigint
      OR s.payload_bytes + r.b + COALESCE(r.q, 0) * open_run.bytes > (first_use->>'bx')::bigint);
    IF refused IS NOT NULL THEN
      RETURN json_build_object('full', refused);
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

  IF first_use->>'q' IS NULL THEN
    UPDATE sessions SET
      row_count = sessions.row_count + CASE WHEN first_use->>'n' IS NULL THEN r.n ELSE 0 END,
      payload_bytes = sessions.payload_bytes + r.b
    FROM (
      SELECT c.s, count(*) AS n, sum(octet_length(c.pl) + COALESCE(octet_length(c.beside), 0)
        + COALESCE(octet_length(CASE WHEN c.w THEN c.rid ELSE s.open_run_id END), 0)) AS b
      FROM (
        SELECT m.s, m.pl, convert_to(m.snd, 'UTF8') AS beside, true AS w, NULL AS rid
          FROM json_to_recordset(messages) AS m(s text, pl text, snd text)
        UNION ALL SELECT * FROM json_to_recordset(events) AS e(s text, pl text, fr bytea, w boolean, rid text)
      ) c JOIN sessions s ON s.id = c.s GROUP BY c.s
    ) r
    WHERE sessions.id = r.s;
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
    row_count = sessions.row_count + COALESCE(r.n, 0),
    payload_bytes = sessions.payload_bytes
      + COALESCE(r.b + r.q * COALESCE(octet_length(sessions.open_run_id), 0), 0),
    last_activity_at = recorded
  FROM json_to_recordset(used) AS r(s text, m bigint, e bigint, ep bigint, cs bigint, rf bigint, w boolean, rid text,
    n bigint, b bigint, q bigint)
  WHERE sessions.id = r.s;

  RETURN json_build_object('bases', bases, 'most', json_build_array(most_rows, most_bytes));
END
$$;
--> statement-breakpoint
-- Counted again under a lock that lets no push in: one that holds its session and waits for the table,
-- while this waits for the session, would be a deadlock. On a large database it takes its time, and
-- pushes wait until it is done.
LOCK TABLE sessions IN EXCLUSIVE MODE;
--> statement-breakpoint
UPDATE sessions SET payload_bytes = held.bytes FROM (
  SELECT session_id, sum(bytes) AS bytes FROM (
    SELECT session_id, octet_length(payload) + COALESCE(octet_length(sender), 0) AS bytes FROM session_messages
    UNION ALL
    SELECT session_id, octet_length(payload) + COALESCE(octet_length(run_id), 0) + COALESCE(octet_length(fragments), 0)
    FROM session_events
  ) AS kept GROUP BY session_id
) AS held WHERE sessions.id = held.session_id AND sessions.payload_bytes <> held.bytes;
