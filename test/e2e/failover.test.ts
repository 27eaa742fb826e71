/**
 * A failover with two servers of Debian's PostgreSQL 15, and two services with both in DATABASE_URL: all
 * processes of the primary are killed under load, and the standby is promoted. The figures of
 * docs/failover.md are the lines that this test prints, with LOAD_SECONDS=10.
 */
import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, describe, expect, test } from "vitest";
import { createSessionWriter, type WriterProblem } from "@session-ledger/runner";
import {
  DEBIAN_15,
  type DebianServer,
  killDebian,
  makeDebianDirectory,
  runDebian,
  startDebian,
  startDebianOn,
} from "../support/debian-postgres.ts";
import { cleanUp, withSql } from "../support/embedded-fixture.ts";
import { eventually, pace } from "../support/eventually.ts";
import { RpcClient } from "../support/grpc-client.ts";
import type { History } from "../support/history.ts";
import { problemsOf, type Witness } from "../support/history-check.ts";
import { API, Following } from "../support/http-clients.ts";
import { eventsOf } from "../support/push-stream.ts";
import { push } from "../support/pushing.ts";
import { Replicas, underLoad, witnessAt } from "../support/replicas.ts";
import { refusalOf, startCommand } from "../support/service-process.ts";
import { Standby } from "../support/standby.ts";
import { needs, toolPath } from "../support/tools.ts";

const { skip } = needs(DEBIAN_15);
const SECONDS = Number(process.env["LOAD_SECONDS"] ?? "1");
const LOAD = { seconds: SECONDS, sessions: 6, watchers: 36, writers: 6 };
const CONNECTED = /^session_ledger_wake_ups_connected /;
/** Between two events of the push stream. */
const EVENT_INTERVAL_MS = 5;
/** Answers of one client, one after the other; the load lasts until they have come. */
const PULSES = 20;

const ends: (() => Promise<unknown> | void)[] = [];

afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

afterAll(cleanUp);

type Kind = "synchronous" | "asynchronous";

async function startServers(kind: Kind): Promise<{ primary: DebianServer; standby: Standby }> {
  const primary = await startDebian();
  ends.push(() => primary.stop());
  const standby = await Standby.ofDebian(primary.url);
  ends.push(() => standby[Symbol.asyncDispose]());
  if (kind === "asynchronous") return { primary, standby };
  await withSql(primary.url, async (sql) => {
    await sql`alter system set synchronous_standby_names = '*'`;
    await sql`select pg_reload_conf()`;
    await eventually(async () => {
      expect(await sql`select sync_state from pg_stat_replication`).toEqual([
        { sync_state: "sync" },
      ]);
    });
  });
  return { primary, standby };
}

/** Of both servers, the standby first. */
function urlOf(primary: DebianServer, standby: Standby): string {
  const hosts = [standby.url, primary.url].map((url) => new URL(url).host);
  return `postgres://postgres@${hosts.join(",")}/postgres?target_session_attrs=primary`;
}

/** A client that pushes one event after the other, each until it is acknowledged. */
class Pulse {
  /** The times of its acknowledgements. */
  readonly acknowledgedMs: number[] = [];
  readonly #client: RpcClient;

  constructor(address: string) {
    this.#client = new RpcClient(address);
  }

  async run(signal: AbortSignal): Promise<void> {
    for (let at = 1; !signal.aborted; at += 1) {
      const idempotencyKey = `pulse ${at}`;
      await eventually(() => push(this.#client, "events", { sessionId: "pulse", idempotencyKey }));
      this.acknowledgedMs.push(performance.now());
    }
    this.#client.close();
  }

  async more(count: number): Promise<void> {
    const until = this.acknowledgedMs.length + count;
    await eventually(() => {
      if (this.acknowledgedMs.length < until) throw new Error("no answer");
    });
  }

  get longestGapMs(): number {
    return Math.max(
      ...this.acknowledgedMs.map((ms, at) => ms - (this.acknowledgedMs[at - 1] ?? ms)),
    );
  }
}

function acknowledgedIds({ pushes }: History): readonly string[] {
  return pushes
    .flatMap(({ attempts }) => attempts)
    .flatMap(({ answer }) => (answer.kind === "acknowledged" ? [answer.row.id] : []));
}

function without(rows: Witness["rows"], others: Witness["rows"]): Witness["rows"] {
  const ids = new Set(others.map(({ id }) => id));
  return rows.filter(({ id }) => !ids.has(id));
}

function valueOf(payload: string): number {
  const { value }: { readonly value?: unknown } = JSON.parse(payload);
  return Number(value);
}

/** A push stream of numbered events, and an EventSource that follows them on the other service. */
class Numbers {
  sent = 0;
  readonly problems: WriterProblem[] = [];
  readonly source: Following;
  readonly #writer: ReturnType<typeof createSessionWriter>;

  private constructor(replicas: Replicas) {
    this.#writer = createSessionWriter({
      address: replicas.at(0).grpcAddress,
      sessionId: "streamed",
      onProblem: (problem) => void this.problems.push(problem),
    });
    this.#send();
    const rows = `${API}/sessions/streamed/events?after_seq=0`;
    this.source = new Following(`http://${replicas.at(1).httpAddress}${rows}`);
    ends.push(() => this.source.close());
  }

