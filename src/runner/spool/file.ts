/**
 * The spool's file: a log that is appended to in the background, so that waiting records outlive
 * the process (not the machine: nothing is fsynced). Only two callers wait for the file: `close`,
 * and a stream for the line with its epoch.
 *
 *   changed() ──► one writing loop: epochs, then new records, then the settled numbers
 *                   └── file twice as large as after its last rewrite ──► waiting records into a new file
 *
 * The loop reads the lanes at the time of the write: a record that is settled by then is never
 * written, and this file holds no copy. A full or missing disk ends the file, and not the writer.
 */
import {
  type FileHandle,
  link,
  lstat,
  open,
  readdir,
  readFile,
  rename,
  rm,
  writeFile,
} from "node:fs/promises";
import { basename, dirname } from "node:path";
import { setImmediate } from "node:timers/promises";
import { deferred } from "../../base/deferred.ts";
import { codeOf } from "../../base/errors.ts";
import { textOf } from "../failure.ts";
import { decodeLine, readLines } from "../lines.ts";
import { eventLine, headerLine, laneLine, messageLine, SpoolReader, settledLine } from "./lines.ts";
import { isEmpty, type Lane, later } from "./spool.ts";

interface OpenedSpool {
  readonly log: SpoolFile;
  /** The lanes of earlier processes, oldest first. */
  readonly left: readonly Lane[];
}

interface SpoolFileOptions {
  readonly file: string;
  readonly sessionId: string;
  readonly live: Lane;
  /** Called when more messages are in the file, or when the file was given up. */
  readonly written: () => void;
}

/** Readable only by the owner: the file contains messages of agents and people. */
const FILE_MODE = 0o600;
/** The text of one write. */
const SLICE_UNITS = 64 * 1024;
/** A record of the largest payload, with each byte escaped; a longer line is not from a writer. */
const LINE_BYTES_MAX = 32 * 1024 * 1024;
/** A smaller file is not rewritten. */
const COMPACT_BYTES_MIN = 1024 * 1024;

/** Undefined when the file cannot be used, after the problem was reported. Never rejects. */
export async function openSpoolFile(
  { file, sessionId, live, written }: SpoolFileOptions,
  tell: (message: string) => void,
): Promise<OpenedSpool | undefined> {
  let unlock: (() => Promise<void>) | undefined;
  try {
    // A rename to this path would replace a device, a pipe or a link.
    const found = await lstat(file).catch(() => undefined);
    if (found?.isFile() === false) throw new Error(`${file} is not a regular file`);
    unlock = await lockFile(file);
    const lanes = await readLanes(file, sessionId);
    live.generation = lanes.reduce((highest, lane) => Math.max(highest, lane.generation), 0) + 1;
    const left = lanes.filter((lane) => !isEmpty(lane));
    const log = new SpoolFile({ file, sessionId, lanes: [...left, live], unlock, written, tell });
    // Begins with a new file, so that no incomplete line of a dead process stands before ours.
    await log.rewrite();
    return { log, left };
  } catch (error) {
    tell(textOf(error));
    await unlock?.().catch(() => undefined);
    return undefined;
  }
}

async function readLanes(file: string, sessionId: string): Promise<readonly Lane[]> {
  const reader = new SpoolReader(sessionId);
  const handle = await open(file, "r").catch((error: unknown) => {
    if (codeOf(error) === "ENOENT") return undefined;
    throw error;
  });
  if (handle === undefined) return [];
  try {
    if ((await handle.stat()).size === 0) return [];
    const chunks = handle.createReadStream({ autoClose: false });
    const limits = { bytesMax: LINE_BYTES_MAX, stopsAtTooLong: true };
    for await (const line of readLines(chunks, limits)) {
      if (line.bytes === undefined)
        throw new Error(`${file} is not a spool: line ${line.number} has no end`);
      reader.read(decodeLine(line) ?? "");
    }
  } finally {
    await handle.close();
  }
  return reader.lanes;
}

