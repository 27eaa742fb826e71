/** Pushes at a fixed rate, independent of the answers; each row has the time of its push. */
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { RpcClient } from "../support/grpc-client.ts";
import type { Bench } from "./bench.ts";

export interface PacedLoad {
  readonly address: string;
  /** By turns. */
  readonly sessionIds: readonly string[];
  readonly rows: number;
  readonly rowsPerSecond: number;
}

const TICK_MS = 2;
const CALL_LIMIT_MS = 30_000;
/** More than this under way means that the server does not keep up, and the figures would be of a queue. */
const UNDER_WAY_MAX = 2_000;

/** Resolves when all are acknowledged, with how long each took. */
export async function pushPaced(bench: Bench, load: PacedLoad): Promise<readonly number[]> {
  const client = new RpcClient(load.address);
  const tookMs: number[] = [];
  const underWay = new Set<Promise<void>>();
  const beganMs = performance.now();
  try {
    for (let sent = 0; sent < load.rows; ) {
      bench.signal.throwIfAborted();
      const due = Math.min(
        load.rows,
        Math.ceil(((performance.now() - beganMs) * load.rowsPerSecond) / 1_000),
      );
      for (; sent < due; sent += 1) {
        const one = push(sent);
        underWay.add(one);
        void one.finally(() => underWay.delete(one));
      }
      if (underWay.size > UNDER_WAY_MAX) throw new Error("the server does not keep up");
      await new Promise((resolve) => setTimeout(resolve, TICK_MS));
    }
    await Promise.all(underWay);
    return tookMs;
  } finally {
    client.close();
  }

  async function push(turn: number): Promise<void> {
    const sentMs = performance.timeOrigin + performance.now();
    const payload = JSON.stringify({ type: "CUSTOM", name: "bench", value: { sentMs, ...FILLER } });
    const sessionId = load.sessionIds[turn % load.sessionIds.length] ?? "";
    const request = { sessionId, eventType: "CUSTOM", payload };
    await client.unary(SessionService.method.pushSessionEvent, request, {
      deadlineMs: CALL_LIMIT_MS,
    });
    tookMs.push(performance.timeOrigin + performance.now() - sentMs);
  }
}

/** So that a row is about as long as a recorded one. */
const FILLER = { text: "The quick brown fox jumps over the lazy dog. ".repeat(11) };
