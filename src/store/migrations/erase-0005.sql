-- Deletes the first rows of one stream, and what search and analytics have of them: at most rows_max rows with
-- bytes_max stored bytes, or one larger row; only rows that begin at or below `up_to`, and that are before the
-- first one that was recorded after `recorded_up_to`. With spares_turns, waiting messages of a claimed session
-- stay, and those of the open run's turn. It never waits: is_locked is false if another transaction holds the
-- session. With a hold nothing is deleted. The counts of the session lose just the deleted rows. The statements
-- after the lock have new snapshots, so they see what the holder before has stored or deleted. The session
-- keeps the value of its chain after the last deleted row (chain.sql).
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
  cut record;
BEGIN
  PERFORM ledger_fix_plans();
  rows := 0;
  bytes := 0;
  SELECT s.hold, s.turn_seq, CASE WHEN s.has_claimed THEN COALESCE(s.open_turn_seq, s.turn_seq) END AS spared_from,
    s.message_chain_cut, s.message_chain_from, s.message_chain_seq,
    s.event_chain_cut, s.event_chain_from, s.event_chain_seq
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
    SELECT c.chain, c.last_seq INTO cut FROM ledger_chain(wanted_id, 'messages', session.message_chain_cut,
      COALESCE(session.message_chain_from, 1), CASE WHEN end_seq <= session.message_chain_seq THEN end_seq
        WHEN end_seq > session.message_chain_seq THEN session.message_chain_seq END) c;
    UPDATE sessions s SET message_chain_from = cut.last_seq + 1, message_chain_cut = cut.chain
    WHERE s.id = wanted_id AND cut.last_seq IS NOT NULL;
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
    SELECT c.chain, c.last_seq INTO cut FROM ledger_chain(wanted_id, 'events', session.event_chain_cut,
      COALESCE(session.event_chain_from, 1), CASE WHEN end_seq <= session.event_chain_seq THEN end_seq
        WHEN end_seq > session.event_chain_seq THEN session.event_chain_seq END) c;
    UPDATE sessions s SET event_chain_from = cut.last_seq + 1, event_chain_cut = cut.chain
    WHERE s.id = wanted_id AND cut.last_seq IS NOT NULL;
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
