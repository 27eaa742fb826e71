/** Loads OpenTelemetry's SDK, through otlp-tracing.ts, when the service starts with traces on. */
import type { OtlpTracing } from "./otlp-tracing.ts";
import type { Attributes, Tracing, TracingDeps, OtlpOptions } from "./trace.ts";

/** Spans before `start` or after `stop` are not recorded. */
export class LoadedTracing implements Tracing {
  readonly #deps: TracingDeps;
  readonly #options: OtlpOptions;
  #started: Promise<void> | undefined;
  #loaded: OtlpTracing | undefined;

  constructor(deps: TracingDeps, options: OtlpOptions) {
    this.#deps = deps;
    this.#options = options;
  }

  start(): Promise<void> {
    this.#started ??= this.#load();
    return this.#started;
  }

  async stop(): Promise<void> {
    await this.#started?.catch(() => undefined);
    await this.#loaded?.stop();
  }

  span(name: string, traceparent: string | undefined, attributes: Attributes | undefined) {
    return this.#loaded?.span(name, traceparent, attributes);
  }

  async #load(): Promise<void> {
    const { OtlpTracing } = await import("./otlp-tracing.ts");
    this.#loaded = new OtlpTracing(this.#deps, this.#options);
  }
}
