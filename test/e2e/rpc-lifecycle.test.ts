/** The gRPC server as a unit: how it starts, what health and reflection say, how it stops. */
import { fromBinary, toBinary, create } from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema } from "@bufbuild/protobuf/wkt";
import { createConnection, createServer, type AddressInfo } from "node:net";
import { once } from "node:events";
import { Client, credentials, type ServiceError as GrpcError } from "@grpc/grpc-js";
import { service as healthService } from "grpc-health-check";
import { describe, expect, test } from "vitest";
import { SessionEventSchema } from "../../gen/ambient/v1/events_pb.ts";
import { SessionSchema, SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import { systemClock } from "../../src/base/clock.ts";
import { createLogTo } from "../../src/observability/log.ts";
import { createMetrics } from "../../src/observability/metrics.ts";
import { createRpcServer } from "../../src/rpc/server.ts";
import { RpcClient } from "../support/grpc-client.ts";
import { startRpc } from "../support/rpc-fixture.ts";
import { describeUnitContract } from "../support/unit-contract.ts";

const { getSession, watchSessionEvents } = SessionService.method;
