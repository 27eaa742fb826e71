/** The gRPC server as a unit: how it starts, what health and reflection say, how it stops. */
import { once } from "node:events";
import { connect } from "node:http2";
import { createConnection, type Socket } from "node:net";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { type FileDescriptorProto, FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { Client, credentials } from "@grpc/grpc-js";
import { describe, expect, test } from "vitest";
import { SessionEventSchema } from "@session-ledger/proto/ambient/v1/events_pb";
import { SessionSchema, SessionService } from "@session-ledger/proto/ambient/v1/sessions_pb";
import {
  Health,
  HealthCheckResponse_ServingStatus as ServingStatus,
} from "@session-ledger/proto/grpc/health/v1/health_pb";
import {
  ExtensionRequestSchema,
  type ServerReflectionRequest,
  ServerReflectionRequestSchema,
  type ServerReflectionResponse,
  ServerReflectionResponseSchema,
} from "@session-ledger/proto/grpc/reflection/v1/reflection_pb";
import { systemClock } from "@session-ledger/base/clock";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { GrpcServer } from "../../src/rpc/server.ts";
import { ANYBODY } from "../support/callers.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { callHeaders, FLAG, FRAME, frame, http2Frame, PREFACE } from "../support/http2-frames.ts";
import { conversation, startRpc } from "../support/rpc-fixture.ts";
import { describeUnitContract, isListening, listenerOf } from "../support/unit-contract.ts";

const { getSession, watchSessionEvents } = SessionService.method;
const SERVICE = "ambient.v1.SessionService";

function newServer(address: string): GrpcServer {
  const log = createLogTo({ write: () => undefined }, "silent");
  return new GrpcServer(
    { log, metrics: createMetrics(), clock: systemClock, handlers: {}, authenticator: ANYBODY },
    { address, reflection: false, logCalls: "all", stopLimitMs: 1_000 },
  );
}

function socketTo(address: string): Socket {
  const [host = "", port] = address.split(":");
  return createConnection({ host, port: Number(port) });
}

describeUnitContract<GrpcServer>("the gRPC server", {
  create: () => newServer("127.0.0.1:0"),
  isOfUse: ({ address }) => isListening(address),
  remains: listenerOf,
  broken: { create: () => newServer("192.0.2.1:1"), failure: /cannot listen on 192\.0\.2\.1:1/ },
});

test("a port in use is named in the error", async () => {
  await using first = await startRpc({});
  await expect(newServer(first.server.address).start()).rejects.toMatchObject({
    name: "ServiceError",
    message: `gRPC (GRPC_ADDRESS) cannot listen on ${first.server.address}: the address is in use`,
  });
});

test("an address of another machine is named in the error", async () => {
  await expect(newServer("192.0.2.1:9000").start()).rejects.toThrow("192.0.2.1:9000");
});

test("the server listens on IPv6 loopback", async () => {
  await using rpc = await startRpc(
    { getSession: async () => create(SessionSchema, { name: "six" }) },
    { address: "[::1]:0" },
  );
  expect(rpc.server.address).toMatch(/^\[::1\]:[1-9]\d*$/);
  expect(await rpc.client.unary(getSession, {})).toMatchObject({ name: "six" });
});

describe("health", () => {
  const { check, watch, list } = Health.method;
  const { SERVING, NOT_SERVING, SERVICE_UNKNOWN } = ServingStatus;

  test("Check is SERVING for the server and the service, and NOT_FOUND for another name", async () => {
    await using rpc = await startRpc({});
    expect(await rpc.client.unary(check, {})).toMatchObject({ status: SERVING });
    expect(await rpc.client.unary(check, { service: SERVICE })).toMatchObject({ status: SERVING });
    const unknown = rpc.client.unary(check, { service: "ambient.v1.Other" });
    await expect(unknown).rejects.toMatchObject({ code: "NOT_FOUND" });
    rpc.server.setServing(false);
    expect(await rpc.client.unary(check, {})).toMatchObject({ status: NOT_SERVING });
    rpc.server.setServing(true);
    expect(await rpc.client.unary(check, { service: SERVICE })).toMatchObject({ status: SERVING });
  });

  test("Watch sends each change, NOT_SERVING at a stop, and then ends", async () => {
    await using rpc = await startRpc({});
    const statuses: ServingStatus[] = [];
    const watched = async (): Promise<void> => {
      for await (const { status } of rpc.client.serverStream(watch, {})) {
        statuses.push(status);
        if (statuses.length === 1) rpc.server.setServing(false);
        if (statuses.length === 2) {
          void rpc.server.stop();
          rpc.server.setServing(true); // A check that comes too late.
        }
      }
    };
    await expect(watched()).rejects.toMatchObject({ code: "UNAVAILABLE" });
    expect(statuses).toEqual([SERVING, NOT_SERVING, NOT_SERVING]);
    await rpc.server.stop();
  });

  test("Watch of another name is SERVICE_UNKNOWN, and stays open", async () => {
    await using rpc = await startRpc({});
    const unknown = rpc.client.serverStream(watch, { service: "ambient.v1.Other" });
    expect((await unknown.next()).value).toMatchObject({ status: SERVICE_UNKNOWN });
    rpc.server.setServing(false);
    const ended = unknown.next().catch((error: unknown) => error);
    expect(await rpc.client.unary(check, {})).toMatchObject({ status: NOT_SERVING });
    await rpc.server.stop();
    expect(await ended).toMatchObject({ code: "UNAVAILABLE" });
  });

  test("List has the server and its service", async () => {
    await using rpc = await startRpc({});
    const { statuses } = await rpc.client.unary(list, {});
    expect(Object.entries(statuses).map(([name, { status }]) => [name, status])).toEqual([
      ["", SERVING],
      [SERVICE, SERVING],
    ]);
  });
});

describe.each(["v1", "v1alpha"])("reflection %s", (version) => {
  const method = `/grpc.reflection.${version}.ServerReflection/ServerReflectionInfo`;

  /** The answers to questions of one stream. Generated code has the method of v1 only. */
  async function ask(
    address: string,
    ...questions: readonly ServerReflectionRequest["messageRequest"][]
  ): Promise<readonly ServerReflectionResponse["messageResponse"][]> {
    const client = new Client(address, credentials.createInsecure());
    const call = client.makeBidiStreamRequest(
      method,
      (message: ServerReflectionRequest) =>
        Buffer.from(toBinary(ServerReflectionRequestSchema, message)),
      (bytes: Buffer) => fromBinary(ServerReflectionResponseSchema, bytes),
    );
    try {
      for (const messageRequest of questions)
        call.write(create(ServerReflectionRequestSchema, { host: "h", messageRequest }));
      call.end();
      const answers: ServerReflectionResponse[] = await call.toArray();
      expect(answers.map(({ validHost, originalRequest }) => [validHost, originalRequest])).toEqual(
        questions.map((messageRequest) => [
          "h",
          create(ServerReflectionRequestSchema, { host: "h", messageRequest }),
        ]),
      );
      return answers.map(({ messageResponse }) => messageResponse);
    } finally {
      client.close();
    }
  }

  async function filesWith(
    address: string,
    question: ServerReflectionRequest["messageRequest"],
  ): Promise<readonly FileDescriptorProto[]> {
    const [answer] = await ask(address, question);
    if (answer?.case !== "fileDescriptorResponse") throw new Error(`got ${answer?.case}`);
    const encoded = answer.value.fileDescriptorProto;
    return encoded.map((bytes) => fromBinary(FileDescriptorProtoSchema, bytes));
  }

  test("lists the services", async () => {
    await using rpc = await startRpc({});
    const [answer] = await ask(rpc.server.address, { case: "listServices", value: "*" });
    expect(answer).toMatchObject({
      case: "listServicesResponse",
      value: { service: [{ name: SERVICE }, { name: "grpc.health.v1.Health" }] },
    });
  });

  test.each([
    SERVICE,
    `${SERVICE}.PushSessionEvent`,
    "ambient.v1.SessionEvent",
    "ambient.v1.SessionEvent.payload",
    "google.rpc.BadRequest",
    "google.rpc.BadRequest.FieldViolation",
    "grpc.health.v1.Health",
  ])("describes %s with every file it needs", async (symbol) => {
    await using rpc = await startRpc({});
    const { address } = rpc.server;
    const files = await filesWith(address, { case: "fileContainingSymbol", value: symbol });
    const names = files.map((file) => file.name);
    expect(names).not.toEqual([]);
    for (const file of files) expect(names).toEqual(expect.arrayContaining(file.dependency));
  });

  test("describes all methods of the contract, and the optional fields", async () => {
    await using rpc = await startRpc({});
    const path = "ambient/v1/sessions.proto";
    const files = await filesWith(rpc.server.address, { case: "fileByFilename", value: path });
    const sessions = files.find(({ name }) => name === path);
    expect(sessions?.service[0]?.method.map(({ name }) => name)).toEqual(
      SessionService.methods.map(({ name }) => name),
    );
    const session = sessions?.messageType.find(({ name }) => name === "Session");
    expect(session?.field.find(({ name }) => name === "prompt")?.proto3Optional).toBe(true);
  });

  test("refuses each unknown name, and continues", async () => {
    await using rpc = await startRpc({});
    const extension = create(ExtensionRequestSchema, {
      containingType: SERVICE,
      extensionNumber: 7,
    });
    const answers = await ask(
      rpc.server.address,
      { case: "fileByFilename", value: "no.proto" },
      { case: "fileContainingSymbol", value: "ambient.v1.SessionEvent.nothing" },
      { case: "fileContainingSymbol", value: "nothing" },
      { case: "fileContainingExtension", value: extension },
      { case: "allExtensionNumbersOfType", value: SERVICE },
      { case: undefined },
      { case: "fileByFilename", value: "google/rpc/error_details.proto" },
    );
    const codes = answers.map((answer) =>
      answer.case === "errorResponse" ? answer.value.errorCode : answer.case,
    );
    expect(codes).toEqual([5, 5, 5, 5, 5, 12, "fileDescriptorResponse"]);
  });
});

test("is not served when it is switched off", async () => {
  await using rpc = await startRpc({}, { reflection: false });
  const path = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
  const call = rpc.client.unaryBytes(path, Buffer.alloc(0));
  await expect(call).rejects.toMatchObject({ code: "UNIMPLEMENTED" });
});

describe("a stop", () => {
  const eventOf = (seq: bigint) => create(SessionEventSchema, { sessionId: "s1", seq });

  test("ends watches at once, lets running calls finish, and refuses new calls", async () => {
    const order: string[] = [];
    const entered = Promise.withResolvers<void>();
    const mayAnswer = Promise.withResolvers<void>();
    await using rpc = await startRpc({
      getSession: async (_, { signal }) => {
        entered.resolve();
        await mayAnswer.promise;
        order.push(`the call ${signal.aborted ? "was aborted" : "goes on"}`);
        return create(SessionSchema, { name: "finished" });
      },
      async *watchSessionEvents(_, { signal }) {
        yield eventOf(1n);
        const { promise, reject } = Promise.withResolvers<never>();
        signal.addEventListener("abort", () => reject(signal.reason));
        await promise;
      },
    });
    const underWay = rpc.client.unary(getSession, { id: "s1" });
    await entered.promise;
    const watch = rpc.client.serverStream(watchSessionEvents, { sessionId: "s1" });
    await watch.next();

    const stopped = rpc.server.stop().then(() => order.push("stopped"));
    await expect(watch.next()).rejects.toMatchObject({
      code: "UNAVAILABLE",
      reason: "SHUTTING_DOWN",
    });
    order.push("the watch ended");
    await expect(rpc.client.unary(getSession, {}, { deadlineMs: 30_000 })).rejects.toMatchObject({
      code: "UNAVAILABLE",
    });
    mayAnswer.resolve();
    expect(await underWay).toMatchObject({ name: "finished" });
    await stopped;
    expect(order).toEqual(["the watch ended", "the call goes on", "stopped"]);
    const records = rpc.records.filter((record) => record.msg === "call");
    expect(records.map((record) => record["code"])).toEqual(["UNAVAILABLE", "OK"]);
  });

  test("refuses a call whose request arrives after the stop began", async () => {
    await using rpc = await startRpc({
      getSession: async () => create(SessionSchema),
      deleteSession: () => Promise.reject(new Error("the handler must not see it")),
    });
    const session = connect(`http://${rpc.server.address}`);
    const stream = session.request({
      ":method": "POST",
      ":path": `/${SERVICE}/DeleteSession`,
      "content-type": "application/grpc",
      te: "trailers",
    });
    const head = once(stream, "response");
    await once(session, "remoteSettings");
    await rpc.client.unary(getSession, {}); // The stream is there: its bytes came before these.
    const stopped = rpc.server.stop();
    stream.end(frame(Buffer.alloc(0)));
    const [headers] = await head;
    expect(headers).toMatchObject({ "grpc-status": "14" });
    stream.close();
    session.close();
    await stopped;
    expect(await rpc.recorded("call")).toMatchObject({ code: "OK" });
    expect(rpc.records.map((record) => record["reason"])).toContain("SHUTTING_DOWN");
  });

  test("calls the handler that waits for requests of a stream", async () => {
    const cleaned = Promise.withResolvers<void>();
    await using rpc = await startRpc({
      pushSessionEvents: () => conversation({ onClose: () => cleaned.resolve() }),
    });
    // A caller that never says that it has sent everything.
    const session = connect(`http://${rpc.server.address}`);
    const stream = session.request({
      ":method": "POST",
      ":path": `/${SERVICE}/PushSessionEvents`,
      "content-type": "application/grpc",
      te: "trailers",
    });
    await once(stream, "response");
    const trailers = once(stream, "trailers");
    const stopped = rpc.server.stop();
    await cleaned.promise;
    const [{ "grpc-status": code }] = await trailers;
    expect(code).toBe("14");
    session.destroy();
    await stopped;
  });

  test("cuts a watcher that does not read at the limit, after its handler ended", async () => {
    const cleaned = Promise.withResolvers<void>();
    await using rpc = await startRpc(
      {
        async *watchSessionEvents() {
          try {
            for (let seq = 1n; ; seq += 1n) yield eventOf(seq);
          } finally {
            cleaned.resolve();
          }
        },
      },
      { stopLimitMs: 50 },
    );
    const watch = rpc.client.serverStream(watchSessionEvents, {});
    await watch.next();
    await rpc.server.stop();
    await cleaned.promise;
    expect(await isListening(rpc.server.address)).toBe(false);
  });

  test("aborts the signal of a handler at the limit, and logs it", async () => {
    const aborted = Promise.withResolvers<unknown>();
    await using rpc = await startRpc(
      {
        getSession: (_, { signal }) => {
          signal.addEventListener("abort", () => aborted.resolve(signal.reason));
          return new Promise(() => undefined);
        },
      },
      { stopLimitMs: 50 },
    );
    const call = rpc.client.unary(getSession, { id: "s1" });
    const refusal = call.catch((error: unknown) => error);
    await rpc.client.unary(SessionService.method.listSessions, {}).catch(() => undefined);
    await rpc.server.stop();
    expect(await refusal).toMatchObject({ code: "UNAVAILABLE" });
    expect(await aborted.promise).toMatchObject({ code: "cancelled" });
    expect(await rpc.recorded("handlers still run after stop")).toMatchObject({ handlers: 1 });
  });

  test("does not wait for idle connections", async () => {
    await using rpc = await startRpc({ getSession: async () => create(SessionSchema) });
    const clients = Array.from({ length: 5 }, () => new RpcClient(rpc.server.address));
    await Promise.all(clients.map((client) => client.unary(getSession, {})));
    await rpc.server.stop();
    expect(rpc.records.filter(({ level }) => level === "warn")).toEqual([]);
    for (const client of clients) client.close();
  });
});

test("a peer without ping answers is disconnected, and its watch ends", async () => {
  const watched = Promise.withResolvers<void>();
  const cleaned = Promise.withResolvers<void>();
  await using rpc = await startRpc(
    {
      async *watchSessionEvents(_, { signal }) {
        watched.resolve();
        yield eventOf1;
        await new Promise((resolve) => signal.addEventListener("abort", resolve));
        cleaned.resolve();
      },
    },
    { keepalive: { intervalMs: 30, timeoutMs: 30 } },
  );
  const socket = socketTo(rpc.server.address);
  socket.write(deafWatch());
  await watched.promise;
  await Promise.all([cleaned.promise, once(socket.resume(), "close")]);
  expect(await rpc.recorded("call")).toMatchObject({ code: "CANCELLED" });
});

test("one value of authorization, or two equal ones, are accepted", async () => {
  const watched = Promise.withResolvers<void>();
  await using rpc = await startRpc({
    async *watchSessionEvents() {
      watched.resolve();
      yield eventOf1;
    },
  });
  const socket = socketTo(rpc.server.address);
  socket.write(deafWatch(["Bearer a", "Bearer a"]));
  await watched.promise;
  expect(await rpc.recorded("call")).toMatchObject({ code: "OK" });
  socket.destroy();
});

const eventOf1 = create(SessionEventSchema, { sessionId: "s1", seq: 1n });

/** A WatchSessionEvents; nothing that comes back is ever answered. */
function deafWatch(authorizations: readonly string[] = []): Buffer {
  const more = authorizations.map((value) => ["authorization", value] as const);
  const headers = callHeaders(`/${SERVICE}/WatchSessionEvents`, more);
  const message = Buffer.from([0x0a, 2, 0x73, 0x31]);
  return Buffer.concat([
    PREFACE,
    http2Frame({ type: FRAME.settings }),
    http2Frame({ type: FRAME.headers, flags: FLAG.endHeaders, stream: 1 }, headers),
    http2Frame({ type: FRAME.data, flags: FLAG.endStream, stream: 1 }, frame(message)),
  ]);
}
