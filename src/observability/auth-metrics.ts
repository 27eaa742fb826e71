import { Counter, type Registry } from "prom-client";

/** Counters of authentication and authorisation. */
export interface AuthMetrics {
  /**
   * `outcome`: accepted, or the cause of the refusal; `kind` is the kind of the token, or unknown.
   */
  readonly authentications: Counter<"kind" | "outcome">;
  /** Checks of signed tokens; `result`: known, refused (the same as before), or verified. */
  readonly tokenChecks: Counter<"result">;
  /** `keys`: oidc or session; `outcome`: changed, same, failed. */
  readonly keyRefreshes: Counter<"keys" | "outcome">;
  /** `file`: tokens or jwks; `outcome`: changed, failed. */
  readonly authFileReloads: Counter<"file" | "outcome">;
  readonly denied: Counter<"action" | "reason">;
}

export function authInstruments(registers: Registry[]): AuthMetrics {
  return {
    authentications: new Counter({
      name: "session_ledger_authentications_total",
      help: "Authenticated calls, by kind of token and outcome.",
      labelNames: ["kind", "outcome"],
      registers,
    }),
    tokenChecks: new Counter({
      name: "session_ledger_token_checks_total",
      help: "Checks of signed tokens, by way: known, refused before, or verified.",
      labelNames: ["result"],
      registers,
    }),
    keyRefreshes: new Counter({
      name: "session_ledger_key_refreshes_total",
      help: "Readings of the keys of tokens, by keys (oidc, session) and outcome.",
      labelNames: ["keys", "outcome"],
      registers,
    }),
    authFileReloads: new Counter({
      name: "session_ledger_auth_file_reloads_total",
      help: "Changes of a file of tokens or keys, by file and outcome (changed, failed).",
      labelNames: ["file", "outcome"],
      registers,
    }),
    denied: new Counter({
      name: "session_ledger_denied_total",
      help: "Denials, by action and reason.",
      labelNames: ["action", "reason"],
      registers,
    }),
  };
}
