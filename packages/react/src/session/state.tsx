/** The shared state at the cursor, and what the last change before the cursor did to it. */
import { memo, useMemo } from "react";
import type { Moment } from "../model/scrub.ts";
import { type Change, stateDiff } from "../model/state-diff.ts";
import { Button } from "../ui/button.tsx";
import { Empty } from "../ui/empty.tsx";
import { count } from "../ui/format.ts";
import { type JsonMarks, JsonTree, pointerTo } from "../ui/json-tree.tsx";
import { useKeys } from "../ui/keyboard.ts";
import { visible } from "../ui/text.ts";
import { CopyButton } from "./code-block.tsx";
import { useInSession } from "./in-session.ts";
import "./state.css";

export interface StateProps {
  readonly moment: Moment;
  /** The state is not known yet. */
  readonly isLoading: boolean;
}

const PATHS_LISTED = 3;

export const State = memo(function State({ moment, isLoading }: StateProps) {
  const { moveTo } = useInSession();
  const { state, stateChange: change } = moment;
  const { seq, before } = change ?? {};
  const changes = useMemo(
    () => (seq === undefined ? [] : stateDiff(before, state)),
    [seq, before, state],
  );
  const marks = useMemo(() => marksOf(changes), [changes]);
  const goTo = (to: number | undefined): void => {
    if (to !== undefined) moveTo(to);
  };
  useKeys("State", [
    { keys: ["{"], does: "Change of the state before", run: () => goTo(change?.previous) },
    { keys: ["}"], does: "Next change of the state", run: () => goTo(change?.next) },
  ]);
  if (isLoading || (state === undefined && change === undefined)) {
    return (
      <section className="state" aria-label="State">
        <Empty title={isLoading ? "Loading …" : "This session has no shared state"} />
      </section>
    );
  }
  return (
    <section className="state" aria-label="State">
      <div className="state-bar">
        <Button
          look="plain"
          disabled={change?.previous === undefined}
          onClick={() => goTo(change?.previous)}
          title="Change before ({)"
          aria-label="Change before"
        >
          ◂
        </Button>
        <Button
          look="plain"
          disabled={change?.next === undefined}
          onClick={() => goTo(change?.next)}
          title="Next change (})"
          aria-label="Next change"
        >
          ▸
        </Button>
        <span className="state-sum" role="status">
          <Sum seq={seq} changes={changes} />
        </span>
        <CopyButton text={JSON.stringify(state, undefined, 2) ?? ""} what="state" />
      </div>
      <div className="state-tree" role="group" aria-label="Shared state">
        {state === undefined ? (
          <Empty title="No state yet at this event" />
        ) : (
          <JsonTree value={state} marks={marks} />
        )}
      </div>
    </section>
  );
});

function Sum({
  seq,
  changes,
}: {
  readonly seq: number | undefined;
  readonly changes: readonly Change[];
}) {
  if (seq === undefined) return "before the first change";
  if (changes.length === 0) return `Event ${count(seq)} changed nothing`;
  const paths = changes.slice(0, PATHS_LISTED).map(({ path }) => path.join(".") || "all");
  const more = changes.length - paths.length;
  return (
    <>
      Event {count(seq)}: <bdi>{visible(paths.join(", "))}</bdi>
      {more > 0 && ` and ${count(more)} more`}
    </>
  );
}

/** The first state is new as a whole: then nothing is marked. */
function marksOf(changes: readonly Change[]): JsonMarks {
  const changed = new Map<string, { readonly before: unknown }>();
  const removed = new Map<string, [string, unknown][]>();
  const around = new Set<string>();
  for (const change of changes) {
    const { path } = change;
    if (path.length === 0) continue;
    let pointer = "";
    for (const part of path.slice(0, -1)) {
      around.add(pointer);
      pointer = pointerTo(pointer, part);
    }
    around.add(pointer);
    const last = path.at(-1) ?? "";
    if (change.kind === "removed") {
      const others = removed.get(pointer) ?? [];
      removed.set(pointer, [...others, [String(last), change.before]]);
    } else {
      const before = change.kind === "changed" ? change.before : undefined;
      changed.set(pointerTo(pointer, last), { before });
    }
  }
  return { changed, removed, around };
}
