/**
 * Loaded into the service before everything else (`node --import`). Each SIGUSR2 writes the functions
 * that ran since the last one to the file that FLOW_FILE names, one JSON document a line: V8's precise
 * coverage, with the count of the calls of each function.
 */
import { appendFileSync } from "node:fs";
import { Session } from "node:inspector/promises";

const file = process.env["FLOW_FILE"];
if (file === undefined) throw new Error("FLOW_FILE names no file");
const session = new Session();
session.connect();
await session.post("Profiler.enable");
await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
process.on("SIGUSR2", () => void take(file));

async function take(into: string): Promise<void> {
  const { result } = await session.post("Profiler.takePreciseCoverage");
  const ran = result.flatMap(({ url, functions }) =>
    functions.flatMap(({ functionName: name, ranges: [range] }) =>
      range === undefined || range.count === 0
        ? []
        : [{ url, name, at: range.startOffset, calls: range.count }],
    ),
  );
  appendFileSync(into, `${JSON.stringify(ran)}\n`);
}
