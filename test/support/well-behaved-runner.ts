import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import type { RpcClient } from "./grpc-client.ts";
import { pace } from "./eventually.ts";

const PUSH_INTERVAL_MS = 20;
/** Only answers are asserted here; the benchmark measures their speed. */
const DEADLINE_MS = 30_000;
const PAYLOAD_BYTES = 1_024;

/** Pushes a small row, waits for the answer and pauses a little, as agents do. */
export class WellBehavedRunner {
  readonly sessionId = "well-behaved";
  readonly latenciesMs: number[] = [];
  readonly failures: string[] = [];
  readonly acknowledged = new Set<number>();
  readonly #client: RpcClient;
  readonly #token: string;

  constructor(client: RpcClient, token: string) {
    this.#client = client;
    this.#token = token;
  }

  pushFor(spanMs: number): Promise<void> {
    const endMs = performance.now() + spanMs;
    return this.pushWhile(() => performance.now() < endMs);
  }

  async pushWhile(goesOn: () => boolean): Promise<void> {
    while (goesOn()) {
      const startMs = performance.now();
      await this.#push();
      this.latenciesMs.push(performance.now() - startMs);
      await pace(PUSH_INTERVAL_MS);
    }
  }

  async #push(): Promise<void> {
    const { sessionId } = this;
    const request = { sessionId, eventType: "assistant", payload: "y".repeat(PAYLOAD_BYTES) };
    try {
      const { seq } = await this.#client.unary(SessionService.method.pushSessionMessage, request, {
        metadata: { authorization: `Bearer ${this.#token}` },
        deadlineMs: DEADLINE_MS,
      });
      this.acknowledged.add(Number(seq));
    } catch (error) {
      this.failures.push(String(error));
    }
  }
}