/** The part of a lane that is in the file. */
interface Written {
  /** The content of its line; undefined: it has no line. */
  lane: string | undefined;
  events: bigint;
  messages: bigint;
  settled: string | undefined;
}

interface SpoolFileParts {
  readonly file: string;
  readonly sessionId: string;
  /** The last one is the live one. */
  readonly lanes: readonly Lane[];
  readonly unlock: () => Promise<void>;
  readonly written: () => void;
  readonly tell: (message: string) => void;
}

export class SpoolFile {
  readonly #parts: SpoolFileParts;
  #written: ReadonlyMap<Lane, Written> = new Map();
  #handle: FileHandle | undefined;
  #bytes = 0;
  #compactAtBytes = COMPACT_BYTES_MIN;
  #writing: Promise<void> | undefined;
  #isDirty = false;
  /** Resolves when the next slice is written, or when the file was given up. */
  #nextSlice = deferred<void>();

  constructor(parts: SpoolFileParts) {
    this.#parts = parts;
  }

  /** Something in a lane has changed. The call is cheap: the write looks the change up. */
  changed(): void {
    this.#isDirty = true;
    if (this.#handle !== undefined) this.#writing ??= this.#write();
  }

  /** Resolves when the current epochs of the lanes are written, or when the file was given up. */
  async lanesWritten(): Promise<void> {
    if (this.#handle === undefined) return;
    // Each slice begins with the changed lanes; the current slice may have begun before this
    // change.
    const { promise } = this.#nextSlice;
    this.changed();
    await promise;
  }

  /** Resolves when the file is closed; true: the waiting records are in it. */
  async close(): Promise<boolean> {
    this.changed();
    await this.#writing;
    const isOfUse = this.#handle !== undefined;
    await this.#handle?.close();
    this.#handle = undefined;
    const { file, lanes, unlock } = this.#parts;
    const keeps = isOfUse && !lanes.every(isEmpty);
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
        this.#tellWritten();
        if (this.#bytes > this.#compactAtBytes) await this.rewrite();
      }
    } catch (error) {
      this.#parts.tell(`${this.#parts.file}: ${textOf(error)}`);
      await this.#handle?.close().catch(() => undefined);
      this.#handle = undefined;
      this.#tellWritten();
      this.#nextSlice.resolve();
    } finally {
      this.#writing = undefined;
    }
  }

  /** Writes the next slice; true when there may be more. */
  async #append(handle: FileHandle): Promise<boolean> {
    const { resolve } = this.#nextSlice;
    this.#nextSlice = deferred();
    const text = this.#slice();
    try {
      if (text !== "") this.#bytes += (await handle.write(text)).bytesWritten;
    } finally {
      resolve();
    }
    return text.length >= SLICE_UNITS;
  }

  /** Writes the waiting records into a file that replaces this one. */
  async rewrite(): Promise<void> {
    const { file, sessionId, lanes } = this.#parts;
    const path = `${file}.new`;
    const handle = await open(path, "w", FILE_MODE);
    this.#written = new Map(
      lanes
        .filter((lane) => !lane.isLeft || !isEmpty(lane))
        .map((lane) => [lane, { lane: undefined, events: 0n, messages: 0n, settled: undefined }]),
    );
    this.#bytes = (await handle.write(headerLine(sessionId))).bytesWritten;
    while (await this.#append(handle));
    await rename(path, file);
    await this.#handle?.close();
    this.#handle = handle;
    this.#tellWritten();
    this.#compactAtBytes = Math.max(COMPACT_BYTES_MIN, 2 * this.#bytes);
  }

  #tellWritten(): void {
    for (const [lane, { messages }] of this.#written) {
      lane.messagesInFile = this.#handle === undefined ? undefined : messages;
    }
    this.#parts.written();
  }

  /** The next piece of the log; empty when the file is up to date. */
  #slice(): string {
    const news = Array.from(this.#written, ([lane, written]) => {
      const text = laneLine(lane);
      if (text === written.lane) return "";
      written.lane = text;
      return text;
    });
    let slice = news.join("");
    for (const [lane, written] of this.#written) slice += recordLines(lane, written, slice.length);
    for (const [lane, written] of this.#written) {
      const text = settledLine(lane);
      if (text !== written.settled) slice += text;
      written.settled = text;
    }
    return slice;
  }
}

