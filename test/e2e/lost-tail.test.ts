/**
 * A database that goes back: an asynchronous standby is promoted that lacks the newest rows, or a backup
 * is restored, while services and their clients go on. The numbers of the lost rows are given to other
 * rows at once. Nobody may be given rows of both histories without a word.
 */
import { afterAll, afterEach, expect, test } from "vitest";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { createSessionWriter, type WriterProblem } from "@session-ledger/runner";
import { cleanUp } from "../support/embedded-fixture.ts";
import { eventually } from "../support/eventually.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { API, Following } from "../support/http-clients.ts";
import { PushStreamClient, whole } from "../support/push-stream.ts";
import { push } from "../support/pushing.ts";
import { type OwnServer, startServer } from "../support/replicas.ts";
import { type ServiceProcess, startService } from "../support/service-process.ts";
import { copyOfStopped, restore, Standby } from "../support/standby.ts";
import { hostAndPort, startTcpProxy, type TcpProxy } from "../support/broken-network.ts";

const { watchSessionEvents, listSessionEvents } = SessionService.method;

const ends: (() => Promise<unknown> | void)[] = [];

afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});

afterAll(cleanUp);

interface World {
  readonly database: OwnServer;
  readonly way: TcpProxy;
  readonly here: ServiceProcess;
  readonly there: ServiceProcess;
  readonly client: RpcClient;
  readonly other: RpcClient;
}

async function startWorld(): Promise<World> {
  const database = await startServer();
  ends.push(() => database.stop());
  const way = await startTcpProxy(hostAndPort(new URL(database.server.url).host));
  ends.push(() => way.stop());
  const url = new URL(database.server.url);
  url.port = String(way.port);
  const databaseUrl = url.href;
  const [here, there] = await Promise.all([
    startService({ databaseUrl }),
    startService({ databaseUrl }),
  ]);
  ends.push(() => Promise.all([here.stop(), there.stop()]));
  const client = new RpcClient(here.grpcAddress);
  const other = new RpcClient(there.grpcAddress);
  ends.push(() => {
    client.close();
    other.close();
  });
  return { database, way, here, there, client, other };
}

/** Pushes rows that say whose history they are of; tried again while the database is away. */
async function say(client: RpcClient, sessionId: string, said: readonly string[]): Promise<void> {
  for (const value of said) {
    const payload = JSON.stringify({ type: "CUSTOM", name: "said", value });
    const idempotencyKey = `${sessionId} ${value}`;
    await eventually(() => push(client, "events", { sessionId, payload, idempotencyKey }));
  }
}

function numbered(what: string, first: number, last: number): readonly string[] {
  return Array.from({ length: last - first + 1 }, (_, at) => `${what} ${first + at}`);
}

/** What a watch was given, and what it ended with. */
class Watched {
  readonly said: string[] = [];
  ended: unknown;

  constructor(client: RpcClient, sessionId: string) {
    void this.#run(client, sessionId);
  }

  async #run(client: RpcClient, sessionId: string): Promise<void> {
    const call = client.serverStream(watchSessionEvents, { sessionId });
    ends.push(() => call.cancel());
    try {
      for await (const { payload } of call) this.said.push(valueOf(payload));
      this.ended = "ok";
    } catch (error) {
      this.ended = error;
    }
  }
}

function valueOf(payload: string): string {
  const { value }: { readonly value?: unknown } = JSON.parse(payload);
  return String(value);
}

async function page(client: RpcClient, sessionId: string): Promise<readonly string[]> {
  const { items } = await client.unary(listSessionEvents, { sessionId, pageSize: 1_000 });
  return items.map(({ payload }) => valueOf(payload));
}

async function transcript(service: ServiceProcess, sessionId: string): Promise<string> {
  const response = await fetch(
    `http://${service.httpAddress}${API}/sessions/${sessionId}/transcript`,
  );
  return response.text();
}

/** A run that says each of the texts, and does not end. */
async function tell(client: RpcClient, sessionId: string, texts: readonly string[]): Promise<void> {
  for (const value of texts) {
    const messageId = `m-${value}`;
    const events = [
      { type: "TEXT_MESSAGE_START", messageId, role: "assistant" },
      { type: "TEXT_MESSAGE_CONTENT", messageId, delta: value },
      { type: "TEXT_MESSAGE_END", messageId },
    ];
    for (const event of events) {
      const { type: eventType } = event;
      const idempotencyKey = `${sessionId} ${eventType} ${value}`;
      const payload = JSON.stringify(event);
      await eventually(() =>
        push(client, "events", { sessionId, eventType, payload, idempotencyKey }),
      );
    }
  }
}

const LOST = { code: "OUT_OF_RANGE", reason: "CURSOR_BEYOND_HEAD" };

const KEPT_ROWS = numbered("kept", 1, 8);
const LOST_ROWS = numbered("lost", 9, 12);
const NEW_ROWS = numbered("new", 9, 15);
const LAST_ROW = "new 16";

/** How a database goes back. */
interface Way {
  readonly name: string;
  /** What is committed by now will be there; resolves with what loses the rest. */
  keep(world: World): Promise<() => Promise<void>>;
}

