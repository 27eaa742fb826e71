-- The two functions that write. A migration includes this file (store/migrate.ts).
--
-- ledger_append appends a batch of pushes: one round trip, one transaction, one fsync. It stores all of
-- the batch or nothing. If one push must be refused, the answer names it with the reason, nothing is
-- written, and the caller sends the rest again. So the caller can place every row relative to its
-- session's counters before the call, and only stored rows get numbers.
--
--   lock the sessions ──► judge keys, epochs, ranges ──► room? ──► insert, count ──► {"bases": …, "most": …}
--      │                         │                         └─ no ──────────────────► {"full": …}
--      │                         └─ a push is refused ─────────────────────────────► {"pushes": …, "ranges": …}
--      └─ held, missing or deleted ────────────────────────────────────────────────► {"sessions": …}
--
-- Lock and look-up are different statements on purpose. One statement that locks and looks for a key
-- has the snapshot from before it waited for the lock: it would store both of two attempts with one key.
-- A VOLATILE function takes a new snapshot for each statement (READ COMMITTED).
--
-- Without lock_wait only free sessions are locked, and the others are refused as busy, so a session that
-- another transaction holds never delays the others. The caller then sends that session alone, with
-- lock_wait, for at most lock_timeout. Only new sessions are waited for, in the order of their ids, so no
-- two batches can wait for each other.
--
-- A range of a push stream is judged under the lock, like a key: the session's row has the newest stream
-- and the last committed client number. row_count and payload_bytes are the rows of the session in both
-- tables and their stored bytes (payloads, senders, run ids, fragment indexes). Every deletion subtracts
-- its rows in the same transaction, under the same lock.
--
--   pushes    those with a key, an epoch or a range: u number, s session; t 'm' or 'e', key, dg digest,
--             ep epoch; of ranges ep, st stream, f first and l last client number, id of the first row; c,
--             the state of the session for which the rows were made: t watermark of a claim, r open run, e
--             epoch, v last event if no event may have come since, and x if nobody may have cancelled the run
--   messages, events
--             rows: s session, p place (0, 1, 2 … after the session's counter), id, ty, pl, key, dg,
--             act, ca and, of events, co, n event_count, fr, cf, w run known, rid that run (otherwise
--             the run that is open when the batch begins); of messages, snd, st
--   used      one for each session: s, m and e numbers taken, ep highest epoch, cs last client number,
--             rf count of refused numbers, w run changes, rid to this one; n rows and b stored bytes,
--             without the run ids of q rows in the run that is open when the batch begins; t what
--             changes of turns. A unary push that raises the epoch begins the client numbers again: it
--             comes after the ranges of its batch. The first one also has rx, bx and px, the limits of a
--             session (absent: none), and rr, br and pr, the amounts up to which a session has room for
--             the largest part of the batch
--   t         u new arrivals. Of a claim, to is the new watermark, k the count of taken arrivals, and b the
--             watermark before the turn of the run that is open after the batch. Without a claim, m is
--             the count of messages before the last RUN_STARTED, and a the count of arrivals after it. With
--             x, the first message cancels the open run. Nearly always t and c are absent, so they are one
--             column each
--   full      session, its rows, its bytes, the bytes of the id of its open run, and its arrivals if they
--             are limited
--
-- An arrival is a message of type `user` above the watermark of its session, turn_seq. A claim is judged
-- like a key: its rows were made for one state of the session, and in any other state it is refused as
-- `turn_moved`, and made again. It is the first push of its session in the batch. A RUN_STARTED without a
-- claim moves the watermark to the last message before it, until the session is claimed for the first time;
-- from then on only claims move it. Cancels of a run and the end of a cancelled run are judged in the same way.
-- cancel_seq is the message that asked to end the open run.
CREATE FUNCTION ledger_append(
  session_ids text[], create_missing boolean, lock_wait boolean,
  pushes json, messages json, events json, used json)
RETURNS json
LANGUAGE plpgsql VOLATILE
-- A plan made while the tables were empty must not scan them when they are large; hash joins, merge
-- joins and bitmaps read all sessions, or all rows of one. Planning these statements on each call would
-- cost more than running them.
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
  most_pending bigint;
BEGIN
  FOR attempt IN 1..2 LOOP
    IF lock_wait THEN
      SELECT array_agg(s.id), json_agg(json_build_array(s.id, s.message_seq::text, s.event_seq::text, s.open_run_id))
        FILTER (WHERE s.deleted_at IS NULL), max(s.row_count), max(s.payload_bytes),
        max(s.pending_count) FILTER (WHERE s.has_claimed)
      INTO held, bases, most_rows, most_bytes, most_pending FROM (
        SELECT * FROM sessions WHERE id = ANY (session_ids) ORDER BY id FOR NO KEY UPDATE
      ) s;
    ELSE
      SELECT array_agg(s.id), json_agg(json_build_array(s.id, s.message_seq::text, s.event_seq::text, s.open_run_id))
        FILTER (WHERE s.deleted_at IS NULL), max(s.row_count), max(s.payload_bytes),
        max(s.pending_count) FILTER (WHERE s.has_claimed)
      INTO held, bases, most_rows, most_bytes, most_pending FROM (
        SELECT * FROM sessions WHERE id = ANY (session_ids) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
      ) s;
    END IF;
    EXIT WHEN cardinality(held) = cardinality(session_ids) OR NOT create_missing OR attempt = 2;
    SELECT array_agg(wanted.id ORDER BY wanted.id) INTO missing FROM unnest(session_ids) AS wanted(id)
    WHERE NOT EXISTS (SELECT FROM sessions s WHERE s.id = wanted.id);
    EXIT WHEN missing IS NULL;
    recorded := clock_timestamp(); -- One time for both columns: the clock advances between two calls.
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
    -- The key comes before the epoch: fencing is for new rows. With LIMIT each look-up is a walk down
    -- the index, for any statistics of the table.
    SELECT json_agg(json_build_array(p.u, CASE
      WHEN kept.key_digest = p.dg THEN 'deduplicated' WHEN kept.seq IS NOT NULL THEN 'key_reused'
      WHEN p.c IS NULL THEN 'stale_epoch' ELSE 'turn_moved' END,
      kept.seq::text)) FILTER (WHERE kept.seq IS NOT NULL OR CASE WHEN p.c IS NULL
        THEN p.st IS NULL AND p.ep < s.producer_epoch
        ELSE s.turn_seq <> (p.c->>'t')::bigint OR s.open_run_id IS DISTINCT FROM p.c->>'r'
          OR s.producer_epoch IS DISTINCT FROM (p.c->>'e')::bigint OR s.event_seq <> (p.c->>'v')::bigint
          OR ((p.c->>'x') IS NOT NULL AND s.cancel_seq IS NOT NULL) END),
      bool_or(p.st IS NOT NULL)
    INTO refused, has_ranges
    FROM json_to_recordset(pushes) AS p(u integer, s text, t text, key text, dg bytea, ep bigint, st bigint, c json)
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
      -- A range of an old epoch, or of a stream that is not the newest, gets that verdict alone. Any
      -- other range continues the committed numbers or the range before it, or is committed already.
      -- The first row of a committed range is among the newest rows of the session, so the look-up
      -- walks backwards from the head.
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

  -- If a session has no room for its part of the batch, nothing of the batch is stored, and the caller
  -- finds the pushes that have room. Nearly always every session is far below its limits, and one
  -- comparison, of the fullest session with the largest part, answers for all.
  IF most_rows > (first_use->>'rr')::bigint OR most_bytes > (first_use->>'br')::bigint
    OR most_pending > (first_use->>'pr')::bigint THEN
    SELECT json_agg(json_build_array(r.s, s.row_count, s.payload_bytes, open_run.bytes,
      CASE WHEN s.has_claimed THEN s.pending_count END))
    INTO refused
    FROM json_to_recordset(used) AS r(s text, n bigint, b bigint, q bigint, t json)
    JOIN sessions s ON s.id = r.s
    CROSS JOIN LATERAL (SELECT COALESCE(octet_length(s.open_run_id), 0) AS bytes) open_run
    WHERE r.n > 0 AND (s.row_count + r.n > (first_use->>'rx')::bigint
      OR s.payload_bytes + r.b + r.q * open_run.bytes > (first_use->>'bx')::bigint
      OR (s.has_claimed AND (r.t->>'u')::bigint > 0 AND s.pending_count + (r.t->>'u')::bigint
        - COALESCE((r.t->>'k')::bigint, 0) > (first_use->>'px')::bigint));
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

  UPDATE sessions SET
    message_seq = sessions.message_seq + r.m,
    event_seq = sessions.event_seq + r.e,
    producer_epoch = GREATEST(sessions.producer_epoch, r.ep),
    producer_client_seq = CASE WHEN r.ep > sessions.producer_epoch THEN 0
      ELSE COALESCE(r.cs, sessions.producer_client_seq) END,
    producer_refused = CASE WHEN r.ep > sessions.producer_epoch THEN 0
      ELSE sessions.producer_refused + COALESCE(r.rf, 0) END,
    open_run_id = CASE WHEN r.w THEN r.rid ELSE sessions.open_run_id END,
    row_count = sessions.row_count + r.n,
    payload_bytes = sessions.payload_bytes + r.b + r.q * COALESCE(octet_length(sessions.open_run_id), 0),
    turn_seq = CASE WHEN r.t IS NULL THEN sessions.turn_seq
      WHEN r.t->>'to' IS NOT NULL THEN (r.t->>'to')::bigint WHEN sessions.has_claimed THEN sessions.turn_seq
      ELSE COALESCE(sessions.message_seq + (r.t->>'m')::bigint, sessions.turn_seq) END,
    open_turn_seq = CASE WHEN r.w THEN (r.t->>'b')::bigint ELSE sessions.open_turn_seq END,
    -- An index has this column too.
    cancel_seq = CASE WHEN r.w THEN NULL WHEN r.t->>'x' IS NOT NULL THEN sessions.message_seq + 1
      ELSE sessions.cancel_seq END,
    has_claimed = sessions.has_claimed OR (r.t->>'to') IS NOT NULL,
    pending_count = CASE WHEN r.t IS NULL THEN sessions.pending_count
      WHEN r.t->>'a' IS NULL OR sessions.has_claimed THEN sessions.pending_count
        + COALESCE((r.t->>'u')::bigint, 0) - COALESCE((r.t->>'k')::bigint, 0)
      ELSE (r.t->>'a')::bigint END,
    -- An index has this column, so it changes only when the session begins or ceases to wait.
    waiting_since = CASE WHEN r.t IS NULL THEN sessions.waiting_since
      WHEN CASE WHEN r.t->>'a' IS NULL OR sessions.has_claimed THEN sessions.pending_count
        + COALESCE((r.t->>'u')::bigint, 0) - COALESCE((r.t->>'k')::bigint, 0)
        ELSE (r.t->>'a')::bigint END > 0 THEN COALESCE(sessions.waiting_since, recorded) END,
    last_activity_at = recorded,
    -- Indexes have this column, so it changes each 10 s, or when an index is written for another column.
    active_at = CASE WHEN r.w OR (r.t IS NOT NULL AND sessions.waiting_since IS NULL)
      OR recorded >= sessions.active_at + interval '10 s' THEN recorded ELSE sessions.active_at END,
    -- An index has this column too: it changes when the session begins to wait, or with a run. A claim
    -- and a RUN_STARTED, which end the waiting, change the run.
    changed_at = CASE WHEN r.w OR (r.t IS NOT NULL AND sessions.waiting_since IS NULL) THEN recorded
      ELSE sessions.changed_at END
  FROM json_to_recordset(used) AS r(s text, m bigint, e bigint, ep bigint, cs bigint, rf bigint, w boolean, rid text,
    n bigint, b bigint, q bigint, t json)
  WHERE sessions.id = r.s;

  RETURN json_build_object('bases', bases, 'most', json_build_array(most_rows, most_bytes));
END
$$;
--> statement-breakpoint
-- Makes a new stream the newest of its session, so every push in progress of an older stream is refused.
-- It is a transaction of its own that locks, then judges and writes with a new snapshot, as ledger_append
-- does. Epoch 0 stands for the highest epoch plus 1. Without lock_wait a held session is `busy`.
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
    'client_seq', producer_client_seq::text, 'refused', producer_refused::text,
    'cancelled', cancel_seq IS NOT NULL) INTO opened;
  RETURN opened;
END
$$;
