/** A service and an honest caller during an attack. */
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { Worker } from "node:worker_threads";
import { expect } from "vitest";
import { z } from "zod";
import type { RpcClient } from "./grpc-client.ts";
import type { AttackName, AttackOrder } from "./hostile-worker.ts";
import { push } from "./pushing.ts";
import type { ServiceProcess } from "./service-process.ts";
import { pace } from "./eventually.ts";

/** An attack may not lock the honest caller out. `npm run bench -- hostile` measures its wait. */
const DEADLINE_MS = 30_000;
const PAUSE_MS = 10;
/** The memory that the service may add; it may hold requests of 256 MiB. */
const MORE_BYTES_MAX = 400 * 1_048_576;

const reportSchema = z.object({
  sentBytes: z.number(),
  connections: z.number(),
  closed: z.number(),
});

export interface Attacked extends z.infer<typeof reportSchema> {
  /** Pushes of the honest caller, each of them acknowledged in time. */
  readonly pushes: number;
}

/** Fails when the honest caller is refused or late, or the service takes more memory than it may. */
export async function attacked(
  { pid }: Pick<ServiceProcess, "pid">,
  client: RpcClient,
  order: AttackOrder & { readonly attack: AttackName },
): Promise<Attacked> {
  const sessionId = "honest";
  await push(client, "events", { sessionId });
  const before = await residentBytes(pid);
  let mostBytes = before;
  let pushes = 0;
  const worker = new Worker(new URL("hostile-worker.ts", import.meta.url), { workerData: order });
  const reported = once(worker, "message");
  const over = new AbortController();
  worker.once("message", () => over.abort());
  try {
    do {
      await push(client, "events", { sessionId }, { deadlineMs: DEADLINE_MS });
      pushes += 1;
      mostBytes = Math.max(mostBytes, await residentBytes(pid));
      await pace(PAUSE_MS);
    } while (!over.signal.aborted);
    const [report] = await reported;
    expect(mostBytes - before).toBeLessThan(MORE_BYTES_MAX);
    return { ...reportSchema.parse(report), pushes };
  } finally {
    await worker.terminate();
  }
}

async function residentBytes(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, "utf8");
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) * 1_024;
}
