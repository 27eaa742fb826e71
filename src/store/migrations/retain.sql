-- What retention erases of sessions (docs/decisions/019). A migration includes this file.
--
-- ledger_ended_runs finds, in the next rows of a session, the last row of the last run that ended before a time
-- (`border`), and the first row that is too young. A run without an end is over when another begins after it.
CREATE FUNCTION ledger_ended_runs(
  wanted_id text, from_seq bigint, cutoff timestamptz, looked_at_max integer,
  OUT border bigint, OUT border_recorded_at timestamptz, OUT young_recorded_at timestamptz,
  OUT looked_at bigint, OUT last_seq bigint)
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  PERFORM ledger_fix_plans();
  WITH seen AS MATERIALIZED (
    SELECT e.seq, e.run_id, e.recorded_at,
      e.conformant AND e.run_id IS NOT NULL AND e.event_type IN ('RUN_FINISHED', 'RUN_ERROR') AS ends
    FROM session_events e WHERE e.session_id = wanted_id AND e.seq >= from_seq ORDER BY e.seq LIMIT looked_at_max
  ), young AS MATERIALIZED (
    SELECT seq, recorded_at FROM seen WHERE recorded_at >= cutoff ORDER BY seq LIMIT 1
  ), judged AS (
    SELECT seq, ends, recorded_at, lag(seq) OVER upwards AS seq_before,
      lag(recorded_at) OVER upwards AS recorded_before,
      lag(run_id) OVER upwards IS NOT NULL AND NOT lag(ends) OVER upwards
        AND run_id IS DISTINCT FROM lag(run_id) OVER upwards AS replaces
    FROM seen WINDOW upwards AS (ORDER BY seq)
  ), last_end AS MATERIALIZED (
    SELECT CASE WHEN ends THEN seq ELSE seq_before END AS seq,
      CASE WHEN ends THEN recorded_at ELSE recorded_before END AS recorded_at
    FROM judged
    WHERE (ends OR replaces) AND seq < COALESCE((SELECT young.seq FROM young), 9223372036854775807)
    ORDER BY judged.seq DESC LIMIT 1
  )
  SELECT (SELECT l.seq FROM last_end l), (SELECT l.recorded_at FROM last_end l), (SELECT y.recorded_at FROM young y),
    (SELECT count(*) FROM seen), (SELECT max(seen.seq) FROM seen)
  INTO border, border_recorded_at, young_recorded_at, looked_at, last_seq;
END
$$;
--> statement-breakpoint
-- Erases what is old of small sessions, one after the other in one transaction. Answers with the sessions that
-- are done: locked ones, held ones, and those with more rows or bytes than one batch are left to ledger_erase_rows.
-- `began` is the time at which the pass began: later rows are younger.
CREATE FUNCTION ledger_retain_sessions(
  wanted_ids text[], cutoff timestamptz, began timestamptz, rows_max integer, bytes_max bigint)
RETURNS TABLE (session_id text, messages bigint, events bigint, bytes bigint)
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  session record;
  beginning record;
  look record;
  erased_messages record;
  erased_events record;
BEGIN
  PERFORM ledger_fix_plans();
  FOREACH session_id IN ARRAY wanted_ids LOOP
    SELECT s.open_run_id INTO session FROM sessions s
    WHERE s.id = session_id AND s.hold IS NULL AND s.erased_at IS NULL
      AND s.row_count <= rows_max AND s.payload_bytes <= bytes_max
    FOR UPDATE SKIP LOCKED;
    CONTINUE WHEN NOT FOUND;
    messages := 0;
    events := 0;
    bytes := 0;
    SELECT e.seq, e.recorded_at, e.run_id INTO beginning FROM session_events e
    WHERE e.session_id = ledger_retain_sessions.session_id ORDER BY e.seq LIMIT 1;
    IF beginning.run_id = session.open_run_id THEN
      RETURN NEXT;
      CONTINUE;
    END IF;
    IF beginning.recorded_at >= cutoff THEN
      UPDATE sessions s SET retained_until = beginning.recorded_at WHERE s.id = session_id;
      RETURN NEXT;
      CONTINUE;
    END IF;
    SELECT * INTO look FROM ledger_ended_runs(session_id, COALESCE(beginning.seq, 1), cutoff, rows_max + 1);
    CONTINUE WHEN look.looked_at > rows_max;
    IF look.border IS NOT NULL THEN
      SELECT * INTO erased_messages FROM ledger_erase_rows(session_id, 'messages', NULL, look.border_recorded_at, true,
        rows_max, bytes_max);
      SELECT * INTO erased_events FROM ledger_erase_rows(session_id, 'events', look.border, NULL, false,
        rows_max, bytes_max);
      messages := erased_messages.rows;
      events := erased_events.rows;
      bytes := erased_messages.bytes + erased_events.bytes;
    END IF;
    UPDATE sessions s SET retained_until = COALESCE(look.young_recorded_at, began)
    WHERE s.id = session_id AND NOT EXISTS (SELECT 1 FROM session_events e
      WHERE e.session_id = ledger_retain_sessions.session_id AND e.seq <= look.border);
    RETURN NEXT;
  END LOOP;
END
$$;
