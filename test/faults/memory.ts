/** Samples the memory of each replica all the time, and notices when a replica has ended. */
import { readFile } from "node:fs/promises";
import { childrenOf } from "../support/embedded-fixture.ts";
import type { Replica } from "./cluster.ts";

/** The limit of each process of a replica under this load; the limits of queues and windows add up to less. */
const RSS_MIB_MAX = 600;
const LOOK_EVERY_MS = 500;

export class MemoryWatch {
  readonly #replicas: readonly Replica[];
  readonly #timer: NodeJS.Timeout;
  readonly #highestMib = new Map<string, number>();
  readonly #problems: string[] = [];

  constructor(replicas: readonly Replica[]) {
    this.#replicas = replicas;
    this.#timer = setInterval(() => void this.#look(), LOOK_EVERY_MS);
  }

  get highestMib(): Readonly<Record<string, number>> {
    return Object.fromEntries(this.#highestMib);
  }

  get problems(): readonly string[] {
    const over = [...this.#highestMib].filter(([, mib]) => mib > RSS_MIB_MAX);
    return [
      ...this.#problems,
      ...over.map(([name, mib]) => `${name} took ${mib} MiB of memory, ${RSS_MIB_MAX} allowed`),
    ];
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  async #look(): Promise<void> {
    for (const replica of this.#replicas) {
      if (!replica.isMeantToRun) continue;
      const { pid } = replica.service;
      const own = await residentMib(pid);
      const workers = await Promise.all((await childrenOf(pid)).map(residentMib));
      if (own !== undefined) {
        const mib = Math.max(own, ...workers.filter((one) => one !== undefined));
        this.#highestMib.set(replica.name, Math.max(mib, this.#highestMib.get(replica.name) ?? 0));
      } else if (replica.isMeantToRun && replica.service.pid === pid) {
        replica.isMeantToRun = false;
        this.#problems.push(`${replica.name} ended by itself:\n${replica.lastWords}`);
      }
    }
  }
}

async function residentMib(pid: number): Promise<number | undefined> {
  const status = await readFile(`/proc/${pid}/status`, "utf8").catch(() => "");
  const [, kib] = /^VmRSS:\s+(\d+) kB$/m.exec(status) ?? [];
  return kib === undefined ? undefined : Math.round(Number(kib) / 1_024);
}