const WAYS: readonly Way[] = [
  {
    name: "a failover to a standby that was behind",
    async keep(world) {
      const copy = await copied(world);
      const { server } = world.database;
      const standby = await Standby.start(copy, server.url);
      ends.push(() => standby[Symbol.asyncDispose]());
      await say(world.client, "followed", ["kept"]);
      await standby.caughtUp(server.url);
      await standby.fallBehind();
      return async () => {
        await server.stop();
        await standby.promote();
        goTo(world, standby.url);
      };
    },
  },
  {
    name: "a backup that is restored under running services",
    async keep(world) {
      const copy = await copied(world);
      const { server, dataDir } = world.database;
      return async () => {
        await server.stop();
        await restore(copy, dataDir);
        await server.start();
        goTo(world, server.url);
      };
    },
  },
];

async function copied(world: World): Promise<string> {
  const { server, dataDir } = world.database;
  await server.stop();
  const copy = await copyOfStopped(dataDir);
  await server.start();
  goTo(world, server.url);
  return copy;
}

function goTo({ way }: World, url: string): void {
  way.goTo(hostAndPort(new URL(url).host));
  way.cut();
}

test.each(WAYS)(
  "watches, streams and transcripts never mix rows of two histories after $name",
  async (way) => {
    const world = await startWorld();
    const { here, client, other } = world;
    for (const sessionId of ["taken-again", "shorter"]) await say(client, sessionId, KEPT_ROWS);
    const started = JSON.stringify({ type: "RUN_STARTED", threadId: "agui", runId: "r" });
    await push(client, "events", {
      sessionId: "agui",
      eventType: "RUN_STARTED",
      payload: started,
    });
    await tell(client, "agui", ["kept"]);
    const open = { sessionId: "streamed", producerEpoch: 7n };
    const { stream } = await PushStreamClient.open(client, open);
    stream.batch(1, KEPT_ROWS.map(whole));
    stream.flush();
    await stream.committed(8);
    const problems: WriterProblem[] = [];
    const writer = createSessionWriter({
      address: here.grpcAddress,
      sessionId: "written",
      onProblem: (problem) => void problems.push(problem),
    });
    for (const value of KEPT_ROWS) writer.event({ type: "CUSTOM", name: "said", value });
    expect(await writer.flush()).toMatchObject({ complete: true });
    const lose = await way.keep(world);

    const watched = new Watched(client, "taken-again");
    const idle = new Watched(client, "shorter");
    const rows = `${API}/sessions/taken-again/events?after_seq=0`;
    const source = new Following(`http://${here.httpAddress}${rows}`);
    ends.push(() => source.close());
    const joined = await eventually(() =>
      fetch(`http://${here.httpAddress}/agui/sessions/agui`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({
          threadId: "agui",
          runId: "x",
          messages: [],
          tools: [],
          context: [],
        }),
      }),
    );
    const answer = joined.text();
    for (const sessionId of ["taken-again", "shorter"]) await say(client, sessionId, LOST_ROWS);
    await tell(client, "agui", ["lost"]);
    stream.batch(9, LOST_ROWS.map(whole));
    stream.flush();
    await stream.committed(12);
    for (const value of LOST_ROWS) writer.event({ type: "CUSTOM", name: "said", value });
    expect(await writer.flush()).toMatchObject({ complete: true });
    await eventually(() => {
      expect(watched.said).toEqual([...KEPT_ROWS, ...LOST_ROWS]);
      expect(idle.said).toHaveLength(12);
      expect(source.given).toHaveLength(12);
    });
    expect(await transcript(here, "agui")).toContain("lost");

    await lose();
    // The numbers of the lost rows are taken by the other instance, and the next one by this.
    await say(other, "taken-again", NEW_ROWS);
    await tell(other, "agui", ["new"]);
    await say(client, "taken-again", [LAST_ROW]);

    await eventually(() => expect(watched.ended).toMatchObject(LOST));
    expect(watched.said).toEqual([...KEPT_ROWS, ...LOST_ROWS]);
    await eventually(() => expect(idle.ended).toMatchObject(LOST));
    const history = [...KEPT_ROWS, ...NEW_ROWS, LAST_ROW];
    // An EventSource gets the error, and reconnects by itself, at the beginning.
    await eventually(() =>
      expect(source.given.slice(12).map(({ data }) => valueOf(data))).toEqual(history),
    );
    expect(source.named.map(({ data }) => data).join()).toContain("CURSOR_BEYOND_HEAD");
    expect(await answer).toContain('"code":"CURSOR_BEYOND_HEAD"');

    const later = new Watched(client, "taken-again");
    await eventually(() => expect(later.said).toEqual(history));
    expect(await page(client, "taken-again")).toEqual(history);
    const shown = await transcript(here, "agui");
    expect(shown).toContain("new");
    expect(shown).not.toContain("lost");

    stream.batch(13, [whole("13")]);
    stream.flush();
    const failure = await stream.failure();
    expect(failure).toMatchObject({ ...LOST, message: expect.stringContaining("from number 9") });
    const again = await PushStreamClient.open(client, open);
    expect(again.opened.lastClientSeq).toBe(8n);
    again.stream.cancel();

    writer.event({ type: "CUSTOM", name: "said", value: "13" });
    expect(await writer.flush()).toMatchObject({ complete: true });
    expect(await page(other, "written")).toEqual([...KEPT_ROWS, "13"]);
    expect(problems).toContainEqual({ kind: "lost", stream: "events", count: 4 });
    await writer.close();
  },
  120_000,
);
