/** Where a session stands, in the words of the whole page. */
import { type StateName, STATES } from "../model/standing.ts";
import { Badge, type Tone } from "./badge.tsx";
import { timeText } from "./format.ts";

const TONES: Readonly<Record<StateName, Tone>> = {
  running: "accent",
  waiting_for_person: "warn",
  waiting_for_runner: "warn",
  failed: "bad",
  cancelled: "neutral",
  idle: "neutral",
};

interface StateProps {
  readonly state: StateName;
  readonly sinceMs: number | undefined;
}

export function State({ state, sinceMs }: StateProps) {
  return (
    <span title={sinceMs === undefined ? undefined : `since ${timeText(sinceMs)}`}>
      <Badge tone={TONES[state]}>{STATES[state]}</Badge>
    </span>
  );
}
