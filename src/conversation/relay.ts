/**
 * Turns one event of the log into the frames for one client. Events outside of runs are withheld,
 * because clients accept no events between runs; when the next run begins, the client lacks them.
 */
import type { Canonical, CanonicalEvent, LoggedEvent } from "./canonical/canonical.ts";
import { type Generation, servedTo } from "./generation/served.ts";
import type { Metrics } from "../observability/metrics.ts";
import { type AguiFrame, textFrames } from "./frames.ts";

export interface Relayed {
  readonly frames: readonly AguiFrame[];
  /** A run began, and some events before it were withheld from the client. */
  readonly lacks: boolean;
}

export interface RelayParts {
  readonly canonical: Canonical;
  readonly generation: Generation;
  readonly metrics: Pick<Metrics, "aguiMended">;
  /** Gets every event, and returns the event to send. */
  readonly onEvent?: (event: CanonicalEvent) => CanonicalEvent;
  /** Makes frames that replace the withheld events; without it the caller must. */
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

  /** From here on `onEvent` is not called, and the caller makes up for withheld events. */
  goLive(): void {
    const { canonical, generation, metrics } = this.#parts;
    this.#parts = { canonical, generation, metrics };
  }

  get isRunning(): boolean {
    return this.#parts.canonical.run?.status === "running";
  }

  /** True when the newest run has ended, or failed before it began. */
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
