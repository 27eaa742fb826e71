/** An agent that says a numbered token at a steady pace. */
import { setTimeout as delay } from "node:timers/promises";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { createSessionWriter } from "../../src/runner/writer/writer.ts";
import { RpcClient } from "../support/grpc-client.ts";
import type { AguiEvent } from "../support/inspector-sessions.ts";
import type { Bench } from "./bench.ts";
import type { Ledger } from "./servers.ts";

export interface Tail extends AsyncDisposable {
  /** The text that is there before the first token. */
  readonly opening: string;
  /** Writes for so long, and resolves when the service has all of it. */
  run(load: { readonly seconds: number; readonly eventsPerSecond: number }): Promise<Sent>;
}

export interface Sent {
  /** When each token was written, by its text; milliseconds since 1970. */
  readonly atMs: ReadonlyMap<string, number>;
  /** The text of the last one. */
  readonly last: string;
}

interface Writer {
  event(event: AguiEvent): void;
  flush(): Promise<unknown>;
  close(): Promise<unknown>;
}

/** As an agent speaks: a message of a few hundred words, then the next. */
const TOKENS_OF_MESSAGE = 400;
const TICK_MS = 5;
const CLOSE_LIMIT_MS = 5_000;

/**
 * By the session writer of a runner, which merges the tokens of up to 250 ms; or one push for each token, so
 * that only the way from a push to the page counts.
 */
export async function tailTo(
  bench: Bench,
  { address }: Ledger,
  { sessionId, by }: { readonly sessionId: string; readonly by: "writer" | "pushes" },
): Promise<Tail> {
  const writer = by === "writer" ? merging(address, sessionId) : pushing(address, sessionId);
  const opening = "The tail begins.";
  let written = 0;
  let messageId = "";
  const begin = (): void => {
    messageId = `m${written}`;
    writer.event({ type: "TEXT_MESSAGE_START", messageId, role: "assistant" });
  };
  const token = (text: string): void =>
    writer.event({ type: "TEXT_MESSAGE_CONTENT", messageId, delta: `${text} ` });
  const end = (): void => writer.event({ type: "TEXT_MESSAGE_END", messageId });

  writer.event({ type: "RUN_STARTED", threadId: sessionId, runId: "tail" });
  begin();
  token(opening);
  await writer.flush();
  return {
    opening,
    async run({ seconds, eventsPerSecond }) {
      const atMs = new Map<string, number>();
      const count = Math.ceil(seconds * eventsPerSecond);
      const beganMs = performance.now();
      let last = opening;
      for (let sent = 0; sent < count; ) {
        bench.signal.throwIfAborted();
        const due = Math.min(count, ((performance.now() - beganMs) * eventsPerSecond) / 1_000);
        for (; sent < due; sent += 1, written += 1) {
          if (written % TOKENS_OF_MESSAGE === TOKENS_OF_MESSAGE - 1) {
            end();
            begin();
          }
          last = `token${written}.`;
          atMs.set(last, performance.timeOrigin + performance.now());
          token(last);
        }
        await delay(TICK_MS);
      }
      await writer.flush();
      return { atMs, last };
    },
    async [Symbol.asyncDispose]() {
      end();
      writer.event({ type: "RUN_FINISHED", threadId: sessionId, runId: "tail" });
      await writer.close();
    },
  };
}

function merging(address: string, sessionId: string): Writer {
  const writer = createSessionWriter({ address, sessionId });
  return {
    event: (event) => writer.event(event),
    flush: () => writer.flush(),
    close: () => writer.close({ timeoutMs: CLOSE_LIMIT_MS }),
  };
}

/** The pushes of one connection are committed in the order of their calls. */
function pushing(address: string, sessionId: string): Writer {
  const client = new RpcClient(address);
  const pending = new Set<Promise<unknown>>();
  return {
    event(event) {
      const fields = { sessionId, eventType: event.type, payload: JSON.stringify(event) };
      const pushed = client.unary(SessionService.method.pushSessionEvent, fields);
      pending.add(pushed);
      // A failure is thrown by flush.
      void pushed.then(() => pending.delete(pushed)).catch(() => undefined);
    },
    flush: () => Promise.all(pending),
    async close() {
      await Promise.all(pending);
      client.close();
    },
  };
}