  static async start(replicas: Replicas): Promise<Numbers> {
    const client = new RpcClient(replicas.at(1).grpcAddress);
    await push(client, "messages", { sessionId: "streamed" }); // An EventSource is refused before.
    client.close();
    return new Numbers(replicas);
  }

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      this.#send();
      await pace(EVENT_INTERVAL_MS);
    }
    await eventually(async () => {
      const { complete } = await this.#writer.flush();
      if (!complete) throw new Error("the writer could not send all of its events");
    });
    await this.#writer.close();
  }

  #send(): void {
    this.#writer.event({ type: "CUSTOM", name: "said", value: (this.sent += 1) });
  }

  get lost(): number {
    return this.problems.reduce((sum, one) => sum + (one.kind === "lost" ? one.count : 0), 0);
  }

  get given(): readonly number[] {
    return this.source.given.map(({ data }) => valueOf(data));
  }
}

async function failOver(kind: Kind) {
  const { primary, standby } = await startServers(kind);
  const url = urlOf(primary, standby);
  const replicas = await Replicas.start(url);
  ends.push(() => replicas.stop());
  const { addresses } = replicas;
  const over = new AbortController();
  const pulse = new Pulse(addresses[0] ?? "");
  const numbers = await Numbers.start(replicas);
  const loads = [pulse.run(over.signal), numbers.run(over.signal)];
  let promotedMs = 0;
  let watchMs = 0;
  let listenMs: readonly number[] = [];
  const history = await underLoad(
    { addresses, url: standby.url },
    {
      ...LOAD,
      mayLose: kind === "asynchronous",
      async strike() {
        await pulse.more(PULSES * SECONDS);
        if (kind === "asynchronous") {
          await standby.caughtUp(primary.url);
          await standby.fallBehind();
          await pulse.more(PULSES);
        }
        await killDebian(primary);
        for (const { opsAddress } of replicas.services) {
          await eventually(async () => {
            const { status } = await fetch(`http://${opsAddress}/readyz`);
            if (status !== 503) throw new Error("it is still ready");
          });
        }
        const given = numbers.given.length;
        await standby.promote();
        promotedMs = performance.now();
        const after = async (isDone: () => boolean | Promise<boolean>): Promise<number> => {
          await eventually(async () => {
            if (!(await isDone())) throw new Error("not yet");
          });
          return Math.round(performance.now() - promotedMs);
        };
        const isListening = async (at: number) => (await replicas.metric(at, CONNECTED)) === 1;
        [watchMs, ...listenMs] = await Promise.all([
          after(() => numbers.given.length > given),
          after(() => isListening(0)),
          after(() => isListening(1)),
        ]);
        await pulse.more(PULSES);
      },
    },
  );
  over.abort();
  await Promise.all(loads);
  const sessionIds = history.sessionIds();
  const after = await witnessAt(standby.url, sessionIds);
  const old = await startDebianOn(primary.pgData, []);
  ends.push(() => old.stop());
  const before = await witnessAt(old.url, sessionIds);
  const acknowledged = new Set(acknowledgedIds(history));
  const lost = without(before.rows, after.rows);
  const acknowledgedMs = pulse.acknowledgedMs.find((ms) => ms > promotedMs) ?? Infinity;
  const figures = {
    acknowledged: acknowledged.size,
    lost: lost.filter(({ id }) => acknowledged.has(id)).length,
    longestGapMs: Math.round(pulse.longestGapMs),
    pushAfterPromotionMs: Math.round(acknowledgedMs - promotedMs),
    watchAfterPromotionMs: watchMs,
    listenAfterPromotionMs: Math.max(...listenMs),
  };
  process.stdout.write(`failover, ${kind} standby: ${JSON.stringify(figures)}\n`);
  const client = new RpcClient(addresses[1] ?? "");
  const events = await eventsOf(client, "streamed");
  client.close();
  const stored = events.map(({ payload }) => valueOf(payload));
  return { history, after, lost, figures, numbers, stored };
}

