/** Health and reflection: anyone may call them, for long, so they have separate limits. */
import { constants, type Http2Session, type ServerHttp2Stream } from "node:http2";
import {
  create,
  createRegistry,
  type DescFile,
  type DescService,
  fromBinary,
  type MessageInitShape,
  type Registry,
  toBinary,
} from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import {
  type sendUnaryData,
  type Server,
  type ServerDuplexStream,
  type ServerUnaryCall,
  type ServerWritableStream,
  type ServiceDefinition,
  status,
} from "@grpc/grpc-js";
import {
  file_grpc_health_v1_health,
  Health as HealthService,
  type HealthCheckRequest,
  type HealthCheckResponse,
  HealthCheckResponse_ServingStatus as ServingStatus,
  HealthCheckResponseSchema,
  type HealthListRequest,
  type HealthListResponse,
  HealthListResponseSchema,
} from "@session-ledger/proto/grpc/health/v1/health_pb";
import {
  ServerReflection,
  type ServerReflectionRequest,
  type ServerReflectionResponse,
  ServerReflectionResponseSchema,
} from "@session-ledger/proto/grpc/reflection/v1/reflection_pb";
import type { ServiceError } from "@session-ledger/base/errors";
import { CALL_BYTES, overloaded, type Reservation } from "../base/budget.ts";
import { methodDefinitionOf } from "./codec.ts";
import { HEAD_BYTES, IncomingBytes, type IncomingOwner } from "./incoming.ts";
import type { OpenCall } from "./open-calls.ts";
import { type CallParts, LATE_TICKS } from "./serve.ts";

/** grpc.health.v1. The server as a whole (the empty name) and its services have one status. */
export class Health {
  readonly #names: readonly string[];
  readonly #watches = new Set<ServerWritableStream<HealthCheckRequest, HealthCheckResponse>>();
  #status: ServingStatus = ServingStatus.NOT_SERVING;

  constructor(services: readonly string[]) {
    this.#names = ["", ...services];
  }

