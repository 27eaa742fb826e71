/**
 * What group commit is measured against: the same server, handlers, statement and pool, but every push
 * is appended by itself, in a transaction and an fsync of its own.
 *
 *   DATABASE_URL=postgres://… node test/bench/row-by-row-server.ts     prints {"address":"127.0.0.1:40123"}
 */
import { startAll, stopAll } from "../../src/base/unit.ts";
import { systemClock } from "@session-ledger/base/clock";
import { addressText } from "@session-ledger/base/address";
import { loadConfig } from "../../src/config/config.ts";
import { OpenGroups } from "../../src/handlers/push-stream/open-groups.ts";
import { createPushSessionEvent } from "../../src/handlers/push-session-event.ts";
import { createPushSessionMessage } from "../../src/handlers/push-session-message.ts";
import type { Ingest } from "../../src/ingest/ingest.ts";
import { createRateLimits } from "../../src/ingest/rate-limits.ts";
import { databaseUnavailable } from "../../src/ingest/refusal.ts";
import { createLog } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { GrpcServer } from "../../src/rpc/server.ts";
import { append } from "../../src/store/append.ts";
import { createDatabase } from "../../src/store/database.ts";
import { ANYBODY } from "../support/callers.ts";

const loaded = loadConfig();
if (!loaded.ok) throw new Error(loaded.problems.join("\n"));
const { config } = loaded;

const database = createDatabase({
  url: () => config.databaseUrl ?? "",
  connectionsMax: config.databaseConnections,
  statementTimeoutMs: config.statementTimeoutMs,
  lockTimeoutMs: config.lockTimeoutMs,
  hasFixedPlans: true,
});

const ingest: Pick<Ingest, "push"> = {
  async push(push) {
    const [outcome] = await append(database, [push], { createMissing: true, wait: true });
    if (outcome?.kind === "stored") return { rows: push.rows, deduplicated: false };
    if (outcome?.kind === "deduplicated" && outcome.row !== undefined)
      return { rows: [outcome.row], deduplicated: true };
    throw databaseUnavailable(undefined);
  },
};

const metrics = createMetrics();
const rates = createRateLimits({ clock: systemClock, metrics }, config);
const parts = { ingest, rates, clock: systemClock, metrics, groups: new OpenGroups() };
const rpc = new GrpcServer(
  {
    log: createLog({ level: "info", pretty: false, to: "stderr" }),
    metrics,
    clock: systemClock,
    authenticator: ANYBODY,
    handlers: {
      pushSessionMessage: createPushSessionMessage(parts, config),
      pushSessionEvent: createPushSessionEvent(parts, config),
    },
  },
  {
    address: addressText(config.grpcAddress),
    reflection: false,
    logCalls: config.callLog,
    requestBytesMax: config.requestBytesMax,
    stopLimitMs: config.stopLimitMs,
  },
);

const units = [database, rpc];
await startAll(units);
process.stdout.write(`${JSON.stringify({ address: rpc.address })}\n`);
for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => void stopAll(units));
}
