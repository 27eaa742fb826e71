import type { Authenticator } from "../../src/auth/authenticator.ts";
import { ANONYMOUS } from "../../src/auth/principal.ts";

/** Without tokens: every caller is let in as the anonymous caller. */
export const ANYBODY: Pick<Authenticator, "asks" | "authenticate" | "refusalOf"> = {
  asks: false,
  authenticate: () => ANONYMOUS,
  refusalOf: () => undefined,
};
