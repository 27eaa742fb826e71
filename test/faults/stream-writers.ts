/** Writers of streams: raw ones that move between replicas, and the session writer of the SDK. */
import { setTimeout as delay } from "node:timers/promises";
import { Compression } from "@session-ledger/proto/ambient/v1/event_stream_pb";
import type { Random } from "../support/random.ts";
import type { StoredRow } from "../support/stream-check.ts";
import { StreamSource, StreamWriter } from "../support/stream-clients.ts";
import { eventsOfRun, messagesOfRun, observedWriter } from "../support/writing.ts";
import type { Progress } from "./progress.ts";

interface Parts {
  readonly progress: Progress;
  readonly isOver: () => boolean;
  /** How many times longer than PAUSE_MS it pauses. */
  readonly pauses: number;
}

/** The most events that are queued and not acknowledged. */
const BEHIND_EVENTS_MAX = 120;
const PIECES_MAX = 60;
const LEAVES_ONE_IN = 6;
const SILENCE_MS = 2_000;
const PAUSE_MS = 150;
/** Nothing waits any more when a writer closes. */
const CLOSE_LIMIT_MS = 60_000;
const LOOK_EVERY_MS = 50;

export function newStreamWriter(
  sessionId: string,
  { ways, random }: { readonly ways: readonly string[]; readonly random: Random },
): StreamWriter {
  return new StreamWriter({
    sessionId,
    ways,
    random: random.fork(),
    compression: random.oneIn(4) ? Compression.OFF : Compression.ON,
    epoch: 1n, // It goes away from openings that are not answered yet, and these must not outdo it.
    maxAgeMs: random.pick([0, 20, 100]),
    maxTextBytes: random.pick([0, 64, 65_536]),
    paceMs: 20,
    silenceMs: SILENCE_MS,
  });
}

/** Sends sentences and whole streams one after the other, and sometimes leaves its replica silently. */
export async function writeStream(
  { progress, isOver, pauses }: Parts,
  writer: StreamWriter,
  random: Random,
): Promise<void> {
  const source = new StreamSource(random.fork());
  const name = `stream writer of ${writer.sessionId}`;
  progress.joins(name, [writer.sessionId]);
  const watched = watchProgress(writer, () =>
    progress.acknowledged(name, writer.sessionId, performance.now()),
  );
  while (!isOver()) {
    writer.queue(source.next());
    const behind = random.below(BEHIND_EVENTS_MAX);
    await writer.until(() => writer.events.length - writer.progress <= behind);
    if (random.oneIn(LEAVES_ONE_IN)) writer.leave();
    await delay(random.below(2 * PAUSE_MS * pauses));
  }
  progress.leaves(name);
  await writer.finish();
  watched();
}

function watchProgress(writer: StreamWriter, came: () => void): () => void {
  let before = 0;
  const timer = setInterval(() => {
    if (writer.progress > before) came();
    before = writer.progress;
  }, LOOK_EVERY_MS);
  return () => clearInterval(timer);
}

/** The records of the session writer, and those that must be stored. */
export class WriterRecords {
  readonly sessionId: string;
  readonly events: string[] = [];
  readonly messages: string[] = [];
  /** Its reported problems, by kind. */
  readonly problems = new Map<string, number>();

  constructor(sessionId: string) {
    this.sessionId = sessionId;
  }

  problemsIn(
    events: readonly Pick<StoredRow, "payload">[],
    messages: readonly Pick<StoredRow, "payload">[],
  ): readonly string[] {
    return [
      ...differences(`${this.sessionId} events`, { records: this.events, stored: events }),
      ...differences(`${this.sessionId} messages`, { records: this.messages, stored: messages }),
    ];
  }
}

function differences(
  name: string,
  of: {
    readonly records: readonly string[];
    readonly stored: readonly Pick<StoredRow, "payload">[];
  },
): readonly string[] {
  const stored = of.stored.map(({ payload }) => payload);
  const at = of.records.findIndex((payload, index) => stored[index] !== payload);
  if (at === -1 && stored.length === of.records.length) return [];
  const place = at === -1 ? of.records.length : at;
  const [records, there] = [of.records[place] ?? "nothing more", stored[place] ?? "nothing more"];
  return [`session writer of ${name} ${place + 1}: said ${records}, and there is ${there}`];
}

const MESSAGES_WAITING_MAX = 100;

/**
 * Runs of an agent, one after the other. The agent does not wait for the writer, whatever strikes, until
 * MESSAGES_WAITING_MAX messages wait: the writer pushes messages one by one.
 */
export async function writeSession(
  { progress, isOver, pauses }: Parts,
  records: WriterRecords,
  { address, random }: { readonly address: string; readonly random: Random },
): Promise<void> {
  const { sessionId } = records;
  const { writer, problems } = observedWriter({
    address,
    sessionId,
    progressTimeoutMs: SILENCE_MS,
    openTimeoutMs: SILENCE_MS,
    callTimeoutMs: SILENCE_MS,
  });
  const name = `session writer of ${sessionId}`;
  progress.joins(name, [sessionId]);
  let before = 0;
  const looking = setInterval(() => {
    const { events, messages } = writer.stats;
    const committed = events.committed + messages.committed;
    if (committed > before) progress.acknowledged(name, sessionId);
    before = committed;
  }, LOOK_EVERY_MS);
  for (let run = 1; !isOver(); run += 1) {
    const words = 1 + random.below(PIECES_MAX); // Of no text no message is made.
    records.messages.push(...messagesOfRun(run, words));
    for (const event of eventsOfRun(run, words)) {
      records.events.push(event);
      writer.event(event);
    }
    do await delay(random.below(4 * PAUSE_MS * pauses));
    while (!isOver() && writer.stats.messages.pending > MESSAGES_WAITING_MAX);
  }
  // As long as something gets through: a busy machine may need minutes for what waits.
  while (!progress.hasEnded && writer.stats.events.pending + writer.stats.messages.pending > 0)
    await delay(LOOK_EVERY_MS);
  progress.leaves(name);
  clearInterval(looking);
  const { complete, events, messages, state } = await writer.close({ timeoutMs: CLOSE_LIMIT_MS });
  for (const { kind } of problems)
    records.problems.set(kind, (records.problems.get(kind) ?? 0) + 1);
  if (!complete) {
    throw new Error(`${name}: ${events} events and ${messages} messages are left, ${state}`);
  }
}
