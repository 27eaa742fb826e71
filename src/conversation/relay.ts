/**
 * From one event of the log to what one client is sent for it. What lies outside of runs is withheld,
 * because clients accept nothing between runs; when the next run begins, the client lacks it.
 */
import type { Canonical, CanonicalEvent, LoggedEvent } from "./canonical/canonical.ts";
import { type Generation, servedTo } from "./generation/served.ts";
import type { Metrics } from "../observability/metrics.ts";
import { type AguiFrame, textFrames } from "./frames.ts";

export interface Relayed {
  readonly frames: readonly AguiFrame[];
  /** A run began and there is something that the client has not been told. */
  readonly lacks: boolean;
}

export interface RelayParts {
  readonly canonical: Canonical;
  readonly generation: Generation;
  readonly metrics: Pick<Metrics, "aguiMended">;
  /** Is given every event, and says what the client is to be told of it. */
  readonly onEvent?: (event: CanonicalEvent) => CanonicalEvent;
  /** What makes up for what was withheld; without it the caller has to. */
  readonly makeUp?: (seq: bigint) => readonly AguiFrame[];
}

export class Relay {
  #parts: RelayParts;
  #withheld: boolean;
  #hasFailed = false;

  constructor(parts: RelayParts, options: { readonly withheld: boolean }) {
    this.#parts = parts;
    this.#withheld = options.withheld;
  }

  /** From here on nobody is given the events, and the caller makes up for what was withheld. */
  goLive(): void {
    const { canonical, generation, metrics } = this.#parts;
    this.#parts = { canonical, generation, metrics };
  }

  get isRunning(): boolean {
    return this.#parts.canonical.run?.status === "running";
  }

  /** There was a run and it is over, or one that failed before it began. */
  get isOver(): boolean {
    return !this.isRunning && (this.#parts.canonical.run !== undefined || this.#hasFailed);
  }

  /** `seq` is the last number that the event takes. */
  next(event: LoggedEvent, seq: bigint): Relayed {
    const { canonical, makeUp, onEvent } = this.#parts;
    const frames: AguiFrame[] = [];
    let lacks = false;
    for (const one of canonical.next(event)) {
      const told = onEvent?.(one) ?? one;
      if (!told.inRun) {
        this.#withheld = true;
        this.#parts.metrics.aguiMended.inc({ how: "withheld" });
        continue;
      }
      frames.push(...textFrames(this.#textsOf(told), { type: told.value["type"], seq }));
      if (told.value["type"] === "RUN_ERROR") this.#hasFailed = true;
      if (!this.#withheld || told.value["type"] !== "RUN_STARTED") continue;
      this.#withheld = false;
      if (makeUp === undefined) lacks = true;
      else frames.push(...makeUp(seq));
    }
    return { frames, lacks };
  }

  #textsOf(event: CanonicalEvent): readonly string[] {
    const texts = servedTo(this.#parts.generation, event);
    if (texts.length === 0) this.#parts.metrics.aguiMended.inc({ how: "left_out" });
    else if (texts[0] !== event.text) this.#parts.metrics.aguiMended.inc({ how: "translated" });
    return texts;
  }
}
