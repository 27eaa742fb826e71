/**
 * The AG-UI clients of npm, and CopilotKit's, open sessions of the running service and show what they
 * show when they are given every event: all streams, and some of them joined at every event, with the
 * rest pushed while the client is connected. Recorded streams where CORPUS names their folder: a session
 * a stream, and a session an agent with all of its streams as runs. Hand-written ones elsewhere.
 *
 * Joins are made at some events of each stream, spread over it; at every one with FULL=1.
 */
import { setMaxListeners } from "node:events";
import { isDeepStrictEqual } from "node:util";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import {
  AGUI_CLIENTS,
  type AguiClient,
  type Conversation,
  type OpenClient,
  typeOf,
} from "../support/agui-clients.ts";
import { comparable, oracleOf } from "../support/agui-oracle.ts";
import { cleanUp } from "../support/embedded-fixture.ts";
import { RpcClient, RpcFailure } from "../support/grpc-client.ts";
import { eventRowsOf } from "../support/recorded.ts";
import { endService, type ServiceProcess, startService } from "../support/service-process.ts";
import { ownStreams, recordedStreams, type Stream } from "../support/streams.ts";

/** Sessions at a time. */
const AT_ONCE = 12;
/** Of a stream, without FULL. */
const JOINS_MAX = 10;
const JOINED_STREAMS = 20;
/** Joining at each of n events pushes the stream n times. */
const JOINED_EVENTS_MAX = 130;
/** Two of the recorded runs never end: their RUN_ERROR is of no version. No push pauses for so long. */
const STALE_AFTER = "5s";

const isFull = process.env["FULL"] === "1";

let service: ServiceProcess;
let rpc: RpcClient;
beforeAll(async () => {
  // What the clients find odd in streams of real agents is thousands of lines.
  vi.spyOn(console, "warn").mockReturnValue();
  vi.spyOn(console, "error").mockReturnValue();
  setMaxListeners(0); // A fetch of Node's adds one to the signal of its client at every call.
  service = await startService({ env: { RUN_STALE_AFTER: STALE_AFTER } });
  rpc = new RpcClient(service.grpcAddress);
});
afterAll(async () => {
  rpc.close();
  await endService(service);
  await cleanUp();
  vi.restoreAllMocks();
});

interface Session {
  /** Agent and scenario, for whoever reads a failure. */
  readonly name: string;
  readonly sessionId: string;
  /** As they are stored. */
  readonly events: readonly string[];
}

interface Unstored {
  readonly name: string;
  readonly events: readonly string[];
}

/** One after the other; what no version of the protocol accepts is left out. */
async function push(sessionId: string, events: readonly string[]): Promise<void> {
  for (const payload of events) {
    const request = { sessionId, eventType: typeOf(payload), payload };
    await rpc.unary(SessionService.method.pushSessionEvent, request).catch((error: unknown) => {
      if (!(error instanceof RpcFailure) || error.code !== "INVALID_ARGUMENT") throw error;
    });
  }
}

async function stored(sessionId: string, { name, events }: Unstored): Promise<Session> {
  await push(sessionId, events);
  const rows = await eventRowsOf(service.grpcAddress, sessionId);
  return { name, sessionId, events: rows.map(({ payload }) => payload) };
}

