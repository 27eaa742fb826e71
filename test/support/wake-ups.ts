import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { toolPath } from "./tools.ts";
import { randomUUID } from "node:crypto";
import { systemClock } from "../../src/base/clock.ts";
import type { Carrier } from "../../src/live/hints/carrier.ts";
import { createExchange, type Exchange, type WakeUps } from "../../src/live/hints/exchange.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { SlowTable } from "./slow-table.ts";
import { eventually } from "./eventually.ts";

// A NATS server for one test, on loopback; `needs("nats-server")` in test/support/tools.ts.

export interface NatsServer extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  stop(): Promise<void>;
  /** On the same port as before. */
  start(): Promise<void>;
}

const PORTS_TRIED_MAX = 5;

export async function startNatsServer(
  options: { readonly config?: string } = {},
): Promise<NatsServer> {
  for (let tried = 1; ; tried += 1) {
    const server = natsServer(await freePort(), options.config);
    try {
      await server.start();
      return server;
    } catch (error) {
      if (tried === PORTS_TRIED_MAX) throw error; // Else somebody took the port meanwhile.
    }
  }
}

/** A server that is not started yet. */
export async function stoppedNatsServer(): Promise<NatsServer> {
  return natsServer(await freePort(), undefined);
}

function natsServer(port: number, config: string | undefined): NatsServer {
  let running: ChildProcess | undefined;
  const stop = async (): Promise<void> => {
    const child = running;
    running = undefined;
    if (child === undefined || child.exitCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  };
  return {
    url: `nats://127.0.0.1:${port}`,
    port,
    stop,
    async start() {
      const directory = await mkdtemp(join(tmpdir(), "session-ledger-test-nats-"));
      const file = join(directory, "nats.conf");
      await writeFile(file, `listen: "127.0.0.1:${port}"\n${config ?? ""}\n`);
      const child = spawn(toolPath("nats-server"), ["--config", file], {
        stdio: ["ignore", "ignore", "pipe"],
      });
      running = child;
      await ready(child);
      await rm(directory, { recursive: true }); // It has been read.
    },
    [Symbol.asyncDispose]: stop,
  };
}

/** The server says on stderr that it is ready; the wait also ends when it exits. */
async function ready(child: ChildProcess): Promise<void> {
  let said = "";
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  child.stderr?.setEncoding("utf8").on("data", (text: string) => {
    said += text;
    if (said.includes("Server is ready")) resolve();
  });
  child.once("error", reject);
  child.once("exit", () => reject(new Error(`nats-server ended: ${said}`)));
  await promise;
}

async function freePort(): Promise<number> {
  const listener = createServer();
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  const address = listener.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  listener.close();
  await once(listener, "close");
  return address.port;
}

// The wake-ups of one instance: all calls of its `live`, in words.

export class WakeUpInstance implements AsyncDisposable {
  readonly exchange: Exchange;
  readonly logged: string[] = [];
  readonly #adapter: string;
  readonly #calls: string[] = [];
  readonly #table = new SlowTable();
  readonly #metrics = createMetrics();

  constructor(carrier: Carrier) {
    const wakeUps: WakeUps = {
      hinted: (id, { messageSeq, eventSeq, deleted }) =>
        this.#calls.push(`${id} ${messageSeq} ${eventSeq}${deleted ? " deleted" : ""}`),
      missed: () => this.#calls.push("missed"),
      lost: () => this.#calls.push("lost"),
      regained: () => this.#calls.push("regained"),
    };
    const write = (line: string): void => {
      const { msg }: { readonly msg: string } = JSON.parse(line);
      this.logged.push(msg);
    };
    const log = createLogTo({ write });
    this.#adapter = carrier.name;
    this.exchange = createExchange(
      { instance: randomUUID(), wakeUps, log, metrics: this.#metrics, clock: systemClock },
      carrier,
    );
  }

  static async started(carrier: Carrier): Promise<WakeUpInstance> {
    const instance = new WakeUpInstance(carrier);
    await instance.exchange.start();
    return instance;
  }

  commit(sessionId: string): void {
    this.exchange.committed([this.#table.event(sessionId)]);
  }

  /** All calls since the last question; waits until there are that many. */
  async hears(count: number): Promise<readonly string[]> {
    await eventually(() => {
      if (this.#calls.length < count) throw new Error(`only ${this.#calls.join(", ")}`);
    });
    return this.#calls.splice(0);
  }

  async isConnected(): Promise<boolean> {
    const connected = `session_ledger_wake_ups_connected{adapter="${this.#adapter}"} 1`;
    return (await this.#metrics.text()).includes(connected);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.exchange.stop();
  }
}
