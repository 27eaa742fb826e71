/**
 * One HTTP/2 connection for a load generator that must not be the bottleneck. A client of Node's own
 * takes microseconds for every message that it writes, about as much as the servers that are measured
 * take to read it; here a message is copied behind nine bytes of header, and many go to the socket at once.
 *
 *   write   HEADERS with one fixed block (no compression state), DATA within both windows
 *   read    DATA is handed on, headers and trailers are not looked into; windows and pings are answered
 *
 * Enough for one server that speaks first and obeys: what is out of order ends the connection with an
 * error. (RFC 9113 for the frames, RFC 7541 section 6.2.2 for the header block)
 */
import { connect, type Socket } from "node:net";

const FRAME_HEAD_BYTES = 9;
const TYPE = {
  data: 0,
  headers: 1,
  rstStream: 3,
  settings: 4,
  ping: 6,
  goAway: 7,
  windowUpdate: 8,
} as const;
const FLAG_ACK = 1;
const FLAG_END_STREAM = 1;
const FLAG_END_HEADERS = 4;
const SETTING_INITIAL_WINDOW = 4;
const DEFAULT_WINDOW_BYTES = 65_535;
/** Answers may have any length: they are read as they arrive. */
const OUR_WINDOW_BYTES = 2 ** 31 - 1;
const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/** The most that every peer takes in one frame. */
const DATA_BYTES_MAX = 16_384;
/** Above it nothing more is written to the socket until it has drained. */
const UNSENT_BYTES_MAX = 512 * 1_024;

export interface StreamListener {
  /** A chunk of what the server sends; it may begin and end anywhere. */
  onData(chunk: Buffer): void;
  /** By trailers, or with an error by anything else. */
  onEnd(error: Error | undefined): void;
}

interface OpenStream {
  readonly listener: StreamListener;
  windowBytes: number;
}

export class Http2Connection {
  readonly #socket: Socket;
  readonly #authority: string;
  readonly #streams = new Map<number, OpenStream>();
  #nextId = 1;
  #windowBytes = DEFAULT_WINDOW_BYTES;
  #initialWindowBytes = DEFAULT_WINDOW_BYTES;
  #rest: Buffer = Buffer.alloc(0);
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #onTurn: () => void = () => undefined;

