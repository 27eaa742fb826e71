import { Counter, type Registry } from "prom-client";

export interface RedactionMetrics {
  /** Masked secrets, and members whose value was removed (`key`), by kind. */
  readonly redactions: Counter<"kind">;
}

export function redactionInstruments(registers: Registry[]): RedactionMetrics {
  return {
    redactions: new Counter({
      name: "session_ledger_redactions_total",
      help: "Masked secrets, by kind; `key`: by the name of a member.",
      labelNames: ["kind"],
      registers,
    }),
  };
}
