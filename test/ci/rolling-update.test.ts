/**
 * A rolling update: two services on one PostgreSQL behind one name with two addresses, as a headless Service
 * of Kubernetes has it. Each in turn gets SIGTERM and starts again, while the clients of all languages push
 * events and messages, and watches follow them. A client of a user sees no failure: its writers send again
 * what was not acknowledged, and its readers continue after the last row (docs/writing.md, docs/reading.md).
 *
 * The clients are the drivers of test/conformance, each with a file of hosts in a mount namespace.
 */
import { randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { readSession } from "@session-ledger/runner";
import { Driver } from "../conformance/driver.ts";
import { hostAndPort } from "../support/broken-network.ts";
import { createLedgerDatabase } from "../support/database.ts";
import { cleanUp, makeDirectory } from "../support/embedded-fixture.ts";
import { CAP_MS, eventually } from "../support/eventually.ts";
import { clientDrivers } from "../support/foreign-clients.ts";
import {
  endService,
  type ServiceProcess,
  startAgain,
  startService,
} from "../support/service-process.ts";
import { needs, needsNamespaces, toolPath } from "../support/tools.ts";

/** Of `unshare`: mounts for these processes alone, which any user may make. */
const NAMESPACES = ["--map-root-user", "--mount"];
const NAME = "ledger.test";
/** No other service listens here, and no connection begins here. */
const HOSTS = ["127.0.0.91", "127.0.0.92"];
/** Events of one batch, which has one message too. */
const BATCH_EVENTS = 10;
/** Batches of each client while one instance is away, and again while it is back. */
const PROGRESS_BATCHES = 3;

const STREAMS = ["events", "messages"] as const;
type StreamName = (typeof STREAMS)[number];
const CLIENTS = clientDrivers();

describe(
  "in a mount namespace: while each of two instances is stopped and started again",
  needsNamespaces(NAMESPACES),
  () => {
    const instances: ServiceProcess[] = [];
    const loads = new Map<string, Load>();
    /** Of each instance that was stopped. */
    const logs: string[] = [];
    const exitCodes: (number | null)[] = [];

    beforeAll(async () => {
      const { url: databaseUrl } = await createLedgerDatabase();
      let port = 0;
      for (const host of HOSTS) {
        const service = await startService({
          databaseUrl,
          addresses: { grpcAddress: `${host}:${port}` },
        });
        ({ port } = hostAndPort(service.grpcAddress));
        instances.push(service);
      }
      const hosts = join(await makeDirectory(), "hosts");
      await writeFile(hosts, HOSTS.map((host) => `${host} ${NAME}\n`).join(""));
      for (const { language, tool, driver, features } of CLIENTS) {
        if (needs(tool).skip) continue;
        toolPath(tool);
        const command = withHosts(hosts, await driver());
        const reads = features?.includes("reader") ?? true;
        loads.set(language, new Load({ language, command, address: `${NAME}:${port}`, reads }));
      }
      const all = [...loads.values()];
      const running = Promise.all(all.map((load) => load.run()));
      for (const at of HOSTS.keys()) {
        await progress(all);
        const stopped = instances[at];
        if (stopped === undefined) throw new Error("a service of each host was started");
        exitCodes.push(await stopped.stop());
        logs.push(...stopped.log);
        await progress(all);
        instances[at] = await startAgain(stopped);
      }
      await progress(all);
      for (const load of all) load.finish();
      await running;
    });

    afterAll(async () => {
      await Promise.all([...loads.values()].map((load) => load.kill()));
      await Promise.all(instances.map(endService));
      await cleanUp();
    });

    describe.each(CLIENTS)("$language", ({ language, tool, features }) => {
      const load = (): Load => {
        const found = loads.get(language);
        if (found === undefined) throw new Error(`no client in ${language}`);
        return found;
      };

      test("no push fails", needs(tool), () => {
        expect(load().failures).toEqual([]);
        expect(load().ends).toMatchObject({ complete: true, refused: 0, dropped: 0, pending: 0 });
        expect(load().ends).toMatchObject({
          state: "closed",
          committed: load().batches * BATCH_EVENTS,
        });
      });

      test("each pushed row is stored once, in order", needs(tool), async () => {
        const address = instances[0]?.grpcAddress ?? "";
        for (const stream of STREAMS)
          expect(await storedIn(address, load().sessionId, stream)).toEqual(load().pushed(stream));
      });

      test("a watch of each stream has each row once, in order", {
        skip: needs(tool).skip || !(features?.includes("reader") ?? true),
      }, () => {
        for (const stream of STREAMS) expect(load().watched[stream]).toEqual(load().pushed(stream));
      });
    });

    test("no stop cuts a call off", () => {
      expect(exitCodes).toEqual(HOSTS.map(() => 0));
      expect(
        logs.filter((line) => /calls cut at the stop limit|"level":"(error|fatal)"/.test(line)),
      ).toEqual([]);
    });
  },
);

/** Resolves when every client has pushed some more batches. */
async function progress(all: readonly Load[]): Promise<void> {
  const goals = all.map(({ batches }) => batches + PROGRESS_BATCHES);
  const isBehind = ({ batches, failures }: Load, at: number): boolean =>
    failures.length === 0 && batches < (goals[at] ?? 0);
  await eventually(() => expect(all.filter(isBehind).map(({ language }) => language)).toEqual([]));
}

/** The command, where a name has the addresses of this file. */
function withHosts(hosts: string, command: readonly string[]): readonly string[] {
  const script = 'mount --bind "$0" /etc/hosts && exec "$@"';
  return ["unshare", ...NAMESPACES, "sh", "-c", script, hosts, ...command];
}

async function storedIn(
  address: string,
  sessionId: string,
  stream: StreamName,
): Promise<readonly string[]> {
  const options = { address, sessionId };
  const items =
    stream === "events"
      ? readSession({ ...options, expand: true })
      : readSession({ ...options, stream });
  const rows: string[] = [];
  for await (const { seq, payload } of items) rows.push(rowText(seq, payload));
  return rows;
}

/** The number of a row and the number that was pushed in it. */
function rowText(seq: bigint | number, payload: string): string {
  const { value } = z.object({ value: z.int() }).parse(JSON.parse(payload));
  return `${seq}: ${value}`;
}

const settledSchema = z.object({
  complete: z.literal(true),
  refused: z.literal(0),
  dropped: z.literal(0),
});
const readSchema = z.object({ items: z.array(z.object({ seq: z.int(), payload: z.string() })) });

interface LoadOptions {
  readonly language: string;
  readonly command: readonly string[];
  readonly address: string;
  /** The client has a reader. */
  readonly reads: boolean;
}

/** A writer and two readers of one session, each a process of a language. */
class Load {
  readonly language: string;
  readonly sessionId = `rolling-${randomUUID()}`;
  readonly failures: unknown[] = [];
  readonly watched: Record<StreamName, string[]> = { events: [], messages: [] };
  batches = 0;
  /** The writer's own report. */
  ends: object = {};
  readonly #address: string;
  readonly #writer: Driver;
  readonly #readers: readonly (readonly [StreamName, Driver])[];
  #isFinishing = false;
  #lastBatch: number | undefined;

  constructor({ language, command, address, reads }: LoadOptions) {
    this.language = language;
    this.#address = address;
    this.#writer = new Driver(command);
    this.#readers = reads ? STREAMS.map((stream) => [stream, new Driver(command)]) : [];
  }

  /** Never rejects. */
  async run(): Promise<void> {
    try {
      await Promise.all(
        this.#drivers().map((driver) => driver.hello(this.#address, this.sessionId)),
      );
      await this.#writer.do("writer.open");
      // The first batch makes the session, which readers need.
      await this.#push();
    } catch (error) {
      this.failures.push(error);
      return;
    }
    const all = [
      this.#write(),
      ...this.#readers.map(([stream, reader]) => this.#read(stream, reader)),
    ];
    await Promise.all(all.map((one) => one.catch((error: unknown) => this.failures.push(error))));
  }

  /** Of this session, in the form of `rowText`. */
  pushed(stream: StreamName): readonly string[] {
    const count = this.batches * (stream === "events" ? BATCH_EVENTS : 1);
    return Array.from({ length: count }, (_, at) => `${at + 1}: ${at + 1}`);
  }

  /** One more batch, which ends `run`. */
  finish(): void {
    this.#isFinishing = true;
  }

  async kill(): Promise<void> {
    await Promise.all(this.#drivers().map((driver) => driver.kill()));
  }

  #drivers(): readonly Driver[] {
    return [this.#writer, ...this.#readers.map(([, reader]) => reader)];
  }

  async #write(): Promise<void> {
    while (this.#lastBatch === undefined) {
      // Before the push, so that a reader that waits for it knows that no other comes.
      if (this.#isFinishing) this.#lastBatch = this.batches + 1;
      await this.#push();
    }
    this.ends = await this.#writer.do("writer.close", { timeout_ms: CAP_MS });
  }

  async #push(): Promise<void> {
    const value = this.batches + 1;
    const events = Array.from(
      { length: BATCH_EVENTS },
      (_, at) => this.batches * BATCH_EVENTS + at + 1,
    );
    const [settled] = await Promise.all(
      [
        ...events.map((one) =>
          this.#writer.do("writer.event", { event: { type: "CUSTOM", name: "n", value: one } }),
        ),
        this.#writer.do("writer.message", { type: "user", payload: JSON.stringify({ value }) }),
        this.#writer.do("writer.flush", { timeout_ms: CAP_MS }),
      ].toReversed(),
    );
    settledSchema.parse(settled);
    this.batches += 1;
  }

  async #read(stream: StreamName, reader: Driver): Promise<void> {
    await reader.do("reader.open", { stream, after: 0, expand: stream === "events", follow: true });
    const size = stream === "events" ? BATCH_EVENTS : 1;
    for (let batch = 1; ; batch += 1) {
      const { items } = readSchema.parse(
        await reader.do("reader.next", { until: batch * size, timeout_ms: CAP_MS }),
      );
      this.watched[stream].push(...items.map(({ seq, payload }) => rowText(seq, payload)));
      if (batch === this.#lastBatch) return;
    }
  }
}
