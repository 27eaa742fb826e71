/** The parts of one open push stream. */
import type { Clock } from "@session-ledger/base/clock";
import type { OpenedStream } from "../../store/streams.ts";
import type { CommitParts } from "./commits.ts";
import type { Intake } from "./intake.ts";
import type { StreamMeter } from "./meter.ts";
import type { OpenGroups, LeftRedactors } from "./open-groups.ts";
import type { RateLimits } from "../../ingest/rate-limits.ts";
import type { Timers } from "@session-ledger/base/timers";
import type { StreamRowsOptions } from "./stream-rows.ts";

export interface StreamParts extends CommitParts {
  /**
   * Charges one message of that many bytes; answers for how many milliseconds nothing may be read.
   */
  readonly charge: (bytes: number) => ReturnType<RateLimits["charge"]>;
  readonly timers: Timers;
  readonly meter: StreamMeter;
  readonly groups: Pick<OpenGroups, "leave">;
  readonly leftRedactors: LeftRedactors;
  readonly clock: Clock;
}

export interface StreamOptions extends StreamRowsOptions {
  readonly intake: ConstructorParameters<typeof Intake>[0];
  readonly stopOnRefused: boolean;
  /** The limit of payload bytes that are not committed; above it nothing is read. */
  readonly bytesMax: number;
}

export interface StreamIdentity {
  readonly sessionId: string;
  readonly opened: OpenedStream;
  /** The id of the caller who pushes. */
  readonly actor: string | undefined;
}