describe(`a failover under load (${DEBIAN_15})`, () => {
  test.skipIf(skip)("to a synchronous standby loses and repeats nothing", async () => {
    const { history, after, figures, numbers, stored } = await failOver("synchronous");
    expect(problemsOf(history, after)).toEqual([]);
    expect(figures.lost).toBe(0);
    const all = Array.from({ length: numbers.sent }, (_, at) => at + 1);
    expect(stored).toEqual(all);
    await eventually(() => expect(numbers.given).toEqual(all));
    expect(numbers.lost).toBe(0);
  });

  test.skipIf(skip)(
    "to an asynchronous standby that was behind is reported to every watcher, which is exact afterwards",
    async () => {
      const { history, after, lost, figures, numbers, stored } = await failOver("asynchronous");
      expect(problemsOf(history, after, { lost })).toEqual([]);
      expect(figures.lost).toBeGreaterThan(0);
      expect(history.readers.filter(({ wasToldOfLoss }) => wasToldOfLoss)).not.toEqual([]);
      expect(numbers.lost).toBeGreaterThan(0);
      expect(stored).toHaveLength(numbers.sent - numbers.lost);
      expect(stored).toEqual([...new Set(stored)].toSorted((one, other) => one - other));
      await eventually(() => expect(numbers.given.slice(-stored.length)).toEqual(stored));
      expect(numbers.source.named.map(({ data }) => data).join()).toContain("CURSOR_BEYOND_HEAD");
    },
  );
});

describe(`a PostgreSQL that may lose acknowledged rows (${DEBIAN_15})`, () => {
  test.skipIf(skip)("is refused at the start, by the name of its setting", async () => {
    const server = await startDebian(["synchronous_standby_names = 'another'"]);
    ends.push(() => server.stop());
    const refusalWith = (commit: string) =>
      refusalOf({ databaseUrl: `${server.url}?synchronous_commit=${commit}` });
    expect(await refusalWith("off")).toContain(
      "DATABASE_URL: acknowledged rows may be lost: synchronous_commit is off, expected on; ALLOW_LOSS=yes accepts that",
    );
    expect(await refusalWith("local")).toContain(
      "synchronous_commit is local, and synchronous_standby_names is set",
    );
    // Nothing was changed before.
    const [schema] = await withSql(server.url, (sql) => sql`select to_regclass('sessions') as is`);
    expect(schema).toEqual({ is: null });
  });

  test.skipIf(skip)("is accepted with ALLOW_LOSS=yes, also without fsync", async () => {
    const directory = await makeDebianDirectory();
    const program = join(directory, "postgres");
    await writeFile(program, `#!/bin/sh\nexec ${toolPath(DEBIAN_15)} "$@" -c fsync=off\n`);
    await chmod(program, 0o755);
    const pgData = join(directory, "data");
    await runDebian("initdb", [`--pgdata=${pgData}`, "--username=postgres", "--auth=trust"]);
    const server = await startDebianOn(pgData, [], program);
    ends.push(() => server.stop());
    expect(await refusalOf({ databaseUrl: server.url })).toContain(
      "acknowledged rows may be lost: fsync is off, expected on",
    );
    const service = startCommand(["serve"], { DATABASE_URL: server.url, ALLOW_LOSS: "yes" });
    const lines: string[] = [];
    for await (const line of service.stdout) {
      lines.push(line);
      if (line.includes('"msg":"serving"')) service.kill("SIGTERM");
    }
    expect(await service.result).toMatchObject({ exitCode: 0 });
    expect(lines.join("\n")).toContain('"msg":"ready"');
  });
});