  private constructor(socket: Socket, authority: string) {
    this.#socket = socket;
    this.#authority = authority;
    socket.setNoDelay(true);
    socket.on("data", (chunk) => this.#read(chunk));
    socket.on("drain", () => this.turn());
    socket.on("error", (error) => this.#fail(error));
    socket.on("close", () => this.#fail(new Error("the server closed the connection")));
    const settings = Buffer.alloc(6);
    settings.writeUInt16BE(SETTING_INITIAL_WINDOW, 0);
    settings.writeUInt32BE(OUR_WINDOW_BYTES, 2);
    const more = Buffer.alloc(4);
    more.writeUInt32BE(OUR_WINDOW_BYTES - DEFAULT_WINDOW_BYTES);
    this.#put(Buffer.from(PREFACE, "latin1"));
    this.#put(frameOf({ type: TYPE.settings, flags: 0, id: 0 }, settings));
    this.#put(frameOf({ type: TYPE.windowUpdate, flags: 0, id: 0 }, more));
    this.turn();
  }

  static async connect(address: string): Promise<Http2Connection> {
    const { hostname, port } = new URL(`http://${address}`);
    const socket = connect({ host: hostname, port: Number(port) });
    await new Promise<void>((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("error", reject);
    });
    return new Http2Connection(socket, address);
  }

  /** Called when bytes arrived or the socket drained: more may be sent. */
  onTurn(send: () => void): void {
    this.#onTurn = send;
  }

  /** Begins a gRPC call. */
  open(path: string, listener: StreamListener): number {
    const id = this.#nextId;
    this.#nextId += 2;
    this.#streams.set(id, { listener, windowBytes: this.#initialWindowBytes });
    const block = headerBlock({ path, authority: this.#authority });
    this.#put(frameOf({ type: TYPE.headers, flags: FLAG_END_HEADERS, id }, block));
    return id;
  }

  /** Bytes that may be sent on the stream now; 0 also while the socket has enough to do. */
  room(id: number): number {
    if (this.#socket.writableLength + this.#pendingBytes > UNSENT_BYTES_MAX) return 0;
    const windowBytes = this.#streams.get(id)?.windowBytes ?? 0;
    return Math.max(0, Math.min(windowBytes, this.#windowBytes));
  }

  /** One message, in DATA of its own as gRPC clients write it; within `room`. */
  send(id: number, message: Buffer): void {
    const stream = this.#streams.get(id);
    if (stream === undefined) return;
    stream.windowBytes -= message.length;
    this.#windowBytes -= message.length;
    for (let at = 0; at < message.length; at += DATA_BYTES_MAX) {
      const part = message.subarray(at, at + DATA_BYTES_MAX);
      this.#put(headOf(part.length, { type: TYPE.data, flags: 0, id }));
      this.#put(part);
    }
  }

  /** Nothing more is sent on the stream. */
  end(id: number): void {
    this.#put(headOf(0, { type: TYPE.data, flags: FLAG_END_STREAM, id }));
  }

  /** Hands over all that is ready in one piece. */
  turn(): void {
    this.#onTurn();
    if (this.#pending.length === 0) return;
    this.#socket.write(Buffer.concat(this.#pending, this.#pendingBytes));
    this.#pending = [];
    this.#pendingBytes = 0;
  }

  close(): void {
    this.#streams.clear();
    this.#socket.destroy();
  }

  #put(bytes: Buffer): void {
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
  }

  #read(chunk: Buffer): void {
    const bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    let at = 0;
    while (bytes.length - at >= FRAME_HEAD_BYTES) {
      const end = at + FRAME_HEAD_BYTES + bytes.readUIntBE(at, 3);
      if (end > bytes.length) break;
      const [type = -1, flags = 0] = [bytes[at + 3], bytes[at + 4]];
      const id = bytes.readUInt32BE(at + 5);
      this.#take({ type, flags, id }, bytes.subarray(at + FRAME_HEAD_BYTES, end));
      at = end;
    }
    this.#rest = bytes.subarray(at);
    this.turn();
  }

  #take({ type, flags, id }: FrameHead, body: Buffer): void {
    const stream = this.#streams.get(id);
    switch (type) {
      case TYPE.data:
        stream?.listener.onData(body);
        if ((flags & FLAG_END_STREAM) !== 0) this.#ended(id, new Error("no trailers came"));
        return;
      case TYPE.headers:
        if ((flags & FLAG_END_STREAM) !== 0) this.#ended(id, undefined);
        return;
      case TYPE.rstStream:
        this.#ended(id, new Error(`the server reset the stream: ${body.readUInt32BE(0)}`));
        return;
      case TYPE.settings:
        if ((flags & FLAG_ACK) === 0) this.#adopt(body);
        return;
      case TYPE.ping:
        if ((flags & FLAG_ACK) === 0) this.#put(frameOf({ type, flags: FLAG_ACK, id: 0 }, body));
        return;
      case TYPE.goAway:
        return this.#fail(new Error(`the server says that it goes: ${body.readUInt32BE(4)}`));
      case TYPE.windowUpdate: {
        const bytes = body.readUInt32BE(0);
        if (id === 0) this.#windowBytes += bytes;
        else if (stream !== undefined) stream.windowBytes += bytes;
      }
    }
  }

  #adopt(settings: Buffer): void {
    for (let at = 0; at < settings.length; at += 6) {
      if (settings.readUInt16BE(at) !== SETTING_INITIAL_WINDOW) continue;
      const bytes = settings.readUInt32BE(at + 2);
      for (const stream of this.#streams.values()) {
        stream.windowBytes += bytes - this.#initialWindowBytes;
      }
      this.#initialWindowBytes = bytes;
    }
    this.#put(headOf(0, { type: TYPE.settings, flags: FLAG_ACK, id: 0 }));
  }

  #ended(id: number, error: Error | undefined): void {
    const stream = this.#streams.get(id);
    this.#streams.delete(id);
    stream?.listener.onEnd(error);
  }

  #fail(error: Error): void {
    for (const id of this.#streams.keys()) this.#ended(id, error);
    this.#socket.destroy();
  }
}

interface FrameHead {
  readonly type: number;
  readonly flags: number;
  readonly id: number;
}

function headOf(bytes: number, { type, flags, id }: FrameHead): Buffer {
  const head = Buffer.allocUnsafe(FRAME_HEAD_BYTES);
  head.writeUIntBE(bytes, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(id, 5);
  return head;
}

function frameOf(head: FrameHead, body: Buffer): Buffer {
  return Buffer.concat([headOf(body.length, head), body]);
}

/** Literals that no table remembers, so that the block is the same for every stream. */
function headerBlock({
  path,
  authority,
}: {
  readonly path: string;
  readonly authority: string;
}): Buffer {
  return Buffer.concat([
    Buffer.from([0x83, 0x86]), // :method POST, :scheme http, as the static table has them.
    Buffer.from([0x04]), // :path, a name of the static table with a value of ours.
    literal(path),
    Buffer.from([0x01]), // :authority
    literal(authority),
    Buffer.from([0x0f, 0x10]), // content-type: 31, of which 15 fit the first byte.
    literal("application/grpc"),
    Buffer.from([0x00]), // A name that the table does not have.
    literal("te"),
    literal("trailers"),
  ]);
}

/** Longer ones would need a second byte for their length. */
const LITERAL_BYTES_MAX = 126;

function literal(text: string): Buffer {
  if (text.length > LITERAL_BYTES_MAX) throw new RangeError(text);
  return Buffer.from(`${String.fromCharCode(text.length)}${text}`, "latin1");
}
