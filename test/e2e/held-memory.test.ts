/**
 * Callers that make the service hold something for them and do not move, with a small limit for what it
 * may hold: memory stays within the limit, a runner beside them is never refused, and another caller
 * gets what they have taken. How long the runner waits is measured by `npm run bench -- hostile`.
 */
import { setImmediate as nextTurn } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import { memoryOf } from "../bench/usage.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { anotherGets, Holding, prepare, type Way } from "../support/holding.ts";
import { endService, type ServiceProcess, startService } from "../support/service-process.ts";
import { WellBehavedRunner } from "../support/well-behaved-runner.ts";

const MIB = 1_048_576;
const BUDGET_MIB = 64;
/** Above the limit: what was freed and the collector has not come to, and what no caller is charged for. */
const BESIDE_MIB = 128;
/** The largest request by default, but for its last byte. */
const BODY_BYTES = 4 * MIB - 1;
const OPEN_LIMIT_MS = 60_000;
const WARM_PUSHES = 20;
const TOKENS = {
  hostile: "hostile-0123456789abcdef",
  runner: "runner-0123456789abcdef",
  another: "another-0123456789abcdef",
} as const;

let service: ServiceProcess;
let client: RpcClient;

beforeAll(async () => {
  service = await startService({
    env: {
      AUTH_TOKENS: JSON.stringify({
        tokens: Object.entries(TOKENS).map(([id, token]) => ({ id, token, roles: ["admin"] })),
      }),
      RECEIVED_BYTES_MAX: String(BUDGET_MIB * MIB),
      TRANSCRIPTS_BYTES_MAX: String(32 * MIB),
    },
  });
  client = new RpcClient(service.grpcAddress);
  await prepare(client, TOKENS.runner, { largeRows: 8, spreadRows: 3 });
});

afterAll(async () => {
  client.close();
  await endService(service);
  await cleanUp();
});

/** Each asks for far more than the limit and what may be beside it. */
const CALLS = [
  ["bodies that do not end", 120],
  ["unread event streams", 200],
  ["unread transcripts", 60],
  ["unread exports", 60],
] as const satisfies readonly (readonly [Way, number])[];

test.each(CALLS)(
  "%s of %d calls hold no more memory than the limit of all callers",
  async (way, calls) => {
    const { grpcAddress, httpAddress } = service;
    const runner = new WellBehavedRunner(client, TOKENS.runner);
    await runner.pushWhile(() => runner.latenciesMs.length < WARM_PUSHES);
    const before = await memoryOf(service.pid);
    let peakMiB = before.residentMiB;
    let isHeld = false;
    const pushing = runner.pushWhile(() => !isHeld);
    const watching = (async () => {
      while (!isHeld) {
        const { residentMiB } = await memoryOf(service.pid);
        peakMiB = Math.max(peakMiB, residentMiB);
        await nextTurn();
      }
    })();
    await using holding = new Holding({
      grpcAddress,
      httpAddress,
      token: TOKENS.hostile,
      way,
      calls,
      bodyBytes: BODY_BYTES,
      openLimitMs: OPEN_LIMIT_MS,
    });
    await holding.held;
    const another = await anotherGets(way, { grpcAddress, httpAddress, token: TOKENS.another });
    isHeld = true;
    await Promise.all([pushing, watching]);
    expect(another).toBe("served");
    expect(runner.failures).toEqual([]);
    expect(peakMiB - before.residentMiB).toBeLessThan(BUDGET_MIB + BESIDE_MIB);
  },
);
