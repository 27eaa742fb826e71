/** A collector of traces: OTLP over HTTP in JSON, as much of it as the service sends. */
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { z } from "zod";

const valueSchema = z
  .object({
    stringValue: z.string().optional(),
    intValue: z.union([z.string(), z.int()]).optional(),
    boolValue: z.boolean().optional(),
  })
  .transform(
    ({ stringValue, intValue, boolValue }) => stringValue ?? boolValue ?? Number(intValue),
  );
const attributesSchema = z
  .array(z.object({ key: z.string(), value: valueSchema }))
  .default([])
  .transform((list) => Object.fromEntries(list.map(({ key, value }) => [key, value])));
const spanSchema = z.object({
  traceId: z.string(),
  spanId: z.string(),
  parentSpanId: z.string().optional(),
  name: z.string(),
  kind: z.int(),
  startTimeUnixNano: z.union([z.string(), z.int()]).transform(BigInt),
  endTimeUnixNano: z.union([z.string(), z.int()]).transform(BigInt),
  attributes: attributesSchema,
  events: z.array(z.object({ name: z.string() })).default([]),
  status: z.object({ code: z.int().optional() }).default({}),
});
const bodySchema = z.object({
  resourceSpans: z.array(
    z.object({
      resource: z.object({ attributes: attributesSchema }),
      scopeSpans: z.array(z.object({ spans: z.array(spanSchema) })),
    }),
  ),
});

export type CollectedSpan = z.infer<typeof spanSchema>;

export class TraceCollector {
  readonly spans: CollectedSpan[] = [];
  /** Every received span, unchanged. */
  readonly bodies: string[] = [];
  readonly paths: string[] = [];
  readonly services = new Set<unknown>();
  /** Accepts requests and does not answer them. */
  isStuck = false;
  readonly #server = createServer((request, response) => void this.#take(request, response));

  async start(): Promise<string> {
    this.#server.listen({ host: "127.0.0.1", port: 0 });
    await once(this.#server, "listening");
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- Of a server that listens on TCP.
    const { port } = this.#server.address() as AddressInfo;
    return `http://127.0.0.1:${port}`;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    if (!this.#server.listening) return;
    this.#server.close();
    await once(this.#server, "close");
  }

  of(traceId: string): readonly CollectedSpan[] {
    return this.spans.filter((span) => span.traceId === traceId);
  }

  async #take(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.paths.push(`${request.method} ${request.url}`);
    // A service that waited too long for the answer may leave in the middle of its body.
    const body = await text(request).catch(() => undefined);
    if (this.isStuck || body === undefined) return;
    this.bodies.push(body);
    for (const { resource, scopeSpans } of bodySchema.parse(JSON.parse(body)).resourceSpans) {
      this.services.add(resource.attributes["service.name"]);
      for (const { spans } of scopeSpans) this.spans.push(...spans);
    }
    response.setHeader("content-type", "application/json").end("{}");
  }
}
