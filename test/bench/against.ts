/**
 * Compares another checkout of the service with this one before a change lands: both run at once, each on
 * its own embedded PostgreSQL, and get the same load in turn. A ratio is new / old: more than 1 is faster,
 * except for CPU, where it costs more.
 *
 * Each round starts both sides, because one pair of processes differs by several percent as long as it
 * lives; every second round starts them in the other order. After a turn of each that warms it up, the
 * sides have their turns in both orders, because a later turn may be faster, or slower.
 */
import { certificateFiles, createAuthority } from "../support/certificates.ts";
import { v7 as uuidv7 } from "uuid";
import { SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import { RpcClient } from "../support/grpc-client.ts";
import type { Bench, Findings } from "./bench.ts";
import { payloadOf } from "./bodies.ts";
import { median, ratioOf, rounded } from "./figures.ts";
import { untilIndexed } from "./filled-session.ts";
import { askAsClient } from "./join.ts";
import { conversation } from "./joined-session.ts";
import { runLoad } from "./load.ts";
import { checkPages } from "./pages.ts";
import { pushAmount } from "./push.ts";
import { REPLAYS, type Replay } from "./replay.ts";
import {
  type Ledger,
  pollOnly,
  startLedger,
  startReplica,
  type Target,
  watchersOfOneSession,
} from "./servers.ts";
import { type ShapeName, SHAPES } from "./shapes.ts";
import { streamLoad } from "./stream.ts";
import { runStreamLoad } from "./stream-load.ts";
import { clientsOf, turnOf } from "./turns.ts";
import { upgrade } from "./upgrade.ts";
import { type FanOutFigures, fanOut, pushAll } from "./watch-fan-out.ts";

const { forkSession, pushSessionEvent } = SessionService.method;

const NAMES = ["old", "new"] as const;
type Name = (typeof NAMES)[number];

interface Side {
  readonly ledger: Ledger;
  /** Gets the pushes: the ledger, or of `doors` its replica with TLS, a token and limits. */
  readonly target: Target;
}

interface Figure {
  readonly perSecond: number;
  /** Of the service, where PostgreSQL is measured separately. NaN, in JSON null, if it was not measured. */
  readonly cpuMicros: number;
  readonly postgresMicros?: number;
}

const FAN_OUT_WATCHERS = 500;
const FAN_OUT_ROWS = 500;
const READ_ROWS = 20_000;
const JOIN_EVENTS = 6_000;
/** Passes of one turn: a single pass is shorter than the noise of the machine. */
const IDLE_PUSHES = 1_000;
const READ_PASSES = 5;
/** Of each of 64 sessions. */
const CLAIMS = 40;
const FAN_OUT_PASSES = 3;
const TOKEN = "bench-token-that-is-long-enough-0123456789";

const PARTS = {
  push: unary,
  doors: unary,
  keyed: (bench, { target }) => pushes(bench, target, "keyed"),
  idle,
  stream1: (bench, { ledger }) => stream(bench, ledger, 1),
  stream50: (bench, { ledger }) => stream(bench, ledger, 50),
  read: (bench, side) => read(bench, side, "pages"),
  replay: (bench, side) => read(bench, side, "watch"),
  watch,
  join,
  claim,
} as const satisfies Record<string, (bench: Bench, side: Side) => Promise<Figure>>;
type Part = keyof typeof PARTS;
/** No ratio: it fails where a push does. */
const UPGRADE = "upgrade";

export async function benchAgainst(bench: Bench): Promise<Findings> {
  const { parts, rounds, old } = bench.options;
  const names = Object.keys(PARTS).filter((name): name is Part => Object.hasOwn(PARTS, name));
  const all = [...names, UPGRADE];
  if (parts?.some((part) => !all.includes(part)) === true)
    throw new Error(`--parts: expected ${all.join(", ")}`);
  const ratios: Record<string, Findings> = {};
  for (const part of names) {
    if (parts?.includes(part) === false) continue;
    const found: Record<Name, Figure>[] = [];
    for (let round = 1; round <= rounds; round += 1) {
      const order = round % 2 === 1 ? NAMES : NAMES.toReversed();
      const progress = (line: string) => bench.progress(`${part}, round ${round}, ${line}`);
      found.push(await roundOf({ ...bench, progress }, { part, order }));
    }
    const of = (name: Name, field: keyof Figure) =>
      found.map((round) => round[name][field] ?? Number.NaN);
    ratios[part] = {
      speed: ratioOf(of("new", "perSecond"), of("old", "perSecond")),
      cpu: ratioOf(of("new", "cpuMicros"), of("old", "cpuMicros")),
      postgresCpu: ratioOf(of("new", "postgresMicros"), of("old", "postgresMicros")),
      rounds: found,
    };
  }
  const upgraded = parts?.includes(UPGRADE) !== false && { upgrade: await upgrade(bench) };
  return { old, ratios, ...upgraded };
}

async function roundOf(
  outer: Bench,
  { part, order }: { readonly part: Part; readonly order: readonly Name[] },
): Promise<Record<Name, Figure>> {
  await using undo = new AsyncDisposableStack();
  const bench = { ...outer, undo };
  const sides = new Map<Name, Side>();
  for (const name of order) sides.set(name, await startSide(bench, { part, name }));
  const found: Record<Name, Figure[]> = { old: [], new: [] };
  const back = order.toReversed();
  // Rising, falling and curved trends are the same for both in this sequence, which Thue and Morse found.
  for (const name of [order, order, back, back, order].flat()) {
    const side = sides.get(name);
    if (side === undefined) throw new Error(`${name} was not started`);
    const figure = await PARTS[part](bench, side);
    bench.progress(`${name}: ${Math.round(figure.perSecond)}/s`);
    found[name].push(figure);
  }
  return { old: medianOf(found.old.slice(1)), new: medianOf(found.new.slice(1)) };
}

function medianOf(figures: readonly Figure[]): Figure {
  const of = (field: keyof Figure): number =>
    rounded(median(figures.map((one) => one[field] ?? Number.NaN)));
  const [cpuMicros, postgresMicros] = [of("cpuMicros"), of("postgresMicros")];
  return { perSecond: of("perSecond"), cpuMicros, postgresMicros };
}

async function startSide(
  bench: Bench,
  { part, name }: { readonly part: Part; readonly name: Name },
): Promise<Side> {
  const checkout = name === "old" ? bench.options.old : undefined;
  const env = watchersOfOneSession(FAN_OUT_WATCHERS);
  const ledger = await startLedger(bench, { env, checkout });
  const isClosed = part === "doors";
  return { ledger, target: isClosed ? await startClosed(bench, ledger, checkout) : ledger };
}

/** A replica with TLS, a token and limits. */
async function startClosed(
  bench: Bench,
  ledger: Ledger,
  checkout: string | undefined,
): Promise<Target> {
  const authority = await createAuthority();
  const { certFile, keyFile } = await certificateFiles(await authority.server(), authority);
  const tokens = { tokens: [{ id: "bench", token: TOKEN, roles: ["runner"] }] };
  const env = {
    ...pollOnly(checkout),
    TLS_CERT_FILE: certFile,
    TLS_KEY_FILE: keyFile,
    AUTH_TOKENS: JSON.stringify(tokens),
    // Checked for each push, and above the speed of one machine.
    PRINCIPAL_BYTES_PER_SECOND: "10000000000",
    SESSION_BYTES_PER_SECOND: "10000000000",
  };
  const closed = await startReplica(bench, ledger, env, checkout);
  return { ...closed, door: { authority: authority.certificate, token: TOKEN } };
}

function unary(bench: Bench, { target }: Side): Promise<Figure> {
  return pushes(bench, target, "sessions64");
}

async function pushes(bench: Bench, target: Target, shape: ShapeName): Promise<Figure> {
  const amount = pushAmount(bench);
  const found = await runLoad(bench, target, { shape: SHAPES[shape], amount });
  if (found.notCounted > 0) throw new Error(`${found.notCounted} pushes were refused`);
  return {
    perSecond: found.callsPerSecond,
    cpuMicros: found.serverCpuMicrosPerCall,
    postgresMicros: found.postgresCpuMicrosPerCall,
  };
}

/** One push after the other: 1 / the median of their times. CPU is not measured. */
async function idle(bench: Bench, { ledger }: Side): Promise<Figure> {
  const client = new RpcClient(ledger.address);
  const payload = payloadOf("TEXT_MESSAGE_CONTENT");
  const request = { sessionId: "bench-idle", eventType: "TEXT_MESSAGE_CONTENT", payload };
  const tookMs: number[] = [];
  const count = bench.options.calls ?? (bench.options.quick ? 50 : IDLE_PUSHES);
  for (let turn = 0; turn < count; turn += 1) {
    bench.signal.throwIfAborted();
    const sentMs = performance.now();
    await client.unary(pushSessionEvent, request);
    tookMs.push(performance.now() - sentMs);
  }
  client.close();
  return { perSecond: 1_000 / median(tookMs), cpuMicros: Number.NaN };
}

async function stream(bench: Bench, ledger: Ledger, eventsPerFrame: 1 | 50): Promise<Figure> {
  const load = streamLoad(bench, { eventsPerFrame, isWarmUp: false });
  const found = await runStreamLoad(bench, ledger, load);
  return { perSecond: found.eventsPerSecond, cpuMicros: found.serverCpuMicrosPerEvent };
}

/** The session is filled by pushes, because old and new may have different tables. */
async function read(bench: Bench, { ledger }: Side, by: keyof typeof REPLAYS): Promise<Figure> {
  const rows = bench.options.quick ? 1_000 : READ_ROWS;
  const session = { sessionId: "bench-read", rows, rareType: "", middleMicros: 0n };
  if ((await ledger.witness.rowsOf([session.sessionId])) === 0) {
    await pushAll(bench, ledger, session);
    await untilIndexed(ledger, session.sessionId);
    const client = new RpcClient(ledger.address);
    await checkPages(bench, client, session);
    client.close();
  }
  const found: Replay[] = [];
  for (let pass = 0; pass < READ_PASSES; pass += 1) {
    found.push(await REPLAYS[by](bench, ledger, session));
  }
  return medianOf(
    found.map(({ rowsPerSecond, cpuMicrosPerRow: { service, postgres } }) => ({
      perSecond: rowsPerSecond,
      cpuMicros: service + postgres,
    })),
  );
}

async function watch(bench: Bench, { ledger }: Side): Promise<Figure> {
  const { quick } = bench.options;
  const load = quick
    ? { watchers: 50, rows: 100 }
    : { watchers: FAN_OUT_WATCHERS, rows: FAN_OUT_ROWS };
  const found: FanOutFigures[] = [];
  for (let pass = 0; pass < FAN_OUT_PASSES; pass += 1) {
    found.push(await fanOut(bench, ledger, load));
  }
  return medianOf(
    found.map((one) => ({ perSecond: one.rowsPerSecond, cpuMicros: one.cpuMicrosPerRow })),
  );
}

/** A client opens a session that nobody has opened before, a fork each time. CPU is not measured. */
async function join(bench: Bench, { ledger }: Side): Promise<Figure> {
  const events = conversation(bench.options.quick ? 1_000 : JOIN_EVENTS);
  const client = new RpcClient(ledger.address);
  const id = "bench-join";
  if ((await ledger.witness.rowsOf([id])) === 0) {
    for (const event of events) {
      bench.signal.throwIfAborted();
      await client.unary(pushSessionEvent, { sessionId: id, ...event }, { deadlineMs: 60_000 });
    }
  }
  const perSecond: number[] = [];
  for (let pass = 0; pass < READ_PASSES; pass += 1) {
    const newId = `${id}-${uuidv7()}`;
    await client.unary(forkSession, { sessionId: id, newId, atSeq: BigInt(events.length) });
    const url = `http://${ledger.httpAddress}/agui/sessions/${newId}`;
    const { lastByteMs } = await askAsClient(bench, url);
    perSecond.push((events.length / lastByteMs) * 1_000);
  }
  client.close();
  return { perSecond: median(perSecond), cpuMicros: Number.NaN };
}

/** Turns a second: a claim of one message, and the end of its run. */
async function claim(bench: Bench, { ledger }: Side): Promise<Figure> {
  const turns = bench.options.calls ?? (bench.options.quick ? 5 : CLAIMS);
  const found = await turnOf(bench, { ledger, turns, clients: clientsOf(bench, ledger) });
  const [cpuMicros, postgresMicros] = [found.serviceMs * 1_000, found.postgresMs * 1_000];
  return { perSecond: 1_000 / found.wallMs, cpuMicros, postgresMicros };
}
