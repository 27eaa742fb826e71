/** Where the time in a V8 CPU profile goes: by package or folder of ours, and by function; pure. */
import { z } from "zod";
import { rounded } from "./figures.ts";

const profileSchema = z.object({
  nodes: z.array(
    z.object({
      id: z.number(),
      callFrame: z.object({ functionName: z.string(), url: z.string(), lineNumber: z.number() }),
    }),
  ),
  /** On the monotonic clock, as the deltas from it to each sample in turn. */
  startTime: z.number(),
  samples: z.array(z.number()),
  timeDeltas: z.array(z.number()),
});
type CallFrame = z.infer<typeof profileSchema>["nodes"][number]["callFrame"];

interface Share {
  readonly name: string;
  /** Of the time that was not idle. */
  readonly percent: number;
}

export interface ProfileSummary {
  readonly busyMs: number;
  readonly places: readonly Share[];
  readonly functions: readonly Share[];
}

const PLACES_MAX = 25;
const FUNCTIONS_MAX = 40;
const IDLE = "(idle)";

export interface ProfileOptions {
  /** The folder of the project, as the start of its files' URLs. */
  readonly root: string;
  /** What lies outside, the start of the service above all, is left out. */
  readonly fromMicros: number;
  readonly toMicros: number;
}

export function summariseProfile(json: string, options: ProfileOptions): ProfileSummary {
  const { root, fromMicros, toMicros } = options;
  const { nodes, startTime, samples, timeDeltas } = profileSchema.parse(JSON.parse(json));
  const frames = new Map(nodes.map(({ id, callFrame }) => [id, callFrame]));
  const byPlace = new Map<string, number>();
  const byFunction = new Map<string, number>();
  let busyMicros = 0;
  let atMicros = startTime;
  for (const [index, id] of samples.entries()) {
    const frame = frames.get(id);
    const micros = timeDeltas[index] ?? 0;
    atMicros += micros;
    if (atMicros < fromMicros || atMicros > toMicros) continue;
    if (frame === undefined || frame.functionName === IDLE) continue;
    busyMicros += micros;
    add(byPlace, placeOf(frame, root), micros);
    add(byFunction, functionOf(frame, root), micros);
  }
  return {
    busyMs: rounded(busyMicros / 1_000),
    places: shares(byPlace, { busyMicros, most: PLACES_MAX }),
    functions: shares(byFunction, { busyMicros, most: FUNCTIONS_MAX }),
  };
}

/** A package, a folder under src, a module of Node, or what V8 calls its own doings. */
function placeOf({ functionName, url }: CallFrame, root: string): string {
  const installed = /.*node_modules\/(@[^/]+\/[^/]+|[^/]+)/.exec(url)?.[1];
  if (installed !== undefined) return installed;
  if (url.startsWith(root)) return url.slice(root.length).split("/").slice(0, 2).join("/");
  return url === "" ? functionName : url;
}

function functionOf({ functionName, url, lineNumber }: CallFrame, root: string): string {
  const name = functionName === "" ? "(anonymous)" : functionName;
  if (url === "") return name;
  // V8 counts lines from 0.
  return `${name} ${url.startsWith(root) ? url.slice(root.length) : url}:${lineNumber + 1}`;
}

function add(sums: Map<string, number>, name: string, micros: number): void {
  sums.set(name, (sums.get(name) ?? 0) + micros);
}

function shares(
  sums: ReadonlyMap<string, number>,
  { busyMicros, most }: { readonly busyMicros: number; readonly most: number },
): readonly Share[] {
  return [...sums]
    .toSorted(([, a], [, b]) => b - a)
    .slice(0, most)
    .map(([name, micros]) => ({ name, percent: rounded((micros / busyMicros) * 100) }));
}
