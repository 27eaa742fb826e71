/**
 * The load of the benchmark `stream`, in a process of its own: sessions of recorded events on push
 * streams or by unary pushes, as fast as the server takes them. Everything is encoded before.
 *
 *   node test/bench/stream-generator.ts <PushLoad as JSON>     prints a PushOutcome as JSON
 */
import { longSession, pushCorpus } from "./corpus.ts";
import { Http2Connection } from "./http2-connection.ts";
import { batchFrames, sessionField, unaryBodies } from "./prepared-session.ts";
import { type Run, StreamLane, UnaryLane } from "./push-lanes.ts";
import { type PushLoad, pushLoadSchema, type PushOutcome } from "./push-load.ts";

async function generate(pushLoad: PushLoad): Promise<PushOutcome> {
  const startLanes = preparedLanes(pushLoad);
  const connections = await Promise.all(
    Array.from({ length: pushLoad.connections }, () => Http2Connection.connect(pushLoad.address)),
  );
  const run = new TimedRun(pushLoad);
  for (const connection of connections) {
    startLanes(run, connection);
    connection.turn();
  }
  try {
    return await run.outcome;
  } finally {
    for (const connection of connections) connection.close();
  }
}

/** Makes the lanes of a connection; what they send is ready. */
function preparedLanes(pushLoad: PushLoad): (run: TimedRun, connection: Http2Connection) => void {
  const { eventsPerFrame, lanesEach, sessionEvents } = pushLoad;
  const events = longSession(pushCorpus().streams, sessionEvents);
  if (eventsPerFrame === "unary") {
    const session = { bodies: unaryBodies(events), fieldOf: sessionField };
    return (run, connection) => {
      const lane = () => new UnaryLane({ run, connection }, session);
      for (const one of Array.from({ length: lanesEach }, lane)) one.start();
    };
  }
  const session = batchFrames(events, { eventsPerFrame });
  return (run, connection) => {
    const lane = () => new StreamLane({ run, connection }, session);
    const lanes = Array.from({ length: lanesEach }, lane);
    for (const one of lanes) one.start();
    // By turns, until none has anything that it may send.
    connection.onTurn(() => {
      while (lanes.map((one) => one.pump()).includes(true));
    });
    run.onStop(() => connection.turn());
  };
}

class TimedRun implements Run {
  readonly outcome: Promise<PushOutcome>;
  readonly #load: PushLoad;
  readonly #settled = Promise.withResolvers<PushOutcome>();
  readonly #sessionIds: string[] = [];
  readonly #stopped: (() => void)[] = [];
  #isStopping = false;
  #lanes: number;
  #sentEvents = 0;
  #frames = 0;
  #events = 0;
  #refused = 0;
  #firstMs = 0;
  #lastMs = 0;
  #cpuAtFirst = process.cpuUsage();

  constructor(pushLoad: PushLoad) {
    this.#load = pushLoad;
    this.#lanes = pushLoad.connections * pushLoad.lanesEach;
    this.outcome = this.#settled.promise;
  }

  get isStopping(): boolean {
    return this.#isStopping;
  }

  onStop(wake: () => void): void {
    this.#stopped.push(wake);
  }

  newSessionId(): string {
    const sessionId = `bench-${this.#load.run}-${this.#sessionIds.length}`;
    this.#sessionIds.push(sessionId);
    return sessionId;
  }

  sent(events: number, frames: number): void {
    if (this.#sentEvents === 0) this.#begin();
    this.#sentEvents += events;
    this.#frames += frames;
    if (this.#sentEvents >= (this.#load.events ?? Number.POSITIVE_INFINITY)) this.#stop();
  }

  acknowledged(events: number): void {
    this.#events += events;
    this.#lastMs = performance.now();
  }

  refused(): void {
    this.#refused += 1;
  }

  failed(error: Error): void {
    this.#settled.reject(error);
  }

  ended(): void {
    this.#lanes -= 1;
    if (this.#lanes > 0) return;
    const { user, system } = process.cpuUsage(this.#cpuAtFirst);
    this.#settled.resolve({
      events: this.#events,
      refused: this.#refused,
      frames: this.#frames,
      seconds: (this.#lastMs - this.#firstMs) / 1_000,
      sessionIds: this.#sessionIds,
      cpuMs: (user + system) / 1_000,
    });
  }

  #begin(): void {
    this.#firstMs = performance.now();
    this.#cpuAtFirst = process.cpuUsage();
    const { seconds } = this.#load;
    if (seconds !== undefined) setTimeout(() => this.#stop(), seconds * 1_000);
  }

  #stop(): void {
    if (this.#isStopping) return;
    this.#isStopping = true;
    // Not from within a lane that is about to send.
    setImmediate(() => {
      for (const wake of this.#stopped) wake();
    });
  }
}

const load = pushLoadSchema.parse(JSON.parse(process.argv[2] ?? ""));
process.stdout.write(`${JSON.stringify({ outcome: await generate(load) })}\n`);
