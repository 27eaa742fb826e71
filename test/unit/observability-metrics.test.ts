import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { createMetrics } from "../../src/observability/metrics.ts";

describe("metrics", () => {
  test("have the listed names, and a new name is added here and in docs/operations.md", async () => {
    const text = await createMetrics().text();
    const names = [...text.matchAll(/^# TYPE session_ledger_(\S+)/gm)].map(
      (match) => match[1] ?? "",
    );
    expect(names.toSorted()).toEqual([
      "agui_mended_total",
      "agui_renamed_total",
      "agui_typed_total",
      "auth_file_reloads_total",
      "authentications_total",
      "batch_rows",
      "build_info",
      "call_duration_seconds",
      "calls_total",
      "cancelled_runs_ended_total",
      "cancels_total",
      "claims_total",
      "claims_waiting",
      "commit_duration_seconds",
      "connections",
      "connections_closed_total",
      "denied_total",
      "disk_free_bytes",
      "feed_lag_seconds",
      "feedback_total",
      "http_request_duration_seconds",
      "http_requests_total",
      "instances_heard",
      "key_refreshes_total",
      "limit_used_ratio",
      "postgres_restarts_total",
      "push_stream_events_refused_total",
      "push_stream_events_total",
      "push_stream_groups_total",
      "push_stream_pauses_total",
      "push_stream_rows_total",
      "push_stream_unacknowledged_bytes",
      "push_streams",
      "queue_bytes",
      "queue_rows",
      "queue_wait_seconds",
      "rate_buckets",
      "ready",
      "received_bytes",
      "redactions_total",
      "refused_total",
      "retention_failures_total",
      "retention_passed_timestamp_seconds",
      "rows_deduplicated_total",
      "rows_erased_total",
      "rows_stored_total",
      "search_index_failures_total",
      "search_index_passed_timestamp_seconds",
      "sessions_waiting",
      "shared_limit_callers",
      "shared_limit_held",
      "shared_limit_refused_total",
      "sse_streams",
      "texts_indexed_total",
      "tls_certificate_expiry_timestamp_seconds",
      "tls_handshakes_failed_total",
      "tls_reloads_total",
      "token_checks_total",
      "trace_spans_total",
      "transcript_bytes",
      "transcript_rows_total",
      "transcripts_total",
      "turn_envelope_tokens_total",
      "turn_messages",
      "turn_wait_seconds",
      "wake_ups_connected",
      "wake_ups_total",
      "watch_lag_seconds",
      "watchers",
    ]);
  });

  test("regression: have no prefix for Node's own metrics, which dashboards expect without one", async () => {
    const text = await createMetrics().text();
    expect(text).toMatch(/^process_resident_memory_bytes \d/m);
    expect(text).toMatch(/^nodejs_eventloop_lag_p99_seconds \d/m);
    expect(text).not.toMatch(/session_ledger_(?:process|nodejs)_/);
  });

  test("have the version as a label", async () => {
    const { version } = z
      .object({ version: z.string() })
      .parse(JSON.parse(readFileSync("package.json", "utf8")));
    const line = `session_ledger_build_info{version="${version}",node="${process.version}"} 1`;
    expect(await createMetrics().text()).toContain(line);
  });

  test("count calls by method and code, and time them by method in seconds", async () => {
    const metrics = createMetrics();
    const push = metrics.callsOf("PushSessionEvent");
    push.recordEnd("OK", 3);
    push.recordEnd("OK", 400);
    push.recordEnd("RESOURCE_EXHAUSTED", 0);
    metrics.callsOf("GetSession").recordEnd("OK", 1);
    metrics.refused("QUEUE_FULL");
    const lines = (await metrics.text()).split("\n");
    for (const line of [
      'session_ledger_calls_total{method="PushSessionEvent",code="OK"} 2',
      'session_ledger_calls_total{method="PushSessionEvent",code="RESOURCE_EXHAUSTED"} 1',
      'session_ledger_calls_total{method="GetSession",code="OK"} 1',
      'session_ledger_call_duration_seconds_bucket{le="0.005",method="PushSessionEvent"} 2',
      'session_ledger_call_duration_seconds_bucket{le="0.5",method="PushSessionEvent"} 3',
      'session_ledger_call_duration_seconds_sum{method="PushSessionEvent"} 0.403',
      'session_ledger_refused_total{reason="QUEUE_FULL"} 1',
    ]) {
      expect(lines).toContain(line);
    }
  });

  test("are separate for two services in one process", async () => {
    const [one, other] = [createMetrics(), createMetrics()];
    one.queueRows.set(7);
    expect(await one.text()).toContain("session_ledger_queue_rows 7");
    expect(await other.text()).toContain("session_ledger_queue_rows 0");
  });
});
