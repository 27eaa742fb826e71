/** The public HTTP port: REST, SSE, AG-UI and CopilotKit over the handlers that gRPC uses too. */
import fastify from "fastify";
import {
  serializerCompiler,
  validatorCompiler,
  type ZodTypeProvider,
} from "fastify-type-provider-zod";
import type { SessionService } from "../../gen/ambient/v1/sessions_pb.ts";
import type { Clock } from "../base/clock.ts";
import type { Unit } from "../base/lifecycle.ts";
import type { Handlers } from "../handlers/context.ts";
import type { Log } from "../observability/log.ts";
import type { Metrics } from "../observability/metrics.ts";

export interface HttpParts {
  readonly handlers: Partial<Handlers<typeof SessionService>>;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly clock: Clock;
}

export interface HttpOptions {
  readonly address: string;
  readonly requestBytesMax: number;
  readonly heartbeatMs: number;
  readonly stopLimitMs: number;
}

export interface HttpServer extends Unit {
  /** `host:port`, once started with the port that was taken. */
  readonly address: string;
}

export function createHttpServer(_parts: HttpParts, options: HttpOptions): HttpServer {
  const app = fastify().withTypeProvider<ZodTypeProvider>();
  app.setValidatorCompiler(validatorCompiler);
  app.setSerializerCompiler(serializerCompiler);
  let address = options.address;
  return {
    get address() {
      return address;
    },
    async start() {
      const separator = address.lastIndexOf(":");
      const host = address.slice(0, separator);
      await app.listen({
        host: host.replace(/^\[(.*)\]$/, "$1"),
        port: Number(address.slice(separator + 1)),
      });
      address = `${host}:${app.addresses()[0]?.port}`;
    },
    async stop() {
      await app.close();
    },
  };
}