/** Records of the lane that are not in the file, as many as the slice has room for. */
function recordLines(lane: Lane, written: Written, units: number): string {
  const { events, messages } = lane;
  let text = "";
  // Records that were settled meanwhile have left the queue, and are not needed in the file.
  written.events = later(written.events, events.frontNumber - 1n);
  written.messages = later(written.messages, messages.frontNumber - 1n);
  while (written.messages < messages.lastNumber && units + text.length < SLICE_UNITS) {
    written.messages += 1n;
    const record = messages.at(written.messages);
    if (record !== undefined) text += messageLine(lane, written.messages, record);
  }
  while (written.events < events.lastNumber && units + text.length < SLICE_UNITS) {
    written.events += 1n;
    const record = events.at(written.events);
    if (record !== undefined) text += eventLine(lane, written.events, record);
  }
  return text;
}

/**
 * Files of this process: two writers must not both own one file. Between processes, `<file>.lock`
 * names the owner by its process id and its start time, because ids are used again (in a container
 * the first process has the same id each time). A lock whose owner is gone is taken over.
 */
const held = new Set<string>();

/** Rejects when another owner has the file. Resolves to the function that releases it. */
async function lockFile(file: string): Promise<() => Promise<void>> {
  const path = `${file}.lock`;
  if (held.has(path)) throw new Error(`${file} is in use by another writer of this process`);
  held.add(path);
  try {
    await take(path, file);
  } catch (error) {
    held.delete(path);
    throw error;
  }
  return async () => {
    await rm(path, { force: true });
    held.delete(path);
  };
}

async function take(path: string, file: string): Promise<void> {
  const own = `${path}.${process.pid}`;
  await writeFile(own, JSON.stringify({ pid: process.pid, started: await startedAt(process.pid) }));
  try {
    const owner = await ownerOf(path);
    if (owner !== undefined && (await isAlive(owner))) {
      throw new Error(`${file} is in use by process ${owner.pid}`);
    }
    await rm(path, { force: true });
    await link(own, path); // Fails when another process was faster.
    await removeParts(path);
  } finally {
    await rm(own, { force: true });
  }
}

/** Removes the files of processes that were killed while they took the lock. */
async function removeParts(path: string): Promise<void> {
  const prefix = `${basename(path)}.`;
  for (const name of await readdir(dirname(path))) {
    const pid = name.startsWith(prefix) ? Number(name.slice(prefix.length)) : Number.NaN;
    if (!Number.isInteger(pid) || (await isAlive({ pid, started: undefined }))) continue;
    await rm(`${path}.${pid}`, { force: true });
  }
}

interface Owner {
  readonly pid: number;
  readonly started: string | undefined;
}

async function ownerOf(path: string): Promise<Owner | undefined> {
  try {
    const { pid, started } = JSON.parse(await readFile(path, "utf8"));
    return typeof pid === "number" ? { pid, started: started && String(started) } : undefined;
  } catch {
    return undefined; // There is no lock, or the lock has no readable owner.
  }
}

async function isAlive({ pid, started }: Owner): Promise<boolean> {
  try {
    process.kill(pid, 0); // Signal 0 only tests the process.
  } catch (error) {
    // EPERM: the process exists, and belongs to another user.
    if (codeOf(error) !== "EPERM") return false;
  }
  // This process does not hold the file, so an earlier process with the same id did.
  if (pid === process.pid) return false;
  const now = await startedAt(pid);
  return started === undefined || now === undefined || started === now;
}

/** Field 22 of stat (proc(5)); on other systems only the id is compared. */
async function startedAt(pid: number): Promise<string | undefined> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19];
  } catch {
    return undefined;
  }
}
