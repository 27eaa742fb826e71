/**
 * Loaded into a service before anything else (`node --import`): its wall clock is off by as many
 * milliseconds as the file of FAULTS_CLOCK_FILE says. Timers and the monotonic clock stay as they are,
 * as on a machine whose clock is set.
 */
import { readFileSync } from "node:fs";

const LOOK_EVERY_MS = 50;

const file = process.env["FAULTS_CLOCK_FILE"] ?? "";
const RealDate = Date;
const realNow = Date.now.bind(Date);
let offsetMs = 0;

function look(): void {
  try {
    offsetMs = Number(readFileSync(file, "utf8")) || 0;
  } catch {
    offsetMs = 0; // Nobody has set it yet.
  }
}

function shiftedNow(): number {
  return realNow() + offsetMs;
}

look();
setInterval(look, LOOK_EVERY_MS).unref();

globalThis.Date = new Proxy(RealDate, {
  construct: (target, args: unknown[], newTarget) =>
    Reflect.construct(target, args.length === 0 ? [shiftedNow()] : args, newTarget),
  apply: () => new RealDate(shiftedNow()).toString(),
  get: (target, name) => (name === "now" ? shiftedNow : Reflect.get(target, name)),
});
