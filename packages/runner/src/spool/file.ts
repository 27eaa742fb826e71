/**
 * The spool's file: a log that is appended to in the background, so that waiting records outlive
 * the process. Only two callers wait for the file: `close`, and a stream for the line with its epoch.
 * Their data is on the disk (fsync), and so is a file that replaces another one; other records may be lost with
 * the machine.
 *
 *   changed() ──► one writing loop: epochs, then new records, then the settled numbers
 *                   └── file twice as large as after its last rewrite ──► waiting records into a new file
 *
 * The loop reads the producers at the time of the write: a record that is settled by then is never
 * written, and this file holds no copy. A full or missing disk ends the file, and not the writer.
 */
import { type FileHandle, lstat, open, rename, rm } from "node:fs/promises";
import { dirname } from "node:path";
import { setImmediate } from "node:timers/promises";
import { deferred } from "@session-ledger/base/deferred";
import { codeOf } from "@session-ledger/base/errors";
import { textOf } from "../failure.ts";
import { decodeLine, readLines } from "../lines.ts";
import {
  type Damage,
  eventLine,
  headerLine,
  producerLine,
  messageLine,
  SpoolReader,
  settledLine,
} from "./lines.ts";
import { create, lockFile } from "./lock.ts";
import { isEmpty, type Producer, later } from "./spool.ts";

interface OpenedSpool {
  readonly log: SpoolFile;
  /** The producers of earlier processes, oldest first. */
  readonly left: readonly Producer[];
}

interface SpoolFileOptions {
  readonly file: string;
  readonly sessionId: string;
  readonly live: Producer;
  /** Called when more messages are in the file, or when the file was given up. */
  readonly onWritten: () => void;
}

/** The text of one write. */
const SLICE_UNITS = 64 * 1024;
/** A record of the largest payload, with each byte escaped; a longer line is not from a writer. */
const LINE_BYTES_MAX = 32 * 1024 * 1024;
/** A smaller file is not rewritten. */
const COMPACT_BYTES_MIN = 1024 * 1024;

/** The problems that a spool's file reports. */
export type SpoolFileProblem =
  /** The file cannot be used: the writer continues in memory only. Reported once. */
  | { readonly kind: "file"; readonly message: string }
  /** Lines of the file were damaged. The records that are known to be lost are counted. */
  | {
      readonly kind: "damaged";
      readonly lines: number;
      readonly events: number;
      readonly messages: number;
      readonly message: string;
    };

/** Undefined when the file cannot be used, after the problem was reported. Never rejects. */
export async function openSpoolFile(
  { file, sessionId, live, onWritten }: SpoolFileOptions,
  onProblem: (problem: SpoolFileProblem) => void,
): Promise<OpenedSpool | undefined> {
  let unlock: (() => Promise<void>) | undefined;
  try {
    // A rename to this path would replace a device, a pipe or a link.
    const found = await lstat(file).catch(() => undefined);
    if (found?.isFile() === false) throw new Error(`${file} is not a regular file`);
    unlock = await lockFile(file);
    const { producers, damage } = await readProducers(file, sessionId);
    live.generation =
      producers.reduce((highest, producer) => Math.max(highest, producer.generation), 0) + 1;
    const left = producers.filter((producer) => !isEmpty(producer));
    const log = new SpoolFile({
      file,
      sessionId,
      producers: [...left, live],
      unlock,
      onWritten,
      onProblem,
    });
    // Begins with a new file, so that no incomplete line of a dead process precedes ours.
    await log.rewrite();
    if (damage.lines > 0 || damage.events + damage.messages > 0) onProblem(damagedIn(file, damage));
    return { log, left };
  } catch (error) {
    onProblem({ kind: "file", message: textOf(error) });
    await unlock?.().catch(() => undefined);
    return undefined;
  }
}

function damagedIn(file: string, { lines, firstLine, events, messages }: Damage): SpoolFileProblem {
  const first = lines === 0 ? "" : `, the first is line ${firstLine}`;
  const message = `${file}: ${lines} lines are damaged${first}; at least ${events} events and ${messages} messages of it are lost`;
  return { kind: "damaged", lines, events, messages, message };
}

async function readProducers(
  file: string,
  sessionId: string,
): Promise<ReturnType<SpoolReader["end"]>> {
  const reader = new SpoolReader(sessionId);
  const handle = await open(file, "r").catch((error: unknown) => {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  });
  if (handle === undefined) return reader.end();
  try {
    let endByte = 0;
    const chunks = handle.createReadStream({ autoClose: false });
    const limits = { bytesMax: LINE_BYTES_MAX, stopsAtTooLong: true };
    for await (const line of readLines(chunks, limits)) {
      if (line.bytes === undefined)
        throw new Error(`${file} is not a spool: line ${line.number} has no end`);
      const isTorn = line.endByte - endByte === line.bytes.length;
      endByte = line.endByte;
      reader.read(decodeLine(line), { isTorn });
    }
  } finally {
    await handle.close();
  }
  return reader.end();
}

/** The part of a producer that is in the file. */
interface Written {
  /** The content of its line; undefined: it has no line. */
  producer: string | undefined;
  events: bigint;
  messages: bigint;
  settled: string | undefined;
}

interface SpoolFileParts {
  readonly file: string;
  readonly sessionId: string;
  /** The last one is the live one. */
  readonly producers: readonly Producer[];
  readonly unlock: () => Promise<void>;
  readonly onWritten: () => void;
  readonly onProblem: (problem: SpoolFileProblem) => void;
}

