/**
 * Calls that a package answers: health and reflection. Anyone may make them without a token, and
 * they may last, so their number and their requests have limits of their own.
 */
import { constants, type Http2Session, type ServerHttp2Stream } from "node:http2";
import { type DescFile, fromBinary, toBinary } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import type { Server } from "@grpc/grpc-js";
import { ReflectionService } from "@grpc/reflection";
import { HealthImplementation, service as healthService } from "grpc-health-check";
import { ServiceError } from "../base/errors.ts";
import { Incoming } from "./incoming.ts";
import type { RequestParts } from "./requests.ts";

/** grpc.health.v1, for the server as a whole (the empty name) and for each service. */
export class Health {
  readonly #names: readonly string[];
  readonly #implementation: HealthImplementation;

  constructor(services: readonly string[]) {
    this.#names = ["", ...services];
    this.#implementation = new HealthImplementation(
      Object.fromEntries(this.#names.map((name) => [name, "NOT_SERVING"])),
    );
  }

  addTo(server: Server): void {
    this.#implementation.addToServer(server);
  }

  set(isServing: boolean): void {
    const status = isServing ? "SERVING" : "NOT_SERVING";
    for (const name of this.#names) this.#implementation.setStatus(name, status);
  }
}

/** A client watches health once per connection, and asks reflection a few questions at a time. */
const CALLS_PER_CONNECTION_MAX = 16;
const RETRY_AFTER_MS = 1_000;

/** One connection may have a few of these calls, and all connections together `callsMax`. */
export class ForeignCalls {
  readonly #parts: RequestParts;
  readonly #callsMax: number;
  readonly #byConnection = new WeakMap<Http2Session, number>();
  #open = 0;

  constructor(parts: RequestParts, { callsMax }: { readonly callsMax: number }) {
    this.#parts = parts;
    this.#callsMax = callsMax;
  }

  /** Undefined: the call is counted until its stream closes; else the reason of its refusal. */
  begin(stream: ServerHttp2Stream): ServiceError | undefined {
    const { session } = stream;
    if (session === undefined) return tooMany(); // The connection is gone.
    const own = this.#byConnection.get(session) ?? 0;
    if (own >= CALLS_PER_CONNECTION_MAX || this.#open >= this.#callsMax) return tooMany();
    this.#count(session, 1);
    stream.once("close", () => this.#count(session, -1));
    void new ForeignRequest(this.#parts, stream);
    return undefined;
  }

  #count(session: Http2Session, change: 1 | -1): void {
    this.#open += change;
    this.#byConnection.set(session, (this.#byConnection.get(session) ?? 0) + change);
  }
}

function tooMany(): ServiceError {
  const message = "too many calls of health or reflection are open";
  return new ServiceError("overloaded", "SERVER_BUSY", message, { retryAfterMs: RETRY_AFTER_MS });
}

/** The longest question to health or reflection is a name; a reflection client asks many. */
const BYTES_MAX = 64 * 1024;

/**
 * A request that is large, or does not end, is cut; so is a long conversation with reflection,
 * whose client can begin another. The memory of the request is freed at its end: a watch of health
 * may stay for days.
 */
class ForeignRequest extends Incoming {
  readonly #parts: RequestParts;
  #received = 0;

  constructor(parts: RequestParts, stream: ServerHttp2Stream) {
    super(parts, stream);
    this.#parts = parts;
    parts.arriving.requests.begin(this);
    stream.once("close", () => this.ended());
  }

  late(): void {
    this.stream.close(constants.NGHTTP2_CANCEL);
  }

  protected came(chunk: Buffer): boolean {
    this.#received += chunk.length;
    if (this.#received <= BYTES_MAX) return true;
    this.cut();
    return false;
  }

  protected ended(): void {
    this.#parts.arriving.requests.end(this);
    this.memory.release();
  }

  protected cut(): void {
    this.stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  }
}

/**
 * Server reflection, v1 and v1alpha, for these files, all their imports, and health. grpcurl and
 * similar tools need it to list, describe and call methods without a .proto file.
 */
export function addReflection(server: Server, files: readonly DescFile[]): void {
  const fileDescriptorProtos = [
    ...closureOf(files).map((file) => Buffer.from(toBinary(FileDescriptorProtoSchema, file.proto))),
    ...Object.values(healthService)
      .flatMap((method) => method.requestType.fileDescriptorProtos)
      .map(withMapEntries),
  ];
  // A package in the form of proto-loader; the reflection service reads only its descriptors.
  const format = "Protocol Buffer 3 DescriptorProto";
  new ReflectionService({ all: { format, type: {}, fileDescriptorProtos } }).addToServer(server);
}

function closureOf(files: readonly DescFile[]): DescFile[] {
  const found = new Set<DescFile>();
  const visit = (file: DescFile): void => {
    if (found.has(file)) return;
    found.add(file);
    for (const imported of file.dependencies) visit(imported);
  };
  for (const file of files) visit(file);
  return [...found];
}

/**
 * protobufjs, the source of health's descriptors, names the entry type of a map after its field.
 * protoc adds `Entry`, and Go, so also grpcurl, refuses the file without it.
 */
function withMapEntries(bytes: Uint8Array): Buffer {
  const file = fromBinary(FileDescriptorProtoSchema, bytes);
  for (const message of file.messageType) {
    for (const nested of message.nestedType) {
      if (nested.options?.mapEntry !== true || nested.name.endsWith("Entry")) continue;
      const { name } = nested;
      nested.name = `${name}Entry`;
      for (const field of message.field) {
        const isEntry = field.typeName === name || field.typeName.endsWith(`.${name}`);
        if (isEntry) field.typeName = `${field.typeName}Entry`;
      }
    }
  }
  return Buffer.from(toBinary(FileDescriptorProtoSchema, file));
}