  addTo(server: Server): void {
    server.addService(definitionOf(HealthService), {
      check: (
        { request: { service } }: ServerUnaryCall<HealthCheckRequest, HealthCheckResponse>,
        answer: sendUnaryData<HealthCheckResponse>,
      ) => {
        const details = `Health status unknown for service ${service}`;
        if (this.#names.includes(service)) answer(null, statusMessage(this.#status));
        else answer({ code: status.NOT_FOUND, details });
      },
      watch: (call: ServerWritableStream<HealthCheckRequest, HealthCheckResponse>) => {
        const isKnown = this.#names.includes(call.request.service);
        call.write(statusMessage(isKnown ? this.#status : ServingStatus.SERVICE_UNKNOWN));
        if (!isKnown) return; // It stays open without news: no service is added later.
        this.#watches.add(call);
        call.on("cancelled", () => this.#watches.delete(call));
      },
      list: (
        _: ServerUnaryCall<HealthListRequest, HealthListResponse>,
        answer: sendUnaryData<HealthListResponse>,
      ) => {
        const statuses = this.#names.map((name) => [name, statusMessage(this.#status)]);
        answer(null, create(HealthListResponseSchema, { statuses: Object.fromEntries(statuses) }));
      },
    });
  }

  set(isServing: boolean): void {
    this.#status = isServing ? ServingStatus.SERVING : ServingStatus.NOT_SERVING;
    for (const call of this.#watches) call.write(statusMessage(this.#status));
  }
}

function statusMessage(serving: ServingStatus): HealthCheckResponse {
  return create(HealthCheckResponseSchema, { status: serving });
}

/** A service whose messages grpc-js decodes and encodes, under its own or another name. */
function definitionOf(service: DescService, typeName = service.typeName): ServiceDefinition {
  return Object.fromEntries(
    service.methods.map((method) => [
      method.localName,
      {
        ...methodDefinitionOf(method),
        path: `/${typeName}/${method.name}`,
        requestDeserialize: (bytes: Buffer) => fromBinary(method.input, bytes),
        responseSerialize: (message: HealthCheckResponse) =>
          Buffer.from(toBinary(method.output, message)),
      },
    ]),
  );
}

/** A client watches health once per connection, and asks reflection a few questions at a time. */
const CALLS_PER_CONNECTION_MAX = 16;

/**
 * One connection may have a few of these calls, and all connections together `callsMax`. The function begins a
 * call. Undefined: it is counted until its stream closes; else the reason of its refusal.
 */
export function healthAndReflectionCalls(
  parts: CallParts,
  { callsMax }: { readonly callsMax: number },
): (stream: ServerHttp2Stream) => ServiceError | undefined {
  const byConnection = new WeakMap<Http2Session, number>();
  let open = 0;
  const count = (session: Http2Session, change: 1 | -1): void => {
    open += change;
    byConnection.set(session, (byConnection.get(session) ?? 0) + change);
  };
  return (stream) => {
    const { session } = stream;
    if (session === undefined) return tooMany(); // The connection is gone.
    const own = byConnection.get(session) ?? 0;
    if (own >= CALLS_PER_CONNECTION_MAX || open >= callsMax) return tooMany();
    const reservation = parts.budget.reserve(UNKNOWN, CALL_BYTES);
    if (reservation === undefined) return tooMany();
    count(session, 1);
    stream.once("close", () => count(session, -1));
    boundRequest(parts, stream, reservation);
    return undefined;
  };
}

function tooMany(): ServiceError {
  return overloaded("SERVER_BUSY", "too many calls of health or reflection are open");
}

/** The longest question to health or reflection is a name; a reflection client asks many. */
const BYTES_MAX = 64 * 1024;

/** The callers need no token, so all of them are one caller. */
const UNKNOWN = "?";

/**
 * Cuts a request that is large or does not end, and a long conversation with reflection. Frees the
 * memory of the request at its end: a watch of health may stay for days.
 */
function boundRequest(parts: CallParts, stream: ServerHttp2Stream, reservation: Reservation): void {
  let received = 0;
  let lateTicks = 0;
  const fail = (): void => stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  const onPieces = (bytes: number): boolean => {
    received += bytes;
    if (received <= BYTES_MAX) return true;
    fail();
    return false;
  };
  const onRequestEnd = (): void => {
    parts.openCalls.remove(request);
    reservation.release();
  };
  const request: IncomingOwner & OpenCall = {
    isStream: false,
    onMessageHead: (bytes) => onPieces(HEAD_BYTES + bytes),
    onPieces,
    onRequestEnd,
    onFlood: () => parts.cut(stream),
    tick() {
      lateTicks += 1;
      if (lateTicks > LATE_TICKS) stream.close(constants.NGHTTP2_CANCEL);
    },
    fail,
  };
  parts.openCalls.add(request);
  void new IncomingBytes(stream, request);
  stream.once("close", onRequestEnd);
}

/**
 * Server reflection for these files, their imports, and health: for grpcurl and similar tools.
 * v1alpha is v1 under an older name.
 */
export function addReflection(server: Server, files: readonly DescFile[]): void {
  const known = closureOf([...files, file_grpc_health_v1_health]);
  const types = createRegistry(...known);
  const reflect = (call: ServerDuplexStream<ServerReflectionRequest, ServerReflectionResponse>) => {
    call.on("data", (request: ServerReflectionRequest) => {
      const { host: validHost, messageRequest } = request;
      const answer = create(ServerReflectionResponseSchema, {
        validHost,
        originalRequest: request,
        messageResponse: answerTo(messageRequest, known, types),
      });
      if (call.write(answer)) return;
      call.pause();
      call.once("drain", () => call.resume());
    });
    call.on("end", () => call.end());
  };
  for (const version of ["v1", "v1alpha"]) {
    const definition = definitionOf(
      ServerReflection,
      `grpc.reflection.${version}.ServerReflection`,
    );
    server.addService(definition, { serverReflectionInfo: reflect });
  }
}

function closureOf(files: readonly DescFile[]): readonly DescFile[] {
  const found = new Set<DescFile>();
  const visit = (file: DescFile): void => {
    if (found.has(file)) return;
    found.add(file);
    for (const imported of file.dependencies) visit(imported);
  };
  for (const file of files) visit(file);
  return [...found];
}

type ReflectionAnswer = NonNullable<
  Exclude<
    MessageInitShape<typeof ServerReflectionResponseSchema>,
    ServerReflectionResponse
  >["messageResponse"]
>;

function answerTo(
  { case: kind, value }: ServerReflectionRequest["messageRequest"],
  known: readonly DescFile[],
  types: Registry,
): ReflectionAnswer {
  switch (kind) {
    case "listServices": {
      const service = known
        .flatMap(({ services }) => services)
        .map(({ typeName: name }) => ({ name }));
      return { case: "listServicesResponse", value: { service } };
    }
    case "fileByFilename": {
      const file = known.find(({ proto }) => proto.name === value);
      return file ? encodedWithImports(file) : notFound(`Proto file not found: ${value}`);
    }
    case "fileContainingSymbol": {
      const file = fileOf(value, types);
      return file ? encodedWithImports(file) : notFound(`Symbol not found: ${value}`);
    }
    // No known file has an extension.
    case "fileContainingExtension": {
      const { containingType, extensionNumber } = value;
      return notFound(
        `Extension not found for symbol ${containingType} at field ${extensionNumber}`,
      );
    }
    case "allExtensionNumbersOfType":
      return notFound(`Extensions not found for symbol ${value}`);
    case undefined:
      return failure(status.UNIMPLEMENTED, "Unimplemented method for request: undefined");
  }
}

/** The file of a type or service, or of a member of one. */
function fileOf(symbol: string, types: Registry): DescFile | undefined {
  const type = types.get(symbol);
  if (type !== undefined) return type.file;
  const dot = symbol.lastIndexOf(".");
  const parent = types.get(symbol.slice(0, dot));
  const hasMember = parent && membersOf(parent).some(({ name }) => name === symbol.slice(dot + 1));
  return hasMember ? parent.file : undefined;
}

function membersOf(type: NonNullable<ReturnType<Registry["get"]>>) {
  switch (type.kind) {
    case "message":
      return type.members;
    case "service":
      return type.methods;
    case "enum":
      return type.values;
    case "extension":
      return [];
  }
}

const encodedFiles = new WeakMap<DescFile, Uint8Array>();

function encodedWithImports(file: DescFile): ReflectionAnswer {
  const fileDescriptorProto = closureOf([file]).map((one) => {
    const encoded = encodedFiles.get(one) ?? toBinary(FileDescriptorProtoSchema, one.proto);
    encodedFiles.set(one, encoded);
    return encoded;
  });
  return { case: "fileDescriptorResponse", value: { fileDescriptorProto } };
}

function notFound(errorMessage: string): ReflectionAnswer {
  return failure(status.NOT_FOUND, errorMessage);
}

function failure(errorCode: status, errorMessage: string): ReflectionAnswer {
  return { case: "errorResponse", value: { errorCode, errorMessage } };
}