export class SpoolFile {
  readonly #parts: SpoolFileParts;
  #written: ReadonlyMap<Producer, Written> = new Map();
  #handle: FileHandle | undefined;
  #bytes = 0;
  #compactAtBytes = COMPACT_BYTES_MIN;
  #writing: Promise<void> | undefined;
  #isDirty = false;
  /** The next slice must be on the disk before its callers continue. */
  #isSyncDue = false;
  /** Resolves when the next slice is written, or when the file was given up. */
  #nextSlice = deferred<void>();

  constructor(parts: SpoolFileParts) {
    this.#parts = parts;
  }

  /** A producer has changed. The call is cheap: the write looks the change up. */
  changed(): void {
    this.#isDirty = true;
    if (this.#handle !== undefined) this.#writing ??= this.#write();
  }

  /** Resolves when the current epochs of the producers are written, or when the file was given up. */
  async producersWritten(): Promise<void> {
    if (this.#handle === undefined) return;
    // Each slice begins with the changed producers; the current slice may precede this change.
    const { promise } = this.#nextSlice;
    this.#isSyncDue = true;
    this.changed();
    await promise;
  }

  /** Resolves when the file is closed; true: the waiting records are in it. */
  async close(): Promise<boolean> {
    this.#isSyncDue = !this.#parts.producers.every(isEmpty);
    this.changed();
    await this.#writing;
    const isOfUse = this.#handle !== undefined;
    await this.#handle?.close();
    this.#handle = undefined;
    const { file, producers, unlock } = this.#parts;
    const keeps = isOfUse && !producers.every(isEmpty);
    if (isOfUse && !keeps) await rm(file, { force: true });
    await unlock();
    return keeps;
  }

  /** Never rejects: a file that cannot be written is given up. */
  async #write(): Promise<void> {
    await setImmediate(); // The agent's turn goes first.
    try {
      while (this.#isDirty && this.#handle !== undefined) {
        this.#isDirty = false;
        this.#isDirty = (await this.#append(this.#handle)) || this.#isDirty;
        this.#notifyWritten();
        if (this.#bytes > this.#compactAtBytes) await this.rewrite();
      }
    } catch (error) {
      this.#parts.onProblem({ kind: "file", message: `${this.#parts.file}: ${textOf(error)}` });
      await this.#handle?.close().catch(() => undefined);
      this.#handle = undefined;
      this.#notifyWritten();
      this.#nextSlice.resolve();
    } finally {
      this.#writing = undefined;
    }
  }

  /** Writes the next slice; true when more may follow. */
  async #append(handle: FileHandle): Promise<boolean> {
    const { resolve } = this.#nextSlice;
    this.#nextSlice = deferred();
    const isSyncDue = this.#isSyncDue;
    this.#isSyncDue = false;
    const text = this.#slice();
    const hasMore = text.length >= SLICE_UNITS;
    try {
      if (text !== "") this.#bytes += (await handle.write(text)).bytesWritten;
      if (isSyncDue) await handle.datasync();
    } finally {
      resolve();
    }
    return hasMore;
  }

  /** Writes the waiting records into a file that replaces this one. */
  async rewrite(): Promise<void> {
    const { file, sessionId, producers } = this.#parts;
    const path = `${file}.new`;
    const handle = await create(path);
    this.#written = new Map(
      producers
        .filter((producer) => !producer.isLeft || !isEmpty(producer))
        .map((producer) => [
          producer,
          { producer: undefined, events: 0n, messages: 0n, settled: undefined },
        ]),
    );
    this.#bytes = (await handle.write(headerLine(sessionId))).bytesWritten;
    while (await this.#append(handle));
    await handle.sync();
    await rename(path, file);
    await syncFolder(dirname(file));
    await this.#handle?.close();
    this.#handle = handle;
    this.#notifyWritten();
    this.#compactAtBytes = Math.max(COMPACT_BYTES_MIN, 2 * this.#bytes);
  }

  #notifyWritten(): void {
    for (const [producer, { messages }] of this.#written) {
      producer.messagesInFile = this.#handle === undefined ? undefined : messages;
    }
    this.#parts.onWritten();
  }

  /** The next piece of the log; empty when the file is up to date. */
  #slice(): string {
    let slice = "";
    for (const [producer, onWritten] of this.#written) {
      const settled = settledLine(producer);
      const records = recordLines(producer, onWritten, slice.length);
      const news = settled === onWritten.settled ? records : records + settled;
      onWritten.settled = settled;
      const text = producerLine(producer);
      // Before each piece: without the line of its lane, and the epoch in it, a record is of no use.
      if (news !== "" || text !== onWritten.producer) slice += text + news;
      onWritten.producer = text;
    }
    return slice;
  }
}

/** Records of the lane that are not in the file, as many as the slice has room for. */
function recordLines(producer: Producer, onWritten: Written, units: number): string {
  const { events, messages } = producer;
  let text = "";
  // Records that were settled meanwhile have left the queue, and are not needed in the file.
  onWritten.events = later(onWritten.events, events.frontNumber - 1n);
  onWritten.messages = later(onWritten.messages, messages.frontNumber - 1n);
  while (onWritten.messages < messages.lastNumber && units + text.length < SLICE_UNITS) {
    onWritten.messages += 1n;
    const record = messages.at(onWritten.messages);
    if (record !== undefined) text += messageLine(producer, onWritten.messages, record);
  }
  while (onWritten.events < events.lastNumber && units + text.length < SLICE_UNITS) {
    onWritten.events += 1n;
    const record = events.at(onWritten.events);
    if (record !== undefined) text += eventLine(producer, onWritten.events, record);
  }
  return text;
}

/** Makes a rename last. Some systems cannot open a folder. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, "r").catch(() => undefined);
  await handle?.sync().catch(() => undefined);
  await handle?.close();
}
