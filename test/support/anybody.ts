import type { Authenticator } from "../../src/auth/authenticator.ts";
import { ANONYMOUS } from "../../src/auth/principal.ts";

/** No token is configured: whoever comes is let in as everybody. */
export const ANYBODY: Pick<Authenticator, "asks" | "authenticate" | "refusalOf"> = {
  asks: false,
  authenticate: () => ANONYMOUS,
  refusalOf: () => undefined,
};