/** In any order, some at a time. */
async function each<T, R>(items: readonly T[], work: (item: T, at: number) => Promise<R>) {
  const results: R[] = [];
  const left = items.map((item, at) => ({ item, at })).toReversed();
  const worker = async (): Promise<void> => {
    for (let next = left.pop(); next !== undefined; next = left.pop()) {
      results[next.at] = await work(next.item, next.at);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return results;
}

function single({ agent, scenario, events }: Stream): Unstored {
  return { name: `${agent}, ${scenario}`, events: events.map(({ payload }) => payload) };
}

/** All that an agent did, as the runs of one session. */
function together(streams: readonly Stream[]): readonly Unstored[] {
  const byAgent = Map.groupBy(streams, ({ agent }) => agent);
  return [...byAgent].map(([name, own]) => ({
    name: `${name}, all runs`,
    events: own.flatMap(({ events }) => events.map(({ payload }) => payload)),
  }));
}

interface Finding {
  readonly where: string;
  readonly shown: Conversation;
  readonly expected: Conversation;
}

/** Of one defect there may be thousands; a few are enough to see it. */
const DIFFERENCES_MAX = 3;

function different(findings: readonly Finding[]): readonly Finding[] {
  return findings
    .filter(({ shown, expected }) => !isDeepStrictEqual(shown, expected))
    .slice(0, DIFFERENCES_MAX);
}

const NOT_ASKED = /pending interrupt/;

/** CopilotKit has no way to answer an interrupt when it connects, and does not ask while one waits. */
async function connectAgain(opened: OpenClient): Promise<void> {
  await opened.connect().catch((error: unknown) => {
    if (!(error instanceof Error && NOT_ASKED.test(error.message))) throw error;
  });
}

/** In one session after the other's events: what it shows, and what it shows when it has come back. */
async function openedTwice(
  client: AguiClient,
  sessions: readonly Session[],
): Promise<readonly Finding[]> {
  const findings = await each(sessions, async ({ name, sessionId, events }) => {
    const opened = client.open(service.httpAddress, sessionId);
    await opened.connect();
    const once = comparable(opened.conversation(), events);
    await connectAgain(opened);
    const twice = comparable(opened.conversation(), events);
    const oracle = await oracleOf(client, events);
    const expected = comparable(oracle.conversation, events);
    return [
      { where: `${name}, once`, shown: once, expected },
      { where: `${name}, twice`, shown: twice, expected },
    ];
  });
  return findings.flat();
}

interface Join {
  readonly session: Session;
  /** How many events are there when the clients come. */
  readonly at: number;
}

/** Every client at once, while the rest is pushed; and once more when all is there. */
async function joined({ session, at }: Join): Promise<readonly Finding[]> {
  const { events } = session;
  const sessionId = `${session.sessionId}-at-${at}`;
  await push(sessionId, events.slice(0, at));
  // CopilotKit's chat must open although nothing is there yet, so its answer does not wait for a run.
  const clients = AGUI_CLIENTS.filter((client) => at > 0 || client.waitsForRun);
  const connections = clients.map((client) => {
    const here = Promise.withResolvers<void>();
    const opened = client.open(service.httpAddress, sessionId);
    const isHere = (): void => here.resolve();
    const ended = opened.connect(at > 0 ? { onEvent: isHere } : { onAnswer: isHere });
    return { client, opened, ended, here: Promise.race([here.promise, ended]) };
  });
  await Promise.all(connections.map(({ here }) => here));
  await push(sessionId, events.slice(at));
  const findings = connections.map(async ({ client, opened, ended }) => {
    await ended;
    const once = comparable(opened.conversation(), events);
    await connectAgain(opened);
    const twice = comparable(opened.conversation(), events);
    const [seen, all] = [runEnd(events, at), events.length].map(async (count) => {
      const { conversation } = await oracleOf(client, events.slice(0, count));
      return comparable(conversation, events);
    });
    const where = `${session.name}, joined at ${at} of ${events.length} by ${client.name}`;
    return [
      { where: `${where}, once`, shown: once, expected: await seen },
      { where: `${where}, twice`, shown: twice, expected: await all },
    ];
  });
  return (await Promise.all(findings)).flat();
}

/** Behind the end of the run that is the newest when so many events are there: then a client is let go. */
function runEnd(events: readonly string[], at: number): number {
  const types = events.map(typeOf);
  const started = types.slice(0, Math.max(at, 1)).lastIndexOf("RUN_STARTED");
  const ended = types.findIndex((type, place) => place > started && isRunEnd(type));
  return ended + 1;
}

function isRunEnd(type: string | undefined): boolean {
  return type === "RUN_FINISHED" || type === "RUN_ERROR";
}

/** The first, the last and some between. */
function boundaries({ length }: readonly string[], most: number): readonly number[] {
  const all = Array.from({ length: length + 1 }, (_, at) => at);
  if (all.length <= most) return all;
  const step = length / (most - 1);
  return Array.from({ length: most }, (_, at) => Math.round(at * step));
}

/** Those whose types of events are the most different from the ones before; then other agents'. */
function varied(sessions: readonly Session[], most: number): readonly Session[] {
  const left = sessions.filter(
    ({ events }) => events.length <= JOINED_EVENTS_MAX && isRunEnd(typeOf(events.at(-1) ?? "{}")),
  );
  const chosen: Session[] = [];
  const known = new Set<string>();
  const news = (session: Session): number =>
    [...featuresOf(session)].filter((one) => !known.has(one)).length;
  while (chosen.length < most && left.length > 0) {
    const best = left.reduce((one, other) => (news(other) > news(one) ? other : one));
    left.splice(left.indexOf(best), 1);
    chosen.push(best);
    for (const feature of featuresOf(best)) known.add(feature);
  }
  return chosen;
}

/** Which types it has, which follow one another, and whose it is. */
function featuresOf({ name, events }: Session): ReadonlySet<string> {
  const types = events.map(typeOf);
  const pairs = types.map((type, at) => `${types[at - 1]} ${type}`);
  return new Set([...types, ...pairs, name.split(",")[0] ?? ""]);
}

async function joinedEach(sessions: readonly Session[], most: number): Promise<readonly Finding[]> {
  const joins = sessions.flatMap((session) =>
    boundaries(session.events, most).map((at): Join => ({ session, at })),
  );
  const startedAt = performance.now();
  const findings = (await each(joins, joined)).flat();
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1);
  const whole = sessions.reduce((sum, { events }) => sum + events.length + 1, 0);
  process.stdout.write(
    `${sessions.length} sessions joined at ${joins.length} of ${whole} boundaries: ` +
      `${findings.length} connections in ${seconds} s\n`,
  );
  return findings;
}

const recorded = recordedStreams();

describe.skipIf(recorded === undefined)("recorded streams, given CORPUS", () => {
  let singles: readonly Session[];
  let several: readonly Session[];
  beforeAll(async () => {
    const streams = (recorded ?? []).filter(({ events }) => events.length > 0);
    singles = await each(streams, (stream, at) => stored(`single-${at}`, single(stream)));
    several = await each(together(streams), (own, at) => stored(`several-${at}`, own));
  });

  test("are as many as are not empty", () => {
    expect(singles).toHaveLength(215);
    expect(several).toHaveLength(26);
  });

  test.each(AGUI_CLIENTS)("$name shows each as if it had been given all of it", async (client) => {
    expect(different(await openedTwice(client, [...singles, ...several]))).toEqual([]);
  });

  test("what no client is given as it is stored is known, and how often", async () => {
    const oracles = await each(AGUI_CLIENTS, (client) =>
      each([...singles, ...several], ({ events }) => oracleOf(client, events)),
    );
    const less = oracles.map((own) => own.filter(({ fed }) => fed !== "everything").length);
    // Of 241 sessions: 23 streams and the 7 agents that they are of. CopilotKit verifies no order.
    expect(less).toEqual([30, 30, 0]);
  });

  test("joined while they run, they are shown whole", async () => {
    const chosen = [...varied(singles, JOINED_STREAMS - 4), ...varied(await severalShort(), 4)];
    expect(different(await joinedEach(chosen, isFull ? Infinity : JOINS_MAX))).toEqual([]);
  });

  /** Of each agent the three shortest streams as the runs of a session. */
  function severalShort(): Promise<readonly Session[]> {
    const streams = recorded ?? [];
    const byLength = streams.toSorted((one, other) => one.events.length - other.events.length);
    const byAgent = Map.groupBy(
      byLength.filter(({ events }) => events.length > 0),
      ({ agent }) => agent,
    );
    const three = together([...byAgent.values()].flatMap((own) => own.slice(0, 3)));
    return each(three, (own, at) => stored(`three-${at}`, own));
  }
});

describe("hand-written streams", () => {
  let sessions: readonly Session[];
  beforeAll(async () => {
    sessions = await each(ownStreams().map(single), (own, at) => stored(`own-${at}`, own));
  });

  test.each(AGUI_CLIENTS)("$name shows each as if it had been given all of it", async (client) => {
    expect(different(await openedTwice(client, sessions))).toEqual([]);
  });

  test("joined at every event while they run, they are shown whole", async () => {
    expect(different(await joinedEach(sessions, Infinity))).toEqual([]);
  });
});
